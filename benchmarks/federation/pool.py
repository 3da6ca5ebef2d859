"""Client pool: runs client tasks, stores client state between rounds and meters communication."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.federation.cost import CostMeter, size_in_bytes
from benchmarks.federation.tasks import ClientTask, ClientTaskResult, Executor
from methods.core.contract import DivergenceError, PayloadFunction, TaskFunction
from methods.core.task import Payload, Reply, RoundContext


@dataclass
class ClientPool:
    """All clients of a run; implements `methods.core.contract.ClientPool`. Has no clean labels."""

    executor: Executor
    client_indices: Sequence[np.ndarray]  # sample indices of each client
    all_given_labels: Tensor  # (n,), of all training samples
    make_initial_weights: Callable[[int], Tensor]
    skip_nonfinite_updates: bool
    meter: CostMeter = field(default_factory=CostMeter)
    relabeled: dict[int, Tensor] = field(default_factory=dict)  # labels that clients changed
    states: dict[int, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.num_clients = len(self.client_indices)
        sizes = [len(indices) for indices in self.client_indices]
        self.client_sizes = np.array(sizes, dtype=np.int64)

    def initial_weights(self, index: int = 0) -> Tensor:
        return self.make_initial_weights(index)

    def given_labels(self, client_id: int) -> Tensor:
        return self.all_given_labels[torch.from_numpy(self.client_indices[client_id])]

    def labels(self, client_id: int) -> Tensor:
        labels = self.relabeled.get(client_id)
        return self.given_labels(client_id) if labels is None else labels

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
        """Run one task on each client and store the clients' new labels and states.

        Returns the replies in the order of `ids`, without those that the method skips.
        """
        tasks = [
            ClientTask(
                task.__name__,
                client_id,
                payload(client_id, ctx),
                ctx,
                self.relabeled.get(client_id),
                self.states.get(client_id, {}),
            )
            for client_id in ids
        ]
        replies = []
        for sent, result in zip(tasks, self.executor.run(tasks), strict=True):
            self._count(sent.payload, result, participation)
            if result.labels is not None:
                self.relabeled[sent.client_id] = result.labels
            if result.state or sent.client_id in self.states:
                self.states[sent.client_id] = result.state
            if result.is_finite:
                replies.append(result.reply)
            elif self.skip_nonfinite_updates:
                self.meter.dropped_models += 1
            else:
                raise DivergenceError(
                    f"round {ctx.round} ({ctx.stage}): client {sent.client_id} returned NaN or Inf"
                )
        return replies

    def _count(self, payload: Payload, result: ClientTaskResult, participation: bool) -> None:
        meter, reply = self.meter, result.reply
        if participation:
            meter.participations += 1
        else:
            meter.queries += 1
        meter.models_down += len(payload.models)
        meter.models_up += len(reply.models)
        meter.bytes_down += size_in_bytes(payload.models) + size_in_bytes(payload.shared)
        meter.bytes_up += size_in_bytes(reply.models) + size_in_bytes(reply.values)
        meter.samples_trained += result.samples_trained
        meter.samples_scored += result.samples_scored
