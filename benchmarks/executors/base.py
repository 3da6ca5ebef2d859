"""Interface of an executor."""

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from threadpoolctl import threadpool_limits

from benchmarks.federation.worker import ClientTask, PredictionTask


class Executor(Protocol):
    workers: int

    def run(self, jobs: Sequence[ClientTask | PredictionTask]) -> list[Any]: ...
    def close(self) -> None: ...


def limit_to_one_thread() -> None:
    """One thread per process: the same bytes on every machine, and no fork of a process that owns a thread pool."""
    torch.set_num_threads(1)
    threadpool_limits(1)
