"""Executors of client tasks.

Results are independent of the executor: each task has its own random streams and uses one thread.
"""

from dataclasses import replace

from benchmarks.config.schema import ExecutorConfig
from benchmarks.executors.pool import WorkerError
from benchmarks.executors.processes import ProcessExecutor
from benchmarks.executors.serial import SerialExecutor
from benchmarks.federation.devices import is_accelerator_in_use, resolve_devices
from benchmarks.federation.tasks import Executor
from benchmarks.federation.worker import WorkerContext
from methods.core.errors import require_package
from methods.core.machine import available_cores

__all__ = ["ProcessExecutor", "SerialExecutor", "WorkerError", "make_executor"]


def make_executor(config: ExecutorConfig, context: WorkerContext) -> Executor:
    """Create the executor, with workers on a device, or in turn on several devices.

    `workers="auto"` means all CPU cores, one worker per device, or the whole Ray cluster. One
    worker on a device is this process. A process that has started an accelerator must not fork, so
    it is serial, too.
    """
    if config.name == "ray":
        require_package("ray", extra="ray")
        from benchmarks.executors.ray_actors import RayExecutor

        return RayExecutor(context, config)
    found = resolve_devices(config.device)
    on_cpu = found[0].type == "cpu"
    count = config.workers
    if count == "auto":
        count = available_cores() if on_cpu else len(found)
    contexts = [
        replace(context, device=found[k % len(found)], workers_on_device=-(-count // len(found)))
        for k in range(count)
    ]
    if config.name == "serial" or (is_accelerator_in_use() if on_cpu else count == 1):
        return SerialExecutor(contexts[0])
    return ProcessExecutor(contexts)
