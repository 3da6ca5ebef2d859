"""Joint optimisation (Tanaka et al., CVPR 2018) on every client, after rounds of FedAvg."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from methods.core import training
from methods.core.contract import Batch, Client, ClientPool, Payload, Reply, RoundContext, TaskSpec
from methods.core.flat_model import FlatModel
from methods.core.registry import register
from methods.toolkit.losses import cross_entropy, entropy
from methods.toolkit.warmup import WarmupMethod, WarmupParams


@dataclass(frozen=True)
class JointOptParams(WarmupParams):
    joint_epochs: int = 20  # local epochs of a visit after the warm-up
    alpha: float = 1.2  # alpha, weight of L_p: the mean prediction shall follow the prior
    beta: float = 0.8  # beta, weight of L_e: predictions shall be decided
    buffer: int = 10  # epochs whose predictions are averaged to a label
    start_after: int = 10  # predictions that a sample needs before its label is replaced
    labels: str = "soft"  # soft: the averaged prediction; hard: its largest class
    prior: str = "uniform"  # uniform: all classes alike; local: the client's histogram of given labels, one added to each class
    retrain_share: float = 0.0  # share of the rounds, at the end, in which a new network learns the final labels (the paper's second step)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, low in (
            ("joint_epochs", 1),
            ("alpha", 0),
            ("beta", 0),
            ("buffer", 1),
            ("start_after", 1),
        ):
            if getattr(self, name) < low:
                raise ValueError(
                    f"method.{name}={getattr(self, name)} is not legal; legal: at least {low}"
                )
        for name, legal in (("labels", ("soft", "hard")), ("prior", ("uniform", "local"))):
            if getattr(self, name) not in legal:
                raise ValueError(
                    f"method.{name}={getattr(self, name)!r} is not legal; legal: {', '.join(legal)}"
                )
        if not 0 <= self.retrain_share <= 1 - self.warmup_share:
            raise ValueError(
                f"method.retrain_share={self.retrain_share} is not legal; legal: 0 to 1 - method.warmup_share={1 - self.warmup_share:g}"
            )


@register(
    family="label correction", paper="Tanaka et al., CVPR 2018; federated by FedCorr, CVPR 2022"
)
class JointOpt(WarmupMethod):
    """Labels become the mean of a client's last predictions, learnt together with the network.

    Deviations: the paper trains centrally, epochs 1 to 70 on the given labels; here a label is replaced as soon as its sample has `start_after`
    predictions, and labels and predictions stay with the client between visits (FedCorr does not say). Where a buffer is not full, the
    mean is over what is there. The paper's second step, a new network on the final labels (cross-entropy, learning rate divided by 10
    after each third), is not mentioned by FedCorr and off: `retrain_share`. The mean prediction of L_p is that of a mini-batch, as in the
    paper, although with FedCorr's batches of 10 it cannot come near a uniform prior.
    """

    name = "jointopt"
    Params = JointOptParams
    params: JointOptParams
    own_stage = "joint"
    client_state = "its labels and its last predictions for every sample"
    fedavg_equivalent_params: ClassVar = {"budget_share": 1.0, "warmup_share": 1.0}

    # --- server -------------------------------------------------------------------------------------------------------------------------

    def stage(self, round: int) -> str | None:
        stage = super().stage(round)
        return (
            "retrain" if stage is not None and round >= self.first_retraining(self.spec) else stage
        )

    def first_retraining(self, spec: TaskSpec) -> int:
        rounds = self.num_rounds(spec)
        return rounds - int(self.params.retrain_share * rounds + 1e-9)

    def before_round(self, fleet: ClientPool, ids: Sequence[int], ctx: RoundContext) -> None:
        if ctx.stage == "retrain" and ctx.round == self.first_retraining(self.spec):
            self.models = {"model": fleet.initial_weights(1)}

    # --- client -------------------------------------------------------------------------------------------------------------------------

    def local_update(self, client: Client, payload: Payload, ctx: RoundContext) -> Reply:
        if ctx.stage == "warmup":
            return super().local_update(client, payload, ctx)
        net = client.network(payload.models["model"])
        if ctx.stage == "retrain":
            first, rounds = self.first_retraining(ctx.spec), self.num_rounds(ctx.spec)
            third = 3 * (ctx.round - first) // (rounds - first)
            lr = ctx.train.lr * 0.1**third
            training.train(
                client,
                [net],
                lambda batch: self.batch_loss(net, batch, ctx),
                ctx,
                lr=lr,
                local_epochs=self.params.joint_epochs,
            )
        else:
            self._learn_labels_too(client, net, ctx)
        return client.reply({"model": net.vector})

    def _learn_labels_too(self, client: Client, net: FlatModel, ctx: RoundContext) -> None:
        params = self.params
        prior = class_prior(client.given, client.num_classes, params.prior)
        count = client.state.get("count", 0)
        # A copy: what the client holds changes only when the visit is complete.
        predictions = (
            client.state["predictions"].clone()
            if count
            else torch.zeros(params.buffer, client.num_samples, client.num_classes)
        )

        def batch_loss(batch: Batch) -> Tensor:
            logits = net(batch.x)
            predictions[count % params.buffer, batch.index] = logits.detach().softmax(1)
            return joint_loss(logits, batch.y, prior, params.alpha, params.beta)

        def after_epoch(epoch: int) -> None:
            nonlocal count
            count += 1
            if count >= params.start_after:
                mean = predictions[:count].mean(0)
                client.labels = mean if params.labels == "soft" else mean.argmax(1)

        training.train(
            client,
            [net],
            batch_loss,
            ctx,
            after_epoch=after_epoch,
            local_epochs=params.joint_epochs,
        )
        client.state.update(count=count, predictions=predictions)


def class_prior(labels: Tensor, num_classes: int, kind: str) -> Tensor:
    counts = (
        torch.bincount(labels, minlength=num_classes) + 1
        if kind == "local"
        else torch.ones(num_classes)
    )
    return counts / counts.sum()


def joint_loss(logits: Tensor, labels: Tensor, prior: Tensor, alpha: float, beta: float) -> Tensor:
    """L_c + alpha L_p + beta L_e: cross-entropy with the labels, of the prior with the batch's mean prediction, and mean entropy.

    The paper writes L_c and L_p as divergences; the difference does not depend on the network.
    """
    probabilities = logits.softmax(1)
    follow_prior = -(prior * probabilities.mean(0).clamp_min(1e-12).log()).sum()
    return (
        cross_entropy(logits, labels) + alpha * follow_prior + beta * entropy(probabilities).mean()
    )
