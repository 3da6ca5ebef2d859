"""Show which runs are done, running, stale, failed or pending.

    python -m benchmarks.status [runs=DIR,DIR] [watch=true]

Reads records and leases only, so it works on every machine that has the directory. A stale run has
lost its process; a stopped one was interrupted. The same command resumes both. Pending runs are
those of a sweep that have not started. watch=true refreshes the display until Ctrl-C.
"""

import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.records.files import CONFIG_FILE, LOG_FILE, RECORD_FILE
from benchmarks.records.lease import PREFIX, LeaseInfo, file_system_time, read_lease
from benchmarks.records.plans import Plan, read_plans
from benchmarks.records.record import CorruptRecordError, read_record
from benchmarks.terminal.command import Options, require_choice, run_command, split_dirs

if TYPE_CHECKING:
    from rich.console import Group

STATES = ("done", "diverged", "failed", "running", "stale", "stopped", "damaged", "pending")
LISTED_STATES = ("failed", "diverged", "stale", "stopped", "damaged")
MAX_LISTED = 30
REFRESH_SECONDS = 2.0


class RunStatus(NamedTuple):
    """A run directory: its state, and the reason or the lease."""

    run_dir: Path
    state: str
    detail: str = ""
    lease: LeaseInfo | None = None


class StatusReader:
    """Reads the states of all runs of a directory. Records are read again if they change."""

    def __init__(self, runs_dir: Path):
        self.runs_dir = runs_dir
        self._records: dict[str, tuple[int, RunStatus]] = {}

    def read(self) -> tuple[list[RunStatus], list[Plan]]:
        """States of the runs, and the plans of sweeps."""
        found = list(self._read_run_dirs())
        plans = read_plans(self.runs_dir)
        known = {status.run_dir.name for status in found}
        planned = dict.fromkeys(run_id for plan in plans for run_id in plan.run_ids)
        pending = [run_id for run_id in planned if run_id not in known]
        return [*found, *(RunStatus(self.runs_dir / run, "pending") for run in pending)], plans

    def _read_run_dirs(self) -> Iterator[RunStatus]:
        now = file_system_time(self.runs_dir)
        for entry in sorted(os.scandir(self.runs_dir), key=lambda entry: entry.name):
            if not entry.name.startswith(".") and entry.is_dir():
                files = {file.name: file for file in os.scandir(entry.path)}
                lease = None
                if any(name.startswith(PREFIX) for name in files):
                    lease = read_lease(Path(entry.path), now)
                if lease is not None and not lease.is_stale:
                    yield RunStatus(Path(entry.path), "running", lease=lease)
                elif RECORD_FILE in files:
                    yield self._read_record(files[RECORD_FILE])
                elif lease is not None:
                    yield RunStatus(Path(entry.path), "stale", f"was on {lease.holder}")
                elif CONFIG_FILE in files or LOG_FILE in files:
                    yield RunStatus(Path(entry.path), "stopped")

    def _read_record(self, file: "os.DirEntry[str]") -> RunStatus:
        changed = file.stat().st_mtime_ns
        if file.path not in self._records or self._records[file.path][0] != changed:
            try:
                record = read_record(Path(file.path).parent)
                state, reason = (record.status, record.reason) if record else ("stopped", "")
            except CorruptRecordError as error:
                state, reason = "damaged", str(error).partition(f"{RECORD_FILE}: ")[2]
            self._records[file.path] = changed, RunStatus(Path(file.path).parent, state, reason)
        return self._records[file.path][1]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Returns the exit code."""
    return run_command(arguments, str(__doc__), {"runs": "runs", "watch": "false"}, _run)


def _run(options: Options) -> int:
    from rich.live import Live

    from benchmarks.terminal.console import make_console

    readers = [StatusReader(Path(directory)) for directory in split_dirs(options["runs"], True)]
    watch = require_choice("watch", options["watch"], ("true", "false")) == "true"
    console = make_console()
    if not watch:
        console.print(_render(readers))
        return 0
    with Live(_render(readers), console=console, auto_refresh=False) as live:
        while True:
            time.sleep(REFRESH_SECONDS)
            live.update(_render(readers), refresh=True)


def _render(readers: Sequence[StatusReader]) -> "Group":
    from rich.console import Group

    parts: list[Any] = []
    for reader in readers:
        runs, plans = reader.read()
        parts.append(f"{reader.runs_dir}: {_count(runs)}")
        states = {status.run_dir.name: status for status in runs}
        for started, host, run_ids in plans:
            counts = _count([states[run_id] for run_id in run_ids])
            parts.append(
                f"sweep of {len(run_ids)} runs, started {_time(started)} on {host}: {counts}"
            )
        parts += _tables(runs)
    return Group(*parts)


def _count(runs: Sequence[RunStatus]) -> str:
    counts = Counter(status.state for status in runs)
    return ", ".join(f"{counts[state]} {state}" for state in STATES if counts[state]) or "no runs"


def _tables(runs: Sequence[RunStatus]) -> Iterator[Any]:
    from rich import box
    from rich.table import Table

    if running := [status for status in runs if status.state == "running"]:
        columns = ("running", "host", "process", "since", "round", "participations")
        table = Table(*columns, box=box.SIMPLE_HEAD, collapse_padding=True)
        for status in running[:MAX_LISTED]:
            table.add_row(status.run_dir.name, *_describe_lease(status))
        yield table
        yield from _rest(running)
    if listed := [status for status in runs if status.state in LISTED_STATES]:
        table = Table("run", "state", "reason", box=box.SIMPLE_HEAD, collapse_padding=True)
        for status in listed[:MAX_LISTED]:
            table.add_row(status.run_dir.name, status.state, status.detail)
        yield table
        yield from _rest(listed)


def _rest(rows: Sequence[RunStatus]) -> Iterator[str]:
    if len(rows) > MAX_LISTED:
        yield f"... and {len(rows) - MAX_LISTED} more"


def _describe_lease(status: RunStatus) -> list[str]:
    assert status.lease is not None
    content = status.lease.content
    progress = content.get("progress", {})
    round, stage = progress.get("round", "-"), progress.get("stage", "")
    done, planned = progress.get("participations"), progress.get("planned")
    share = f"{done} of {planned} ({100 * done / planned:.0f} %)" if planned else "-"
    since = _time(content["started"]) if "started" in content else "?"
    host, process = content.get("host", "?"), content.get("process", "?")
    return [str(host), str(process), since, f"{round} {stage}".strip(), share]


def _time(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


if __name__ == "__main__":
    sys.exit(main())
