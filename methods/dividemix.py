"""DivideMix (Li et al., ICLR 2020), run locally on every client after FedAvg warm-up rounds."""

import itertools
import math
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.random import Generator
from torch import Tensor

from methods.core import training
from methods.core.contract import ClientPool, Diagnosis
from methods.core.flat_model import FlatModel
from methods.core.params import Fraction, NonNegative, Positive, PositiveInt, parameters
from methods.core.registry import register
from methods.core.task import Batch, Client, LocalTask, Models, Reply, RoundContext
from methods.core.training import ModelList, Trainer
from methods.fedavg import client_arrays
from methods.toolkit import mixture, mixup
from methods.toolkit.losses import cross_entropy, entropy, one_hot, sharpen
from methods.toolkit.schedules import ramp
from methods.toolkit.warmup import WarmupMethod, WarmupParams

# Arguments of scikit-learn's GaussianMixture, as in the official code.
GMM_KWARGS: dict[str, Any] = {"max_iter": 10, "tol": 1e-2, "reg_covar": 5e-4}


@parameters
class DivideMixParams(WarmupParams):
    divide_epochs: PositiveInt = 20  # local epochs after the warm-up; each starts with a division
    warmup_batch_size: PositiveInt | None = None  # of the warm-up; null: train.batch_size
    warmup_entropy: bool = False  # reward uncertain predictions in the warm-up
    lambda_u: NonNegative = 25.0  # lambda_u, weight of the unlabeled loss
    lambda_u_ramp_fraction: Fraction = 0.2  # ramp of lambda_u from 0, of the later rounds
    threshold: Fraction = 0.5  # tau, clean probability above which a sample keeps its label
    temperature: Positive = 0.5  # T, temperature of sharpening
    mixup_alpha: NonNegative = 4.0  # alpha of mixup's Beta distribution


@register(family="sample selection", paper="Li et al., ICLR 2020; federated by FedCorr, CVPR 2022")
class DivideMix(WarmupMethod):
    """Two models divide the samples for each other by loss and treat one part as unlabeled.

    Stages:

    1. `warmup`: FedAvg of both models.
    2. `divide`: before each local epoch, each model splits the samples by a two-Gaussian mixture of
       their losses. The other model is trained on that division with MixMatch. Samples that are
       predicted mislabeled lose their label.

    Deviations:

    1. The paper trains centrally. Here two global models are sent, trained and averaged.
    2. lambda_u ramps up over rounds, not epochs, and is constant within a local update.
    3. The learning rate has no step.
    4. If all losses of a client are equal, all its samples keep their labels.
    5. An epoch with fewer than two labeled samples is cross-entropy on the given labels.
    6. Without unlabeled samples, the labeled samples are mixed with each other.
    7. FedCorr chooses lambda_u by the true noise level. Its published cells are marked as oracle.
    8. FedCorr states the optimizer of the DivideMix paper and, for all methods, its own. The
       default is that of the DivideMix paper. FedCorr's own: train.lr=0.01 train.momentum=0.5
       train.weight_decay=0 train.batch_size=10 method.warmup_batch_size=null.
    9. For pairwise (asymmetric) noise, the paper subtracts the mean entropy of the predictions from
       the loss of the warm-up. `warmup_entropy` does so. It is off by default, because the kind of
       noise is not known; set for a known kind, it belongs into `oracle=[method.warmup_entropy]`.
    """

    name = "dividemix"
    params: DivideMixParams
    model_names = ("a", "b")
    main_stage = "divide"
    client_state_doc = "samples that the first model predicted as mislabeled (for diagnosis only)"

    def diagnose(self, pool: ClientPool) -> Diagnosis:
        """Predicted mislabeled: unlabeled in the first model's last division of a client."""
        return Diagnosis(noisy_samples=client_arrays(pool, "doubtful"))

    def predict(self, models: Models, x: Tensor) -> Tensor:
        """Average the logits: same argmax as the paper's sum, less extreme probabilities."""
        return torch.stack([model(x) for model in models.values()]).mean(0).softmax(1)

    def local_update(self, task: LocalTask) -> Reply:
        models = task.load_models()
        if task.ctx.stage == "warmup":
            size = self.params.warmup_batch_size or task.ctx.train.batch_size
            for model in models.values():
                loss = partial(self.batch_loss, model, task=task)
                training.train(task, [model], loss, batch_size=size)
        else:
            self._divide_and_train(models["a"], models["b"], task)
        return task.client.reply({name: model.vector for name, model in models.items()})

    def _divide_and_train(self, a: FlatModel, b: FlatModel, task: LocalTask) -> None:
        client, trainer, rng = task.client, Trainer(task, [a, b]), task.rng("dividemix")
        for _ in range(self.params.divide_epochs):
            clean_a, clean_b = clean_probabilities(client, (a, b), rng)
            first, second = (self._divide(clean, trainer, rng) for clean in (clean_b, clean_a))
            uploaded = client.upload(first.clean, first.mixing, second.clean, second.mixing)
            first = first._replace(clean=uploaded[0], mixing=uploaded[1])
            second = second._replace(clean=uploaded[2], mixing=uploaded[3])
            for models, division in (((a, b), first), ((b, a), second)):
                if len(division.labeled) < 2:
                    batches: Iterable[Batch] = trainer.epochs([None])[0].batches
                    loss: training.LossFunction = partial(self.batch_loss, models[0], task=task)
                else:
                    batches, loss = self._mixmatch_epoch(trainer, models, division, task.ctx)
                trainer.fit(batches, loss, models[:1])
        client.state["doubtful"] = clean_a <= self.params.threshold

    def _divide(self, clean: Tensor, trainer: Trainer, rng: Generator) -> "Division":
        size, threshold = trainer.train_params.batch_size, self.params.threshold
        labeled, unlabeled = (m.nonzero()[:, 0] for m in (clean > threshold, clean <= threshold))
        partners = itertools.cycle(mixup.batch_sizes(len(unlabeled), size) or [0])
        sizes = mixup.batch_sizes(len(labeled), size) if len(labeled) >= 2 else []
        rows = [2 * (size + next(partners)) for size in sizes]
        alpha = self.params.mixup_alpha
        drawn = [(mixup.sample_lambda(alpha, rng), rng.permutation(count)) for count in rows]
        mixing = np.concatenate([np.empty(0, np.int64), *(order for _, order in drawn)])
        lams = [max(lam, 1 - lam) for lam, _ in drawn]
        return Division(clean, labeled, unlabeled, lams, rows, torch.from_numpy(mixing))

    def batch_loss(self, model: FlatModel, batch: Batch, task: LocalTask) -> Tensor:
        if task.ctx.stage == "warmup" and self.params.warmup_entropy:
            return confidence_penalty_loss(model(batch.x), batch.y)
        return super().batch_loss(model, batch, task)

    def _mixmatch_epoch(
        self, trainer: Trainer, models: ModelList, division: "Division", ctx: RoundContext
    ) -> tuple[Iterable[Batch], training.LossFunction]:
        """Labeled batches and the loss of the first model. The second helps to guess labels."""
        client, temperature, num_steps = trainer.client, self.params.temperature, len(division.rows)
        weight = self.params.lambda_u * self.unlabeled_ramp(ctx)
        num_batches = -(-len(division.unlabeled) // trainer.train_params.batch_size)
        passes = -(-num_steps // num_batches) if num_batches else 0
        subsets = [division.labeled, *[division.unlabeled] * passes]
        (order, batches), *others = trainer.epochs(subsets, second_view=("train", trainer.augment))
        partners = itertools.chain.from_iterable(epoch.batches for epoch in others)
        trust = division.clean[order, None]
        kept = trust * one_hot(client.labels, client.num_classes)[order]
        mixing = division.mixing.split(division.rows)

        def batch_loss(batch: Batch) -> Tensor:
            partner = next(partners, None)
            x, u = batch.both_views(), () if partner is None else partner.both_views()
            guessed = [sharpen(mean_prediction(u, *models), temperature)] * 2 if u else []
            predicted = mean_prediction(x, models[0])
            mean = kept[batch.rows] + (1 - trust[batch.rows]) * predicted
            refined = sharpen(mean, temperature)
            inputs, targets = torch.cat([*x, *u]), torch.cat([refined, refined, *guessed])
            lam, rows = division.lams[batch.step], mixing[batch.step]
            mixed, target = (mixup.mix(values, lam, rows) for values in (inputs, targets))
            return mixmatch_loss(models[0](mixed), target, 2 * len(batch.y), weight)

        return batches, batch_loss

    def unlabeled_ramp(self, ctx: RoundContext) -> float:
        """Factor of lambda_u in this round, from 0 to 1."""
        warmup = self.num_warmup_rounds(ctx.spec)
        rounds = self.num_rounds(ctx.spec) - warmup
        return ramp(ctx.round - warmup, round(self.params.lambda_u_ramp_fraction * rounds))


class Division(NamedTuple):
    """Division of a client's samples for one model, and the random numbers of its mixup."""

    clean: Tensor  # (n,) probability of every sample to be clean
    labeled: Tensor  # positions of the samples that keep their label
    unlabeled: Tensor  # positions of the others
    lams: list[float]  # mixup weight of each step
    rows: list[int]  # number of images that each step mixes
    mixing: Tensor  # permutation of these images, of all steps


def clean_probabilities(client: Client, models: ModelList, rng: Generator) -> list[Tensor]:
    """For each model, the probability of every sample to be clean, (n,), on the host."""
    logits = training.map_client_samples(client, [model.eval() for model in models])
    losses = [cross_entropy(z, client.labels, reduction="none") for z in logits]
    host = torch.stack(losses).cpu()
    return [clean_probability(values, int(rng.integers(2**31))) for values in host]


def clean_probability(losses: Tensor, seed: int) -> Tensor:
    """Posterior of the lower component of a two-Gaussian mixture of losses, scaled to [0, 1].

    If all losses are equal or one is not finite, all samples count as clean.
    """
    lowest, spread = losses.min(), losses.max() - losses.min()
    if not 0 < spread < torch.inf:
        return torch.ones_like(losses)
    split = mixture.split_by_gmm(((losses - lowest) / spread).numpy(), seed, **GMM_KWARGS)
    return torch.from_numpy(split.posterior_low).to(losses.dtype)


@torch.no_grad()
def mean_prediction(views: Sequence[Tensor], *models: FlatModel) -> Tensor:
    """Mean of the class probabilities over models and views."""
    return torch.stack([model(x).softmax(1) for model in models for x in views]).mean(0)


def mixmatch_loss(logits: Tensor, targets: Tensor, num_labeled: int, weight: float) -> Tensor:
    """L_x + weight * L_u + L_reg.

    L_x is the cross-entropy of the first `num_labeled` rows, L_u the squared error of the others,
    L_reg the divergence of the mean prediction from uniform.
    """
    probabilities = logits.softmax(1)
    loss = cross_entropy(logits[:num_labeled], targets[:num_labeled])
    if num_labeled < len(logits):
        errors = probabilities[num_labeled:] - targets[num_labeled:]
        loss = loss + weight * errors.square().mean()
    return loss + uniform_penalty(probabilities.mean(0))


def confidence_penalty_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy minus the mean entropy of the predictions, which opposes confidence."""
    return cross_entropy(logits, labels) - entropy(logits.softmax(1)).mean()


def uniform_penalty(mean: Tensor) -> Tensor:
    """KL(uniform || mean prediction). Prevents the prediction of one class for all samples."""
    return -mean.clamp_min(1e-12).log().mean() - math.log(len(mean))
