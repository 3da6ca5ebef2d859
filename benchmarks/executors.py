"""Where a client's task runs. Results do not depend on the choice: every task draws from streams of its own, on one thread."""

import io
import multiprocessing
import os
import pickle
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple, Protocol, cast

import torch
from threadpoolctl import threadpool_limits
from torch import Tensor, nn

from benchmarks.data import Images, Views
from methods.base import Diverged, Method, Payload, Reply, RoundContext
from methods.network import Engine, Network
from methods.seeding import derive_seed

WORKER_DIED = "a worker process died (killed, or out of memory); the same command goes on from the last checkpoint"


class Job(NamedTuple):
    """One client task: the name of a method of the client half, and what the client holds now."""

    task: str
    client_id: int
    payload: Payload
    ctx: RoundContext
    labels: Tensor | None  # None: as given
    state: dict[str, Any]


class Outcome(NamedTuple):
    reply: Reply
    labels: Tensor | None  # None: unchanged
    state: dict[str, Any]
    samples_trained: int
    samples_scored: int
    finite: bool


@dataclass(frozen=True)
class Prediction:
    """Test some models on a slice of the test set, or on given positions of the training set."""

    models: dict[str, Tensor]
    split: str  # train | test
    index: Tensor


class Predicted(NamedTuple):
    top: Tensor  # (n,) arg max
    log_likelihood: Tensor  # (n, classes) log probabilities, float32


class Executor(Protocol):
    workers: int

    def run(self, jobs: Sequence[Job | Prediction]) -> list[Any]: ...
    def close(self) -> None: ...


class Pictures(NamedTuple):
    """The images of one split and how a network sees them. No label: what a worker holds of a data set cannot tell the truth."""

    images: Images
    views: Views

    def view(self, index: Tensor, view: str, generator: torch.Generator | None) -> Tensor:
        return self.views(self.images.fetch(index), view, generator)


@dataclass
class Workshop:
    """What a worker holds: images, the noisy labels, the client half of the method, and a few networks to lend."""

    train: Pictures
    test: Pictures
    num_classes: int
    parts: list[Any]  # numpy index arrays
    noisy: Tensor
    method: Method
    build_module: Callable[[], nn.Module]
    engine: Engine | None = None  # None: networks compute their own passes

    def __post_init__(self) -> None:
        self._networks: list[Network] = []
        self._lent = 0

    def lend(self) -> Network:
        if self._lent == len(self._networks):
            with torch.random.fork_rng(
                devices=[]
            ):  # its initial weights are drawn, and must not move the stream of the task's dropout
                self._networks.append(Network(self.build_module(), self.engine))
        self._lent += 1
        return self._networks[self._lent - 1]

    def do(self, job: Job | Prediction) -> Any:
        self._lent = 0
        return self._predict(job) if isinstance(job, Prediction) else self._client_task(job)

    def _client_task(self, job: Job) -> Outcome:
        from benchmarks.fleet import LocalClient

        # Dropout is the one layer that draws from torch's global generator: give it a stream of its own per task.
        # (torch.manual_seed would do more: a note with a stack trace for every kind of accelerator, a millisecond each time.)
        torch.default_generator.manual_seed(
            derive_seed(job.ctx.seed, job.ctx.round, "layers", job.task, job.client_id)
        )
        index = torch.from_numpy(self.parts[job.client_id])
        given = self.noisy[index]
        labels = given if job.labels is None else job.labels
        client = LocalClient(
            job.client_id,
            index,
            given,
            labels,
            dict(job.state),
            self.train,
            self.num_classes,
            self.lend,
        )
        reply = getattr(self.method, job.task)(client, job.payload, job.ctx)
        changed = None if client.labels is labels else client.labels
        finite = all(bool(torch.isfinite(vector).all()) for vector in reply.models.values())
        return Outcome(
            reply, changed, client.state, client.samples_trained, client.samples_scored, finite
        )

    @torch.no_grad()
    def _predict(self, job: Prediction) -> Predicted:
        nets = {name: self.lend().load(vector).eval() for name, vector in job.models.items()}
        pictures = self.test if job.split == "test" else self.train
        parts = []
        for part in job.index.split(500):
            torch.default_generator.manual_seed(
                derive_seed("prediction", job.split, int(part[0]))
            )  # for models whose dropout stays on in evaluation
            parts.append(
                self.method.predict(nets, pictures.view(part, "plain", None)).clamp_min(1e-30).log()
            )  # type: ignore[attr-defined]
        log_likelihood = torch.cat(parts)
        return Predicted(log_likelihood.argmax(1), log_likelihood)


def one_thread() -> None:
    """One thread per process: the same bytes on every machine, and no fork of a process that owns a thread pool."""
    torch.set_num_threads(1)
    threadpool_limits(1)


class Serial:
    workers = 1

    def __init__(self, workshop: Workshop):
        one_thread()
        self._workshop = workshop

    def run(self, jobs: Sequence[Job | Prediction]) -> list[Any]:
        return [self._workshop.do(job) for job in jobs]

    def close(self) -> None:
        pass


class Processes:
    """Forked workers that share the data with this process; tasks go out as workers become free, results come back in order."""

    def __init__(self, workshop: Workshop, workers: int):
        one_thread()
        self.workers = workers
        context = multiprocessing.get_context("fork")
        self._connections: list[Connection] = []
        self._processes = []
        for _ in range(workers):
            here, there = context.Pipe()
            process = context.Process(
                target=_serve, args=(workshop, there, [*self._connections, here]), daemon=True
            )
            process.start()
            there.close()
            self._connections.append(here)
            self._processes.append(process)

    def run(self, jobs: Sequence[Job | Prediction]) -> list[Any]:
        results: list[Any] = [None] * len(jobs)
        waiting = list(range(len(jobs)))[::-1]
        running: dict[Connection, int] = {}
        for connection in self._connections:
            self._send(connection, jobs, waiting, running)
        failure: Exception | None = None
        while running:
            for ready in wait(list(running)):
                connection = cast(Connection, ready)
                number = running.pop(connection)
                try:
                    result = pickle.loads(connection.recv_bytes())
                except (EOFError, OSError):
                    raise WorkerError(WORKER_DIED) from None
                if isinstance(result, Exception):
                    failure, waiting = result, []
                results[number] = result
                self._send(connection, jobs, waiting, running)
        if failure is not None:
            raise failure
        return results

    @staticmethod
    def _send(
        connection: Connection,
        jobs: Sequence[Job | Prediction],
        waiting: list[int],
        running: dict[Connection, int],
    ) -> None:
        if waiting:
            number = waiting.pop()
            try:
                connection.send_bytes(dumps(jobs[number]))
            except OSError:
                raise WorkerError(WORKER_DIED) from None
            running[connection] = number

    def close(self) -> None:
        for connection in self._connections:
            connection.close()
        for process in self._processes:
            process.join(timeout=5)
            if process.is_alive():
                process.kill()
                process.join()


class WorkerError(RuntimeError):
    """An error inside a worker, with its traceback as text."""


def _serve(workshop: Workshop, connection: Connection, others: list[Connection]) -> None:
    for other in (
        others
    ):  # inherited ends: left open they would keep a worker alive after its parent's death
        other.close()
    while True:
        try:
            job = pickle.loads(connection.recv_bytes())
        except (EOFError, KeyboardInterrupt):
            return
        try:
            answer = dumps(workshop.do(job))
        except KeyboardInterrupt:
            return
        except Diverged as error:
            answer = dumps(error)
        except Exception as error:
            answer = dumps(
                WorkerError(f"{type(error).__name__}: {error}\n{traceback.format_exc()}")
            )
        try:
            connection.send_bytes(answer)
        except OSError:  # nobody listens any more
            return


class _Pickler(pickle.Pickler):
    """Tensors travel as numpy arrays: many times faster than torch's own pickling of small tensors."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return torch.from_numpy, (value.detach().numpy(),)
        return NotImplemented


def dumps(value: Any) -> bytes:
    buffer = io.BytesIO()
    _Pickler(buffer, protocol=5).dump(value)
    return buffer.getvalue()


def make(name: str, workers: int | str, workshop: Workshop) -> Executor:
    if name == "serial":
        return Serial(workshop)
    return Processes(workshop, len(os.sched_getaffinity(0)) if workers == "auto" else int(workers))
