"""Logit adjustment (Menon et al., 2021) with a class prior that the server collects."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from methods import (
    Batch,
    ClientPool,
    Diagnosis,
    FedAvg,
    FlatModel,
    LocalTask,
    Models,
    NonNegative,
    Reply,
    RoundContext,
    ServerState,
    parameters,
    register,
)


@parameters
class ClassPriorParams:
    tau: NonNegative = 1.0  # tau, weight of the log prior; 0: cross-entropy


@dataclass
class ClassPriorState(ServerState):
    counts: dict[int, Tensor] = field(default_factory=dict)  # last class counts of each client


@register(family="robust loss", paper="Menon et al., ICLR 2021")
class ClassPrior(FedAvg):
    """FedAvg with logits that are adjusted by the class prior of all clients seen so far.

    Deviations:

    1. The paper trains centrally with the true prior. Here the server adds up the class counts of
       the current labels that clients report.
    """

    name = "class_prior"
    params: ClassPriorParams
    state: ClassPriorState
    fedavg_equivalent_params = {"tau": 0.0}

    def initial_state(self, pool: ClientPool, ctx: RoundContext) -> ClassPriorState:
        uniform = torch.full((self.spec.num_classes,), 1 / self.spec.num_classes)
        return ClassPriorState(super().initial_state(pool, ctx).models, {"prior": uniform})

    def aggregate(self, replies: Sequence[Reply], ctx: RoundContext) -> None:
        super().aggregate(replies, ctx)
        self.state.counts |= {reply.client_id: reply.values["counts"] for reply in replies}
        total = torch.stack(list(self.state.counts.values())).sum(0) + 1.0
        self.state.shared["prior"] = total / total.sum()

    def diagnose(self, pool: ClientPool) -> Diagnosis:
        return Diagnosis(values={"largest_class": float(self.state.shared["prior"].max())})

    def batch_loss(self, model: FlatModel, batch: Batch, task: LocalTask) -> Tensor:
        prior = task.payload.shared["prior"]
        return F.cross_entropy(model(batch.x) + self.params.tau * prior.log(), batch.y)

    def finish_local_update(self, models: Models, task: LocalTask) -> Mapping[str, Any]:
        labels = task.client.labels
        return {"counts": torch.bincount(labels, minlength=task.client.num_classes)}
