"""Plan of a sweep: its run ids, for `fln status`. Removed when all of its runs are complete."""

import hashlib
import os
import platform
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pydantic

from benchmarks.records.files import write_json
from benchmarks.records.record import FINAL_STATUSES, read_record

PLANS_DIR = ".sweeps"


class Plan(NamedTuple):
    """A sweep that was started and is not complete."""

    started: float
    host: str
    run_ids: list[str]


def write_plan(runs_dir: Path, run_ids: Sequence[str]) -> Path:
    """Write the plan of a sweep. The same sweep on another machine has the same file."""
    name = hashlib.sha256("\n".join(sorted(run_ids)).encode()).hexdigest()[:12]
    path, host = runs_dir / PLANS_DIR / f"{name}.json", platform.node()
    own = path.with_name(f"{name}.{host}.{os.getpid()}")  # Others may write the plan now, too.
    write_json(own, Plan(time.time(), host, list(run_ids))._asdict())
    return own.replace(path)


@contextmanager
def planned_sweep(runs_dir: Path, run_ids: Sequence[str]) -> Iterator[None]:
    """Write the plan of a sweep, and remove it at the end if all runs are complete."""
    runs_dir.mkdir(parents=True, exist_ok=True)
    path = write_plan(runs_dir, run_ids) if len(run_ids) > 1 else None
    yield
    records = (read_record(runs_dir / run_id) for run_id in run_ids)
    if path and all(record and record.status in FINAL_STATUSES for record in records):
        path.unlink(missing_ok=True)


def read_plans(runs_dir: Path) -> list[Plan]:
    """Plans of the sweeps of a directory, by their start. Unreadable files are skipped."""
    plans = []
    for path in (runs_dir / PLANS_DIR).glob("*.json"):
        try:
            plans.append(pydantic.TypeAdapter(Plan).validate_json(path.read_bytes()))
        except (ValueError, OSError):
            continue
    return sorted(plans)
