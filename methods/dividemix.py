"""DivideMix (Li et al., ICLR 2020) on every client, after rounds of FedAvg, with both networks averaged."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from methods.core import training
from methods.core.contract import Batch, Client, ClientPool, Diagnosis, Payload, Reply, RoundContext
from methods.core.flat_model import FlatModel
from methods.core.registry import register
from methods.toolkit import mixture, mixup
from methods.toolkit.losses import cross_entropy, one_hot, sharpen
from methods.toolkit.schedules import ramp
from methods.toolkit.warmup import WarmupMethod, WarmupParams

MIXTURE: dict[str, Any] = {
    "max_iter": 10,
    "tol": 1e-2,
    "reg_covar": 5e-4,
}  # as in the released code


@dataclass(frozen=True)
class DivideMixParams(WarmupParams):
    divide_epochs: int = (
        20  # local epochs of a visit after the warm-up; each begins with a new division
    )
    warmup_batch_size: int = 128  # batch of the warm-up; afterwards train.batch_size labelled and as many unlabelled samples
    lambda_u: float = 25.0  # lambda_u, weight of the unlabelled loss
    lambda_u_is_oracle: bool = (
        False  # to be set when lambda_u is chosen by the true noise level, as in FedCorr's tables
    )
    lambda_u_ramp: float = (
        0.2  # share of the rounds after the warm-up in which lambda_u grows from 0
    )
    threshold: float = 0.5  # tau, probability of being clean above which a sample keeps its label
    temperature: float = 0.5  # T, of sharpening
    mixup_alpha: float = 4.0  # alpha, of mixup's Beta distribution

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, low in (
            ("divide_epochs", 1),
            ("warmup_batch_size", 1),
            ("lambda_u", 0),
            ("mixup_alpha", 0),
        ):
            if getattr(self, name) < low:
                raise ValueError(
                    f"method.{name}={getattr(self, name)} is not legal; legal: at least {low}"
                )
        for name in ("lambda_u_ramp", "threshold"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"method.{name}={getattr(self, name)} is not legal; legal: 0 to 1")
        if not self.temperature > 0:
            raise ValueError(f"method.temperature={self.temperature} is not legal; legal: above 0")


@register(family="sample selection", paper="Li et al., ICLR 2020; federated by FedCorr, CVPR 2022")
class DivideMix(WarmupMethod):
    """Two networks divide the samples for each other by loss; the doubtful ones lose their labels and are learnt by MixMatch.

    Deviations: the paper trains centrally; here two global networks are sent, trained and averaged. lambda_u grows over rounds instead of
    epochs and is constant within a visit. The learning rate has no step. A visit whose losses are all equal divides nothing; an epoch with
    fewer than two labelled samples is cross-entropy on the given labels; without unlabelled samples the labelled are mixed among
    themselves. FedCorr chooses lambda_u by the true noise level: then `lambda_u_is_oracle` marks the run. FedCorr asks for the paper's
    optimiser and, for all methods, for its own; the default is the paper's. Its own: train.lr=0.01 train.momentum=0.5
    train.weight_decay=0 train.batch_size=10 method.warmup_batch_size=10.
    """

    name = "dividemix"
    Params = DivideMixParams
    params: DivideMixParams
    model_names = ("a", "b")
    own_stage = "divide"
    client_state = (
        "which samples the first network held to be mislabelled last (for diagnosis only)"
    )

    # --- server -------------------------------------------------------------------------------------------------------------------------

    def oracle(self) -> str:
        return (
            f"lambda_u={self.params.lambda_u} is chosen by the true noise level"
            if self.params.lambda_u_is_oracle
            else ""
        )

    def diagnosis(self, fleet: ClientPool) -> Diagnosis:
        """Held to be mislabelled: the unlabelled part of the first network's division in the last epoch of a client's last visit."""
        states = {k: fleet.state(k) for k in range(fleet.num_clients)}
        return Diagnosis(
            noisy_samples={
                k: state["doubtful"].numpy() for k, state in states.items() if "doubtful" in state
            }
        )

    # --- client -------------------------------------------------------------------------------------------------------------------------

    def predict(self, nets: Mapping[str, FlatModel], x: Tensor) -> Tensor:
        """The paper adds the logits; their mean has the same arg max and is a calmer probability."""
        return torch.stack([net(x) for net in nets.values()]).mean(0).softmax(1)

    def local_update(self, client: Client, payload: Payload, ctx: RoundContext) -> Reply:
        nets = {name: client.network(vector) for name, vector in payload.models.items()}
        if ctx.stage == "warmup":
            for net in nets.values():
                training.train(
                    client,
                    [net],
                    self._plain_loss(net, ctx),
                    ctx,
                    batch_size=self.params.warmup_batch_size,
                )
        else:
            self._divide_and_mix(client, nets["a"], nets["b"], ctx)
        return client.reply({name: net.vector for name, net in nets.items()})

    def _plain_loss(self, net: FlatModel, ctx: RoundContext) -> Callable[[Batch], Tensor]:
        return lambda batch: self.batch_loss(net, batch, ctx)

    def _divide_and_mix(
        self, client: Client, a: FlatModel, b: FlatModel, ctx: RoundContext
    ) -> None:
        trainer = training.Trainer(client, [a, b], ctx)
        rng = ctx.rng("dividemix", client.id)
        for epoch in range(self.params.divide_epochs):
            clean_a, clean_b = divide(client, (a, b), rng)
            for net, other, clean in ((a, b, clean_b), (b, a, clean_a)):
                keeps = clean > self.params.threshold
                labelled, unlabelled = keeps.nonzero()[:, 0], (~keeps).nonzero()[:, 0]
                if len(labelled) < 2:
                    trainer.epoch(self._plain_loss(net, ctx), epoch, nets=[net])
                else:
                    loss = self._mix_loss(trainer, net, other, clean, unlabelled, rng, ctx)
                    trainer.epoch(loss, epoch, nets=[net], subset=labelled)
        client.state["doubtful"] = clean_a <= self.params.threshold

    def _mix_loss(
        self,
        trainer: training.Trainer,
        net: FlatModel,
        other: FlatModel,
        clean: Tensor,
        unlabelled: Tensor,
        rng: np.random.Generator,
        ctx: RoundContext,
    ) -> Callable[[Batch], Tensor]:
        params, client = self.params, trainer.client
        weight = params.lambda_u * self.unlabelled_ramp(ctx)
        partners = endless(trainer, unlabelled) if len(unlabelled) else None

        def two_views(batch: Batch) -> tuple[Tensor, ...]:
            return batch.x, client.images(batch.index, "train", trainer.augment)

        @torch.no_grad()
        def guess(views: tuple[Tensor, ...], *networks: FlatModel) -> Tensor:
            return torch.stack([network(x).softmax(1) for network in networks for x in views]).mean(
                0
            )

        def batch_loss(batch: Batch) -> Tensor:
            x, u = two_views(batch), two_views(next(partners)) if partners is not None else ()
            guessed = [sharpen(guess(u, net, other), params.temperature)] * 2 if u else []
            trust = clean[batch.index, None]
            refined = sharpen(
                trust * one_hot(batch.y, client.num_classes) + (1 - trust) * guess(x, net),
                params.temperature,
            )
            inputs, targets = torch.cat([*x, *u]), torch.cat([refined, refined, *guessed])
            share = mixup.sample_lambda(params.mixup_alpha, rng)
            mixed, target = mixup.mix(
                inputs,
                targets,
                max(share, 1 - share),
                torch.from_numpy(rng.permutation(len(inputs))),
            )
            return mixmatch_loss(net(mixed), target, 2 * len(batch.y), weight)

        return batch_loss

    def unlabelled_ramp(self, ctx: RoundContext) -> float:
        warmup = self.num_warmup(ctx.spec)
        return ramp(
            ctx.round - warmup,
            round(self.params.lambda_u_ramp * (self.num_rounds(ctx.spec) - warmup)),
        )


def divide(client: Client, nets: tuple[FlatModel, ...], rng: np.random.Generator) -> list[Tensor]:
    """For each network, the probability of every sample to be of the component with the smaller cross-entropy, (n,)."""
    for net in nets:
        net.eval()
    logits = training.map_client_samples(client, nets)
    return [
        clean_probability(
            cross_entropy(z, client.labels, reduction="none"), int(rng.integers(2**31))
        )
        for z in logits
    ]


def clean_probability(losses: Tensor, seed: int) -> Tensor:
    """Losses brought to [0, 1], then a mixture of two Gaussians. Equal losses are all clean."""
    lowest, spread = losses.min(), losses.max() - losses.min()
    if (
        not 0 < spread < torch.inf
    ):  # a network that has diverged is found out by whoever receives it
        return torch.ones_like(losses)
    scaled = ((losses - lowest) / spread).numpy()
    return torch.from_numpy(mixture.split_by_gmm(scaled, seed, **MIXTURE).posterior_low).to(
        losses.dtype
    )


def endless(trainer: training.Trainer, subset: Tensor) -> Iterator[Batch]:
    """Shuffled batches of a subset, begun anew when it is exhausted."""
    while True:
        yield from trainer.batches(subset=subset)


def mixmatch_loss(logits: Tensor, targets: Tensor, num_labelled: int, weight: float) -> Tensor:
    """Cross-entropy of the labelled rows, which come first, squared error of the others, and divergence of the mean prediction from uniform."""
    probabilities = logits.softmax(1)
    loss = cross_entropy(logits[:num_labelled], targets[:num_labelled])
    if num_labelled < len(logits):
        loss = (
            loss + weight * (probabilities[num_labelled:] - targets[num_labelled:]).square().mean()
        )
    return loss + uniform_penalty(probabilities.mean(0))


def uniform_penalty(mean: Tensor) -> Tensor:
    """KL(uniform || mean prediction): keeps a network from giving all samples to one class."""
    return -mean.clamp_min(1e-12).log().mean() - np.log(len(mean))
