"""Executors that run client tasks. Results are independent of the executor."""

import os

from benchmarks.executors.base import Executor
from benchmarks.executors.processes import ProcessExecutor, WorkerError
from benchmarks.executors.serial import SerialExecutor
from benchmarks.federation.worker import WorkerContext

__all__ = ["Executor", "Processes", "Serial", "WorkerError", "make"]


def make(name: str, workers: int | str, workshop: WorkerContext) -> Executor:
    if name == "serial":
        return SerialExecutor(workshop)
    return ProcessExecutor(
        workshop, len(os.sched_getaffinity(0)) if workers == "auto" else int(workers)
    )
