"""Executor in this process."""

from collections.abc import Sequence
from typing import Any

from benchmarks.federation.tasks import Task
from benchmarks.federation.transfer import Border
from benchmarks.federation.worker import WorkerContext


class SerialExecutor:
    """Executes tasks one after the other."""

    workers = 1

    def __init__(self, context: WorkerContext):
        self.context = context
        context.start()

    def run(self, tasks: Sequence[Task]) -> list[Any]:
        border = Border(self.context.device)
        results = []
        for number, task in enumerate(tasks):
            for following in tasks[number + 1 : number + 2]:
                self.context.read_ahead(following)
            results.append(self.context.execute(task, border))
        return results

    def close(self) -> None:
        pass
