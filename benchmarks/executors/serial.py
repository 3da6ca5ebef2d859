"""Client tasks in this process."""

from collections.abc import Sequence
from typing import Any

from benchmarks.executors.base import limit_to_one_thread
from benchmarks.federation.worker import ClientTask, PredictionTask, WorkerContext


class SerialExecutor:
    workers = 1

    def __init__(self, workshop: WorkerContext):
        limit_to_one_thread()
        self._workshop = workshop

    def run(self, jobs: Sequence[ClientTask | PredictionTask]) -> list[Any]:
        return [self._workshop.do(job) for job in jobs]

    def close(self) -> None:
        pass
