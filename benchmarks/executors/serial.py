"""Executor in this process."""

from collections.abc import Sequence
from typing import Any

from benchmarks.federation.tasks import Task, client_of
from benchmarks.federation.transfer import DeviceTransfer
from benchmarks.federation.worker import WorkerContext


class SerialExecutor:
    """Executes tasks one after the other."""

    workers = 1

    def __init__(self, context: WorkerContext):
        self.context = context
        context.start()

    def run(self, tasks: Sequence[Task]) -> list[Any]:
        transfer = DeviceTransfer(self.context.device)
        following = [*map(client_of, tasks[1:]), None]
        return [
            self.context.execute(task, next_client, transfer)
            for task, next_client in zip(tasks, following, strict=False)
        ]

    def close(self) -> None:
        pass
