"""Executors of client tasks.

Results are independent of the executor: each task has its own random streams and uses one thread.
"""

import os

from benchmarks.executors.processes import ProcessExecutor, WorkerError
from benchmarks.executors.serial import SerialExecutor
from benchmarks.federation.tasks import Executor
from benchmarks.federation.worker import WorkerContext

__all__ = ["ProcessExecutor", "SerialExecutor", "WorkerError", "make_executor"]


def make_executor(name: str, workers: int | str, context: WorkerContext) -> Executor:
    """Create `serial` or `processes`; `workers="auto"` uses all available CPU cores."""
    if name == "serial":
        return SerialExecutor(context)
    available = len(os.sched_getaffinity(0))
    return ProcessExecutor(context, available if workers == "auto" else int(workers))
