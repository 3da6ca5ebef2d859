"""FedAvg (McMahan et al., AISTATS 2017) and with it the default of every hook."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from methods.core import training
from methods.core.contract import ClientPool, Method, ServerState
from methods.core.errors import invalid
from methods.core.flat_model import FlatModel
from methods.core.registry import register
from methods.core.task import Batch, LocalTask, Models, Payload, Reply, RoundContext, TaskSpec
from methods.toolkit.aggregation import weighted_mean
from methods.toolkit.losses import cross_entropy


@register(family="baseline", paper="McMahan et al., AISTATS 2017", static_step=True)
class FedAvg(Method):
    """Sample-weighted averaging of locally trained models.

    Deviations:

    1. Batch-norm statistics are averaged with the weights, as in the official code of FedCorr.
    """

    name = "fedavg"

    # Server side

    def validate(self, spec: TaskSpec) -> None:
        if spec.participations < spec.clients_per_round:
            least = f"at least one round (federation.clients_per_round={spec.clients_per_round})"
            raise invalid("budget.participations", spec.participations, least)

    def setup(self, spec: TaskSpec, pool: ClientPool, ctx: RoundContext) -> None:
        self.spec = spec
        self.rounds = spec.participations // spec.clients_per_round
        self.planned_participations = self.rounds * spec.clients_per_round
        self.state = self.initial_state(pool, ctx)

    def initial_state(self, pool: ClientPool, ctx: RoundContext) -> ServerState:
        names = enumerate(self.model_names)
        return ServerState({name: pool.initial_weights(i) for i, name in names})

    def stage(self, round: int) -> str | None:
        return "train" if round < self.rounds else None

    def select_clients(self, pool: ClientPool, ctx: RoundContext) -> Sequence[int]:
        return sample_cohort(pool.num_clients, self.spec.clients_per_round, ctx)

    def payload(self, client_id: int, ctx: RoundContext) -> Payload:
        return Payload(self.state.models, self.state.shared)

    def aggregate(self, replies: Sequence[Reply], ctx: RoundContext) -> None:
        weights = self.aggregation_weights(replies)
        for name in self.state.models:
            matrix = torch.stack([reply.models[name] for reply in replies])
            self.state.models[name] = self.aggregate_models(matrix, weights)

    def aggregation_weights(self, replies: Sequence[Reply]) -> np.ndarray:
        sizes = np.array([reply.num_samples for reply in replies], dtype=np.float64)
        return np.asarray(sizes / sizes.sum())

    def aggregate_models(self, matrix: Tensor, weights: np.ndarray) -> Tensor:
        return weighted_mean(matrix, weights)

    def eval_models(self) -> Mapping[str, Tensor]:
        return self.state.models

    # Client side

    def local_update(self, task: LocalTask) -> Reply:
        models = task.load_models()
        self.start_local_update(models, task)

        def penalty(batch: Batch) -> None:
            for model in models.values():
                self.add_penalty_grad(model, batch, task)

        training.train(
            task,
            list(models.values()),
            lambda batch: self.joint_loss(models, batch, task),
            penalty=penalty,
            before_epoch=lambda epoch, order: self.before_epoch(epoch, order, task),
            after_epoch=lambda epoch: self.after_epoch(epoch, task),
            **self.train_options(task),
        )
        values = self.finish_local_update(models, task) or {}
        return task.client.reply({name: model.vector for name, model in models.items()}, **values)

    def joint_loss(self, models: Models, batch: Batch, task: LocalTask) -> Tensor:
        losses = [self.batch_loss(model, batch, task) for model in models.values()]
        return losses[0] if len(losses) == 1 else torch.stack(losses).sum()

    def batch_loss(self, model: FlatModel, batch: Batch, task: LocalTask) -> Tensor:
        return cross_entropy(model(batch.x), batch.y)

    def predict(self, models: Models, x: Tensor) -> Tensor:
        """The mean of the models' probabilities."""
        return torch.stack([model(x).softmax(1) for model in models.values()]).mean(0)


def sample_cohort(candidates: int | np.ndarray, size: int, ctx: RoundContext) -> list[int]:
    """Sample clients without replacement from the given ones, or from the first `candidates`."""
    cohort = ctx.rng("select").choice(candidates, size=size, replace=False)
    return [int(k) for k in np.sort(cohort)]


def client_arrays(pool: ClientPool, key: str) -> dict[int, np.ndarray]:
    """The tensor `key` of each client state that has it, by client. For `diagnose`."""
    states = {k: pool.state(k) for k in range(pool.num_clients)}
    return {k: np.asarray(state[key]) for k, state in states.items() if key in state}
