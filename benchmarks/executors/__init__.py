"""Executors of client tasks.

Results are independent of the executor: each task has its own random streams and uses one thread.
"""

import os

from benchmarks.config.schema import ExecutorConfig
from benchmarks.executors.pool import WorkerError
from benchmarks.executors.processes import ProcessExecutor
from benchmarks.executors.serial import SerialExecutor
from benchmarks.federation.tasks import Executor
from benchmarks.federation.worker import WorkerContext
from methods.core.errors import require_package

__all__ = ["ProcessExecutor", "SerialExecutor", "WorkerError", "make_executor"]


def make_executor(config: ExecutorConfig, context: WorkerContext) -> Executor:
    """Create the executor. `workers="auto"` uses all CPU cores, or the whole Ray cluster."""
    if config.name == "serial":
        return SerialExecutor(context)
    if config.name == "ray":
        require_package("ray", extra="ray")
        from benchmarks.executors.ray_actors import RayExecutor

        return RayExecutor(context, config)
    available = len(os.sched_getaffinity(0))
    return ProcessExecutor(context, available if config.workers == "auto" else config.workers)
