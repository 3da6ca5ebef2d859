"""LSG: Local Self-Guiding (Bai et al., CCGrid 2023)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from methods.core import training
from methods.core.contract import Batch, Client, ClientPool, Diagnosis, Payload, Reply, RoundContext
from methods.core.registry import register
from methods.fedavg import FedAvg
from methods.toolkit.losses import (
    cross_entropy,
    js_terms,
    kl_terms,
    softmax_twice_loss,
    tempered_softmax,
)
from methods.toolkit.schedules import ramp, rounds_from_fraction

CHOICES = {
    "supervised_form": ("softmax_twice", "literal"),
    "distillation": ("kl", "js", "none"),
    "kl_reduction": ("mean", "batchmean", "linear"),
}


@dataclass(frozen=True)
class LSGParams:
    sharpening: bool = True  # false: plain cross-entropy, Table V's "without sharpening"
    supervised_form: str = (
        "softmax_twice"  # Eq. 5. softmax_twice: -log softmax(p_s)[y]; literal: -log p_s[y]
    )
    sharpen_temperature: float = 0.5  # T_s
    sharpen_after_warmup: bool = (
        False  # plain cross-entropy until t_wu (Section V-A: ImageNet-100, Clothing1M)
    )
    distillation: str = "kl"  # kl | js | none, Table VI
    kl_reduction: str = "mean"  # mean: over samples and classes; batchmean: over samples; linear: the released code's, see Deviations
    backprop_distillation: bool = (
        True  # false: the ensemble is kept but trains nothing, as in the released code
    )
    temperature: float = 1 / 3  # T
    ema_alpha: float = 0.9  # alpha, memory of the ensemble logits
    lambda_: float = 1.0  # lambda, weight of the distillation
    warmup_rounds: float = 0.2  # t_wu, as a share of all rounds

    def __post_init__(self) -> None:
        for name, legal in CHOICES.items():
            if getattr(self, name) not in legal:
                raise ValueError(
                    f"method.{name}={getattr(self, name)!r} is not legal; legal: {', '.join(legal)}"
                )
        if self.distillation == "js" and self.kl_reduction == "linear":
            raise ValueError(
                "method.kl_reduction='linear' is not legal with method.distillation=js; legal: mean, batchmean"
            )
        for name in ("sharpen_temperature", "temperature"):
            if not getattr(self, name) > 0:
                raise ValueError(
                    f"method.{name}={getattr(self, name)} is not legal; legal: above 0"
                )
        if not 0 <= self.ema_alpha < 1:
            raise ValueError(
                f"method.ema_alpha={self.ema_alpha} is not legal; legal: 0 or more, below 1"
            )
        if self.lambda_ < 0:
            raise ValueError(f"method.lambda_={self.lambda_} is not legal; legal: at least 0")
        if not 0 <= self.warmup_rounds <= 1:
            raise ValueError(
                f"method.warmup_rounds={self.warmup_rounds} is not legal; legal: 0 to 1, a share of the rounds"
            )


@register(family="robust loss", paper="Bai et al., CCGrid 2023")
class LSG(FedAvg):
    """Each client sharpens its predictions and distils from a moving average of its own past logits.

    Deviations: (1) Eq. 5 read literally is cross-entropy on doubled logits, which fits wrong labels harder than FedAvg does; the released code
    feeds the sharpened probabilities to a cross-entropy that applies softmax again. The default is the code's form, the only one that can
    give Tables I, V and VI; `supervised_form=literal` is the other. (2) The released code computes the distillation and never back-propagates
    it, which is Table VI's "without" column; the default follows Eq. 8, `backprop_distillation=false` the code. (3) The released code hands
    probabilities to a KL that wants their logarithms; the default is the proper KL of Eq. 7, averaged over samples and classes as the code does;
    `kl_reduction=batchmean` averages over samples only, `linear` is the code's sum of p_T (log p_T - q). (4) The ensemble takes the logits of the
    training pass (dropout on, before the step), as the code does; the paper says "at the current epoch". (5) The ensemble belongs to a
    client, as in the paper; the code keeps one for all clients, shared where clients hold the same image. (6) A client never seen before has a
    uniform teacher in its first epoch, as in both. (7) Where sharpening waits for the warm-up, plain cross-entropy is used until then, our
    reading. (8) lambda is 0.4 at moderate and 1.0 at extreme noise in the paper, a choice by the true noise: it is left to the experiment.
    """

    name = "lsg"
    Params = LSGParams
    params: LSGParams
    client_state = "ensemble logits of every sample, and the number of epochs done"
    fedavg_equivalent_params: ClassVar = {"sharpening": False, "distillation": "none"}

    def local_update(self, client: Client, payload: Payload, ctx: RoundContext) -> Reply:
        params = self.params
        net = client.network(payload.models["model"])
        keeps_ensemble = params.distillation != "none"
        epochs_before = client.state.get("epochs", 0)  # j_k
        # A copy: what lies in the state belongs to the visits before this one.
        ensemble = (
            client.state["ensemble"].clone()
            if epochs_before
            else torch.zeros(client.num_samples, client.num_classes)
        )
        weight = self.distillation_weight(ctx) if params.backprop_distillation else 0.0

        def batch_loss(batch: Batch) -> Tensor:
            logits = net(batch.x)
            loss = self.supervised(logits, batch.y, ctx)
            if keeps_ensemble:
                rows = ensemble[batch.index]
                if weight:
                    loss = loss + weight * self.divergence(
                        logits, bias_corrected(rows, params.ema_alpha, epochs_before + batch.epoch)
                    )
                # A sample comes once per epoch, so writing its row now equals Eq. 9 at the end of the epoch.
                ensemble[batch.index] = (
                    params.ema_alpha * rows + (1 - params.ema_alpha) * logits.detach()
                )
            return loss

        training.train(client, [net], batch_loss, ctx)
        if keeps_ensemble:
            client.state["ensemble"] = ensemble
            client.state["epochs"] = epochs_before + ctx.train.local_epochs
        return client.reply({"model": net.vector})

    def distillation_weight(self, ctx: RoundContext) -> float:
        """Section IV-B2: from 0 in the first round to lambda in round t_wu."""
        return self.params.lambda_ * ramp(
            ctx.round, rounds_from_fraction(self.params.warmup_rounds, ctx.spec)
        )

    def supervised(self, logits: Tensor, labels: Tensor, ctx: RoundContext) -> Tensor:
        """Eq. 4 and 5. Sharpening a softmax with T_s is softmax(z / T_s)."""
        params = self.params
        waits = params.sharpen_after_warmup and ctx.round < rounds_from_fraction(
            params.warmup_rounds, ctx.spec
        )
        if waits or not params.sharpening:
            return cross_entropy(logits, labels)
        sharper = logits / params.sharpen_temperature
        return (
            cross_entropy(sharper, labels)
            if params.supervised_form == "literal"
            else softmax_twice_loss(sharper.softmax(1), labels)
        )

    def divergence(self, logits: Tensor, teacher_logits: Tensor) -> Tensor:
        """Eq. 6 and 7; no gradient reaches the teacher."""
        params = self.params
        student, teacher = (
            tempered_softmax(logits, params.temperature),
            tempered_softmax(teacher_logits, params.temperature),
        )
        if params.kl_reduction == "linear":
            return (teacher * (teacher.log() - student)).mean()
        terms = (
            js_terms(teacher, student)
            if params.distillation == "js"
            else kl_terms(teacher, student)
        )
        return terms.mean() if params.kl_reduction == "mean" else terms.sum(1).mean()

    def diagnosis(self, fleet: ClientPool) -> Diagnosis:
        """The labels that the ensembles of the clients seen so far imply; a given label that differs is held to be wrong."""
        labels, noisy = {}, {}
        for k in range(fleet.num_clients):
            if "ensemble" in (state := fleet.state(k)):
                labels[k] = np.asarray(state["ensemble"].argmax(1))
                noisy[k] = labels[k] != fleet.labels(k).numpy()
        return Diagnosis(noisy_samples=noisy, labels=labels)


def bias_corrected(ensemble: Tensor, alpha: float, epochs: int) -> Tensor:
    """An average that started from 0, divided by the weight it has gathered; before the first epoch it stays 0."""
    return ensemble / (1 - alpha**epochs) if epochs else ensemble
