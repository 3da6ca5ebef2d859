"""Client tasks and the state of a worker that executes them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from benchmarks.federation.client import ImageSplit, LocalClient
from methods.core.contract import LocalTask, Method, Payload, Reply, RoundContext
from methods.core.flat_model import Engine, FlatModel
from methods.core.streams import derive_seed


class ClientTask(NamedTuple):
    """One client task: the name of a method of the client half, and what the client holds now."""

    task: str
    client_id: int
    payload: Payload
    ctx: RoundContext
    labels: Tensor | None  # None: as given
    state: dict[str, Any]


class ClientTaskResult(NamedTuple):
    reply: Reply
    labels: Tensor | None  # None: unchanged
    state: dict[str, Any]
    samples_trained: int
    samples_scored: int
    finite: bool


@dataclass(frozen=True)
class PredictionTask:
    """Test some models on a slice of the test set, or on given positions of the training set."""

    models: dict[str, Tensor]
    split: str  # train | test
    index: Tensor


class PredictionResult(NamedTuple):
    top: Tensor  # (n,) arg max
    log_likelihood: Tensor  # (n, classes) log probabilities, float32


@dataclass
class WorkerContext:
    """What a worker holds: images, the noisy labels, the client half of the method, and a few networks to lend."""

    train: ImageSplit
    test: ImageSplit
    num_classes: int
    parts: list[Any]  # numpy index arrays
    noisy: Tensor
    method: Method
    build_module: Callable[[], nn.Module]
    engine: Engine | None = None  # None: networks compute their own passes

    def __post_init__(self) -> None:
        self._networks: list[FlatModel] = []
        self._lent = 0

    def lend(self) -> FlatModel:
        if self._lent == len(self._networks):
            with torch.random.fork_rng(
                devices=[]
            ):  # its initial weights are drawn, and must not move the stream of the task's dropout
                self._networks.append(FlatModel(self.build_module(), self.engine))
        self._lent += 1
        return self._networks[self._lent - 1]

    def do(self, job: ClientTask | PredictionTask) -> Any:
        self._lent = 0
        return self._predict(job) if isinstance(job, PredictionTask) else self._client_task(job)

    def _client_task(self, job: ClientTask) -> ClientTaskResult:
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
        reply = getattr(self.method, job.task)(LocalTask(client, job.payload, job.ctx))
        changed = None if client.labels is labels else client.labels
        finite = all(bool(torch.isfinite(vector).all()) for vector in reply.models.values())
        return ClientTaskResult(
            reply, changed, client.state, client.samples_trained, client.samples_scored, finite
        )

    @torch.no_grad()
    def _predict(self, job: PredictionTask) -> PredictionResult:
        nets = {name: self.lend().load(vector).eval() for name, vector in job.models.items()}
        pictures = self.test if job.split == "test" else self.train
        parts = []
        for part in job.index.split(500):
            torch.default_generator.manual_seed(
                derive_seed("prediction", job.split, int(part[0]))
            )  # for models whose dropout stays on in evaluation
            parts.append(
                self.method.predict(nets, pictures.view(part, "plain", None)).clamp_min(1e-30).log()
            )
        log_likelihood = torch.cat(parts)
        return PredictionResult(log_likelihood.argmax(1), log_likelihood)
