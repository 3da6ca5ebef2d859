"""Tasks of workers, their results, and the interface of an executor."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from torch import Tensor

from methods.core.task import Payload, Reply, RoundContext


class ClientTask(NamedTuple):
    """A client-side function of the method, with the current data of one client."""

    task: str  # name of the function
    client_id: int
    payload: Payload
    ctx: RoundContext
    labels: Tensor | None  # None: the given labels
    state: dict[str, Any]


class ClientTaskResult(NamedTuple):
    reply: Reply
    labels: Tensor | None  # None: unchanged
    state: dict[str, Any]
    samples_trained: int
    samples_scored: int
    is_finite: bool  # False: a model of the reply has NaN or Inf


@dataclass(frozen=True)
class PredictionTask:
    """Predict with the evaluated models on some samples."""

    models: dict[str, Tensor]
    index: Tensor  # in the test split, followed by the training split


class PredictionResult(NamedTuple):
    predicted: Tensor  # (n,) class with the highest probability
    log_likelihood: Tensor  # (n, classes) log probabilities, float32


@dataclass(frozen=True)
class DeviceTask:
    """Describe the device of the worker."""


Task = ClientTask | PredictionTask | DeviceTask


def client_of(task: Task) -> int | None:
    """The client of a client task."""
    return task.client_id if isinstance(task, ClientTask) else None


class Executor(Protocol):
    """Runs tasks. Results are in the order of the tasks and do not depend on the executor."""

    workers: int

    def run(self, tasks: Sequence[Task]) -> list[Any]: ...
    def close(self) -> None: ...
