"""Results of earlier runs whose source has changed since: the option `stale` decides about them."""

from collections.abc import Mapping

from benchmarks.config.schema import RunConfig
from benchmarks.records.record import FINAL_STATUSES, CorruptRecordError, Record, read_record
from benchmarks.records.source import source_digests
from methods.core.errors import UserError

SUITE = {"benchmarks", "methods", "noise", "partition"}


class StaleSourceError(UserError):
    """The source has changed, and `stale=error` says to stop."""


def find_finished(config: RunConfig) -> tuple[Record | None, str]:
    """The record of a run that is not repeated. One line if it is damaged or its source changed."""
    try:
        record = None if config.force else read_record(config.run_dir)
    except CorruptRecordError as error:
        return None, f"{error}; the run is repeated"
    if record is None or record.status not in FINAL_STATUSES:
        return None, ""
    changed = changed_packages(config, record.source)
    if not changed:
        return record, ""
    is_kept = config.stale == "keep" or (config.stale == "auto" and changed <= SUITE)
    line = describe_change(config, changed)
    if is_kept:
        return record, f"{line}; the result is kept, stale=rerun repeats the run"
    return None, f"{line}; the run is repeated, stale=keep keeps the result"


def can_resume(config: RunConfig, source: Mapping[str, str]) -> tuple[bool, str]:
    """Whether to use a checkpoint, and one line if its source has changed."""
    changed = changed_packages(config, source)
    if not changed:
        return True, ""
    line = describe_change(config, changed)
    if config.stale == "keep":
        return True, f"{line}; the run continues, as stale=keep says"
    return False, f"{line}; it starts again from the first round, stale=keep continues it"


def changed_packages(config: RunConfig, source: Mapping[str, str]) -> set[str]:
    """Packages whose source differs from that of an earlier run."""
    now = source_digests(config)
    return {name for name, digest in source.items() if now.get(name) != digest}


def describe_change(config: RunConfig, changed: set[str]) -> str:
    """One line about changed packages. Raises StaleSourceError with `stale=error`."""
    line = f"the source of {', '.join(sorted(changed))} has changed since then"
    if config.stale == "error":
        fix = "set stale=rerun or stale=keep"
        raise StaleSourceError(f"cannot use {config.run_dir}: {line}; {fix}")
    return line
