"""FedAvg (McMahan et al., AISTATS 2017), and with it the default of every hook."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from methods.core import training
from methods.core.contract import (
    Batch,
    Client,
    ClientPool,
    Diagnosis,
    Method,
    Payload,
    Reply,
    RoundContext,
    TaskSpec,
)
from methods.core.flat_model import FlatModel
from methods.core.registry import register
from methods.toolkit.aggregation import weighted_mean
from methods.toolkit.losses import cross_entropy


@register(family="baseline", paper="McMahan et al., AISTATS 2017")
class FedAvg(Method):
    """Sample-weighted averaging of locally trained models.

    Deviations: none. Batch-norm statistics are averaged with the weights, as the released code of FedCorr does.
    """

    name = "fedavg"

    # --- server -------------------------------------------------------------------------------------------------------------------------

    def check(self, spec: TaskSpec) -> None:
        """Refuse, with a ValueError of one line, a world this method cannot work in."""
        if spec.participations < spec.clients_per_round:
            raise ValueError(
                f"budget.participations={spec.participations} is less than one round; legal: at least federation.clients_per_round={spec.clients_per_round}"
            )

    def oracle(self) -> str:
        """Why a hyper-parameter depends on the true noise; empty when none does."""
        return ""

    def setup(self, spec: TaskSpec, fleet: ClientPool, ctx: RoundContext) -> None:
        """Called once, also before a resume: sets what follows from the configuration, and the first state."""
        self.spec = spec
        self.rounds = spec.participations // spec.clients_per_round
        self.planned_participations = self.rounds * spec.clients_per_round
        self.models: dict[str, Tensor] = {
            name: fleet.initial_weights(index) for index, name in enumerate(self.model_names)
        }
        self.shared: dict[str, Any] = {}
        self._private: dict[str, Any] = {}

    def stage(self, round: int) -> str | None:
        return "train" if round < self.rounds else None

    def select(self, fleet: ClientPool, ctx: RoundContext) -> Sequence[int]:
        cohort = ctx.rng("select").choice(
            fleet.num_clients, size=self.spec.clients_per_round, replace=False
        )
        return [int(k) for k in np.sort(cohort)]

    def before_round(self, fleet: ClientPool, ids: Sequence[int], ctx: RoundContext) -> None:
        """Before the cohort trains; may ask clients."""

    def payload(self, client_id: int, ctx: RoundContext) -> Payload:
        return Payload(self.models, self.shared)

    def aggregate(self, replies: Sequence[Reply], ctx: RoundContext) -> None:
        weights = self.weights(replies)
        for name in self.model_names:
            self.models[name] = self.combine(
                torch.stack([reply.models[name] for reply in replies]), weights
            )

    def weights(self, replies: Sequence[Reply]) -> np.ndarray:
        sizes = np.array([reply.num_samples for reply in replies], dtype=np.float64)
        return sizes / sizes.sum()

    def combine(self, matrix: Tensor, weights: np.ndarray) -> Tensor:
        return weighted_mean(matrix, weights)

    def after_round(self, fleet: ClientPool, ctx: RoundContext) -> None:
        """After aggregation; may ask clients."""

    def serving(self) -> Mapping[str, Tensor]:
        """The models that are tested."""
        return self.models

    def diagnosis(self, fleet: ClientPool) -> Diagnosis:
        """What the method believes about the noise. Reads the fleet, changes nothing."""
        return Diagnosis()

    # --- client -------------------------------------------------------------------------------------------------------------------------

    def local_update(self, client: Client, payload: Payload, ctx: RoundContext) -> Reply:
        nets = {name: client.network(vector) for name, vector in payload.models.items()}
        for net in nets.values():
            training.train(
                client,
                [net],
                lambda batch: self.batch_loss(net, batch, ctx),
                ctx,
                penalty=lambda batch: self.penalty(net, batch, ctx),
            )
        return client.reply({name: net.vector for name, net in nets.items()})

    def batch_loss(self, net: FlatModel, batch: Batch, ctx: RoundContext) -> Tensor:
        return cross_entropy(net(batch.x), batch.y)

    def penalty(self, net: FlatModel, batch: Batch, ctx: RoundContext) -> None:
        """Adds the gradient of weight-space terms to `net.grad`."""

    def predict(self, nets: Mapping[str, FlatModel], x: Tensor) -> Tensor:
        """Probabilities: the mean over the networks."""
        return torch.stack([net(x).softmax(1) for net in nets.values()]).mean(0)
