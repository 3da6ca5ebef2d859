"""Lock of a run directory: one process at a time executes a run."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.records.files import LOCK_FILE


class RunLockedError(Exception):
    """Another process executes this run."""


@contextmanager
def lock_run_dir(run_dir: Path) -> Iterator[None]:
    run_dir.mkdir(parents=True, exist_ok=True)
    with open(run_dir / LOCK_FILE, "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise RunLockedError(f"{run_dir} is locked by another process") from None
        yield
