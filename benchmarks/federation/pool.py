"""Client pool: runs client tasks, stores client state between rounds and meters communication."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.executors.base import Executor
from benchmarks.federation.cost import CostMeter, size_in_bytes
from benchmarks.federation.worker import ClientTask, ClientTaskResult
from methods.core.contract import (
    DivergenceError,
    Payload,
    PayloadFunction,
    Reply,
    RoundContext,
    TaskFunction,
)


@dataclass
class ClientPool:
    """The server's side (see methods.base.Fleet). Holds no true label either."""

    executor: Executor
    parts: Sequence[np.ndarray]  # sample indices of each client
    noisy: Tensor  # (n,) the labels as given
    make_initial_weights: Callable[[int], Tensor]
    skip_nonfinite_updates: bool
    meter: CostMeter = field(default_factory=CostMeter)
    changed_labels: dict[int, Tensor] = field(default_factory=dict)
    states: dict[int, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.num_clients = len(self.parts)
        self.client_sizes = np.array([len(part) for part in self.parts], dtype=np.int64)

    def initial_weights(self, index: int = 0) -> Tensor:
        return self.make_initial_weights(index)

    def given_labels(self, client_id: int) -> Tensor:
        return self.noisy[torch.from_numpy(self.parts[client_id])]

    def labels(self, client_id: int) -> Tensor:
        return (
            self.changed_labels[client_id]
            if client_id in self.changed_labels
            else self.given_labels(client_id)
        )

    def state(self, client_id: int) -> Mapping[str, Any]:
        return self.states.get(client_id, {})

    def run_task(
        self,
        ids: Sequence[int],
        task: TaskFunction,
        payload: PayloadFunction,
        ctx: RoundContext,
        participation: bool = False,
    ) -> list[Reply]:
        """Run one task on each client and return the replies in the order of `ids`. What the clients keep is stored here."""
        payloads = [payload(k, ctx) for k in ids]
        jobs = [
            ClientTask(
                task.__name__, k, sent, ctx, self.changed_labels.get(k), self.states.get(k, {})
            )
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
            elif self.skip_nonfinite_updates:
                self.meter.dropped_models += 1
            else:
                raise DivergenceError(
                    f"round {ctx.round} ({ctx.stage}): client {job.client_id} returned NaN or Inf"
                )
        return replies

    def _count(self, payload: Payload, outcome: ClientTaskResult, participation: bool) -> None:
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
