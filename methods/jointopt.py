"""JointOpt (Tanaka et al., CVPR 2018), run locally on every client after FedAvg warm-up rounds."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from pydantic import model_validator
from torch import Tensor

from methods.core.contract import ClientPool
from methods.core.errors import invalid
from methods.core.flat_model import FlatModel
from methods.core.params import Fraction, NonNegative, PositiveInt, parameters
from methods.core.registry import register
from methods.core.task import Batch, LocalTask, Models, RoundContext, TaskSpec
from methods.toolkit.losses import cross_entropy, entropy
from methods.toolkit.warmup import WarmupMethod, WarmupParams


@parameters
class JointOptParams(WarmupParams):
    joint_epochs: PositiveInt = 20  # local epochs after the warm-up
    alpha: NonNegative = 1.2  # alpha, weight of L_p, which pulls the mean prediction to the prior
    beta: NonNegative = 0.8  # beta, weight of L_e, the entropy of the predictions
    buffer_epochs: PositiveInt = 10  # number of epochs whose predictions are averaged to a label
    min_predictions: PositiveInt = 10  # predictions of a sample before its label is replaced
    label_type: Literal["soft", "hard"] = "soft"  # mean prediction, or its most likely class
    prior: Literal["uniform", "local"] = "uniform"  # local: the client's given labels, counts + 1
    retrain_fraction: Fraction = 0.0  # fraction of rounds, at the end, of the paper's second step

    @model_validator(mode="after")
    def _validate_fractions(self) -> "JointOptParams":
        if self.retrain_fraction > (most := 1 - self.warmup_fraction):
            expected = f"at most 1 - method.warmup_fraction = {most:g}"
            raise invalid("method.retrain_fraction", self.retrain_fraction, expected)
        return self


@register(family="label correction", paper="Tanaka et al., CVPR 2018; federated by FedCorr, 2022")
class JointOpt(WarmupMethod):
    """Replaces labels by the mean of the last predictions while the model is trained.

    Stages:

    1. `warmup`: FedAvg on the given labels.
    2. `joint`: local training with L_c + alpha L_p + beta L_e. After each local epoch, a client
       replaces its labels by the mean of its last predictions.
    3. `retrain`: a new model is trained on the final labels with cross-entropy, off by default.

    Deviations:

    1. The paper trains centrally and keeps the given labels up to epoch 70. Here a label is
       replaced as soon as its sample has `min_predictions` predictions.
    2. Labels and predictions stay with the client between rounds. FedCorr does not specify this.
    3. If the buffer is not full, the mean is over the predictions that it has.
    4. FedCorr does not mention the paper's second step, a new model on the final labels with the
       learning rate divided by 10 after each third. It is off by default: see `retrain_fraction`.
    5. The mean prediction of L_p is that of a mini-batch, as in the paper. With FedCorr's batches
       of 10 it cannot come close to a uniform prior.
    """

    name = "jointopt"
    params: JointOptParams
    main_stage = "joint"
    client_state_doc = "labels and last predictions of every sample"
    fedavg_equivalent_params = {"budget_fraction": 1.0, "warmup_fraction": 1.0}

    def stage(self, round: int) -> str | None:
        is_retrain = self.first_retrain_round(self.spec) <= round < self.rounds
        return "retrain" if is_retrain else super().stage(round)

    def first_retrain_round(self, spec: TaskSpec) -> int:
        """The round in which the second step starts; the number of rounds if it is off."""
        rounds = self.num_rounds(spec)
        return rounds - int(self.params.retrain_fraction * rounds + 1e-9)

    def before_round(self, pool: ClientPool, ids: Sequence[int], ctx: RoundContext) -> None:
        if ctx.stage == "retrain" and ctx.round == self.first_retrain_round(self.spec):
            self.state.models = {"model": pool.initial_weights(1)}

    def start_local_update(self, models: Models, task: LocalTask) -> None:
        if task.ctx.stage != "joint":
            return
        client, local = task.client, task.local
        local.prior = class_prior(client.given_labels, client.num_classes, self.params.prior)
        local.count = client.state.get("count", 0)
        shape = self.params.buffer_epochs, client.num_samples, client.num_classes
        local.predictions = torch.zeros(shape, device=client.device)
        # A copy, so that the client state does not change before the local update is complete.
        if local.count:
            local.predictions.copy_(client.state["predictions"])

    def train_options(self, task: LocalTask) -> Mapping[str, Any]:
        ctx = task.ctx
        if ctx.stage == "warmup":
            return {}
        options: dict[str, Any] = {"local_epochs": self.params.joint_epochs}
        if ctx.stage == "retrain":
            first, rounds = self.first_retrain_round(ctx.spec), self.num_rounds(ctx.spec)
            options["lr"] = ctx.train.lr * 0.1 ** (3 * (ctx.round - first) // (rounds - first))
        return options

    def batch_loss(self, model: FlatModel, batch: Batch, task: LocalTask) -> Tensor:
        if task.ctx.stage != "joint":
            return super().batch_loss(model, batch, task)
        local, params = task.local, self.params
        logits = model(batch.x)
        local.logits.append(logits.detach())
        return jointopt_loss(logits, batch.y, local.prior, params.alpha, params.beta)

    def before_epoch(self, epoch: int, order: Tensor, task: LocalTask) -> None:
        task.local.order, task.local.logits = order, []

    def after_epoch(self, epoch: int, task: LocalTask) -> None:
        if task.ctx.stage != "joint":
            return
        local = task.local
        slot = local.predictions[local.count % self.params.buffer_epochs]
        slot[local.order] = torch.cat(local.logits).softmax(1)
        local.count += 1
        if local.count >= self.params.min_predictions:
            mean = local.predictions[: local.count].mean(0)
            task.client.labels = mean if self.params.label_type == "soft" else mean.argmax(1)

    def finish_local_update(self, models: Models, task: LocalTask) -> None:
        if task.ctx.stage == "joint":
            task.client.state.update(count=task.local.count, predictions=task.local.predictions)


def class_prior(labels: Tensor, num_classes: int, kind: str) -> Tensor:
    """Class distribution: uniform, or the smoothed frequencies of the labels."""
    uniform = torch.ones(num_classes, device=labels.device)
    counts = torch.bincount(labels, minlength=num_classes) + 1 if kind == "local" else uniform
    return counts / counts.sum()


def jointopt_loss(z: Tensor, labels: Tensor, prior: Tensor, alpha: float, beta: float) -> Tensor:
    """L_c + alpha L_p + beta L_e of logits z.

    L_c is the cross-entropy with the labels, L_p that of the prior with the batch's mean
    prediction, L_e the mean entropy. The paper's L_c and L_p differ by constants (divergences).
    """
    probabilities = z.softmax(1)
    prior_loss = -(prior * probabilities.mean(0).clamp_min(1e-12).log()).sum()
    return cross_entropy(z, labels) + alpha * prior_loss + beta * entropy(probabilities).mean()
