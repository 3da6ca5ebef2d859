"""Executor with several workers that can die."""

import traceback
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from typing import Any, Generic, Protocol, TypeVar

from torch import Tensor

from benchmarks.executors.serialization import Exchange, is_independent
from benchmarks.federation.tasks import ClientTask, PredictionTask, Task, client_of
from benchmarks.federation.transfer import DeviceTransfer, map_tensors
from benchmarks.federation.worker import WorkerContext
from methods.core.contract import DivergenceError

MAX_REPEATS = 3  # of a task whose worker has died


class WorkerError(RuntimeError):
    """An error in a worker. The message ends with the worker's traceback."""


class WorkerDiedError(Exception):
    """A worker has died. The message says how."""


class Worker(Protocol):
    """A process that executes one task at a time."""

    def send(self, task: bytes) -> None:
        """Send a task. If the worker has died, `receive` fails."""

    def receive(self) -> bytes:
        """The reply to the task, see `TaskServer`. Raises WorkerDiedError."""

    def end(self) -> None:
        """End the process, whatever it does. A task is never left half done: it is repeated."""


W = TypeVar("W", bound=Worker)


class PoolExecutor(ABC, Generic[W]):
    """Gives the next task to a free worker.

    A worker that dies is replaced and its task repeated, because a task is a pure function.
    """

    def __init__(self, workers: int):
        self.workers = workers
        self._pool: list[W] = []  # workers that take tasks
        for _ in range(workers):
            self._start_worker()

    @abstractmethod
    def _start_worker(self) -> None:
        """Start a worker and add it to the pool, now or in `_wait`."""

    @abstractmethod
    def _wait(self, running: Sequence[W]) -> Sequence[W]:
        """Wait for an event. Returns the workers among `running` that have replied or died."""

    def run(self, tasks: Sequence[Task]) -> list[Any]:
        results: list[Any] = [None] * len(tasks)
        waiting = set(range(len(tasks)))
        deaths: Counter[int] = Counter()
        running: dict[W, int] = {}
        reserved: dict[W, int] = {}  # the worker reads the images of this task ahead
        shared = _shared_tensors(tasks)
        exchanges: defaultdict[W, Exchange] = defaultdict(lambda: Exchange(shared))
        failure: Exception | None = None
        while waiting or running:
            for worker in self._pool:
                if waiting and worker not in running:
                    number = _choose(waiting, reserved.pop(worker, -1), reserved.values())
                    running[worker], following = number, number + self.workers
                    next_client = None
                    if following in waiting:
                        reserved[worker], next_client = following, client_of(tasks[following])
                    worker.send(exchanges[worker].dumps((tasks[number], next_client)))
            for worker in self._wait(list(running)):
                number = running.pop(worker)
                try:
                    results[number] = exchanges[worker].loads(worker.receive())
                except WorkerDiedError as death:
                    deaths[number] += 1
                    reserved.pop(worker, None)
                    self._replace(worker, tasks[number], deaths[number], death)
                    waiting.add(number)
                if isinstance(results[number], Exception):
                    failure = results[number]
                    waiting.clear()
        if failure is not None:
            raise failure
        return results

    def close(self) -> None:
        for worker in self._pool:
            worker.end()

    def _replace(self, worker: W, task: Task, deaths: int, death: WorkerDiedError) -> None:
        worker.end()
        self._pool.remove(worker)
        if deaths > MAX_REPEATS:
            name = f"client {task.client_id}" if isinstance(task, ClientTask) else "the evaluation"
            raise WorkerError(f"the worker of {name} died {deaths} times, {death}")
        self._start_worker()


def _choose(waiting: set[int], own: int, reserved: Collection[int]) -> int:
    """Take the task that a worker has prepared, or one that no worker has, or the first one."""
    number = own if own in waiting else min(waiting.difference(reserved) or waiting)
    waiting.remove(number)
    return number


def _shared_tensors(tasks: Sequence[Task]) -> list[Tensor]:
    """Tensors that several tasks have in common."""
    first: dict[int, Task] = {}  # the first task with a tensor, by the identity of the tensor
    shared: dict[int, Tensor] = {}

    def compare(tensor: Tensor) -> Tensor:
        if first.setdefault(id(tensor), task) is not task:
            shared[id(tensor)] = tensor
        return tensor

    for task in tasks:
        if isinstance(task, ClientTask):
            map_tensors((task.payload, task.state), compare)
        elif isinstance(task, PredictionTask):
            map_tensors(task.models, compare)
    return list(shared.values())


class TaskServer:
    """The side of the worker: executes the tasks that it receives."""

    def __init__(self, context: WorkerContext):
        self._context = context

    def reply_to(self, message: bytes) -> bytes:
        """Execute a task. Returns the result or the exception."""
        if is_independent(message):
            self._exchange, self._transfer = Exchange(), DeviceTransfer(self._context.device)
        try:
            task, next_client = self._exchange.loads(message)
            result = self._context.execute(task, next_client, self._transfer)
            return self._exchange.dumps(result)
        except DivergenceError as error:
            return self._exchange.dumps(error)
        except Exception as error:
            text = f"{type(error).__name__}: {error}\n{traceback.format_exc()}"
            return self._exchange.dumps(WorkerError(text))
