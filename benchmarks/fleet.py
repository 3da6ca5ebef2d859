"""Clients and the one way to reach them. Keeps what clients keep between visits, and counts what is sent."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.executors import Executor, Job, Outcome, Pictures
from methods.base import Batch, Diverged, Payload, Reply, RoundContext
from methods.network import Network

EPOCH_CHUNK = (
    4096  # samples whose augmented images are made at once: one client's epoch for the usual sizes
)


class LocalClient:
    """A client while one of its tasks runs (see methods.base.Client). Holds no true label."""

    def __init__(
        self,
        client_id: int,
        index: Tensor,
        given: Tensor,
        labels: Tensor,
        state: dict[str, Any],
        pictures: Pictures,
        num_classes: int,
        lend: Callable[[], Network],
    ):
        self.id = client_id
        self.num_samples = len(index)
        self.num_classes = num_classes
        self.given = given
        self.labels = labels
        self.state = state
        self.samples_trained = 0
        self.samples_scored = 0
        self._index, self._pictures, self._lend = index, pictures, lend

    def network(self, vector: Tensor) -> Network:
        return self._lend().load(vector)

    def images(
        self, index: Tensor, view: str = "plain", generator: torch.Generator | None = None
    ) -> Tensor:
        self.samples_scored += len(index)
        return self._view(index, view, generator)

    def batches(
        self,
        batch_size: int,
        view: str,
        order: torch.Generator,
        augment: torch.Generator,
        epoch: int = 0,
        subset: Tensor | None = None,
    ) -> Iterator[Batch]:
        """One shuffled epoch, over all samples or a subset of positions; the last short batch is kept."""
        shuffled = torch.randperm(
            self.num_samples if subset is None else len(subset), generator=order
        )
        if subset is not None:
            shuffled = subset[shuffled]
        self.samples_trained += len(shuffled)
        step = 0
        chunk = (
            max(EPOCH_CHUNK // batch_size, 1) * batch_size
            if self._pictures.images.in_memory
            else batch_size
        )
        for positions in shuffled.split(chunk):
            x, y = self._view(positions, view, augment), self.labels[positions]
            for part in zip(
                x.split(batch_size), y.split(batch_size), positions.split(batch_size), strict=True
            ):
                yield Batch(*part, epoch, step)
                step += 1

    def reply(self, models: Mapping[str, Tensor], **values: Any) -> Reply:
        return Reply(
            self.id,
            self.num_samples,
            {name: vector.clone() for name, vector in models.items()},
            values,
        )

    def _view(self, positions: Tensor, view: str, generator: torch.Generator | None) -> Tensor:
        return self._pictures.view(self._index[positions], view, generator)


@dataclass
class Meter:
    """Cost so far. FedCorr's measure is `participations`; the others keep its simplification honest."""

    participations: int = 0  # client visits that train a model
    contacts: int = 0  # visits that only measure
    models_down: int = 0
    models_up: int = 0
    bytes_down: int = 0
    bytes_up: int = 0
    samples_trained: int = 0  # sample passes with a gradient, counted once for several networks
    samples_scored: int = 0
    dropped_models: int = 0  # client models with NaN or Inf that the method left out


@dataclass
class Fleet:
    """The server's side (see methods.base.Fleet). Holds no true label either."""

    executor: Executor
    parts: Sequence[np.ndarray]  # sample indices of each client
    noisy: Tensor  # (n,) the labels as given
    make_initial_weights: Callable[[int], Tensor]
    drops_nonfinite: bool
    meter: Meter = field(default_factory=Meter)
    changed_labels: dict[int, Tensor] = field(default_factory=dict)
    states: dict[int, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.num_clients = len(self.parts)
        self.sizes = np.array([len(part) for part in self.parts], dtype=np.int64)

    def initial_weights(self, index: int = 0) -> Tensor:
        return self.make_initial_weights(index)

    def given(self, client_id: int) -> Tensor:
        return self.noisy[torch.from_numpy(self.parts[client_id])]

    def labels(self, client_id: int) -> Tensor:
        return (
            self.changed_labels[client_id]
            if client_id in self.changed_labels
            else self.given(client_id)
        )

    def state(self, client_id: int) -> Mapping[str, Any]:
        return self.states.get(client_id, {})

    def ask(
        self,
        ids: Sequence[int],
        task: Callable[..., Reply],
        payload: Callable[[int, RoundContext], Payload],
        ctx: RoundContext,
        participation: bool = False,
    ) -> list[Reply]:
        """Run one task on each client and return the replies in the order of `ids`. What the clients keep is stored here."""
        payloads = [payload(k, ctx) for k in ids]
        jobs = [
            Job(task.__name__, k, sent, ctx, self.changed_labels.get(k), self.states.get(k, {}))
            for k, sent in zip(ids, payloads, strict=True)
        ]
        replies = []
        for job, outcome in zip(jobs, self.executor.run(jobs), strict=True):
            self._count(job.payload, outcome, participation)
            if outcome.labels is not None:
                self.changed_labels[job.client_id] = outcome.labels
            if outcome.state or job.client_id in self.states:
                self.states[job.client_id] = outcome.state
            if outcome.finite:
                replies.append(outcome.reply)
            elif self.drops_nonfinite:
                self.meter.dropped_models += 1
            else:
                raise Diverged(
                    f"round {ctx.round} ({ctx.stage}): client {job.client_id} returned NaN or Inf"
                )
        return replies

    def _count(self, payload: Payload, outcome: Outcome, participation: bool) -> None:
        meter, reply = self.meter, outcome.reply
        if participation:
            meter.participations += 1
        else:
            meter.contacts += 1
        meter.models_down += len(payload.models)
        meter.models_up += len(reply.models)
        meter.bytes_down += size_in_bytes(payload.models) + size_in_bytes(payload.shared)
        meter.bytes_up += size_in_bytes(reply.models) + size_in_bytes(reply.values)
        meter.samples_trained += outcome.samples_trained
        meter.samples_scored += outcome.samples_scored


def size_in_bytes(value: Any) -> int:
    """What a value weighs on the wire: tensors by their elements, numbers as 8 bytes."""
    if isinstance(value, Tensor):
        return value.numel() * value.element_size()
    if isinstance(value, (np.ndarray, np.generic)):
        return int(value.nbytes)
    if isinstance(value, Mapping):
        return sum(size_in_bytes(v) for v in value.values())
    if isinstance(value, (list, tuple)):
        return sum(size_in_bytes(v) for v in value)
    return 8 if isinstance(value, (int, float)) else 0
