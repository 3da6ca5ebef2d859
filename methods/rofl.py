"""RoFL: robust federated learning with noisy labels (Yang et al., IEEE Intell. Syst. 2022)."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from methods.core import training
from methods.core.contract import ClientPool, Diagnosis, ServerState
from methods.core.flat_model import FlatModel
from methods.core.params import Fraction, NonNegative, ProperFraction, parameters
from methods.core.registry import register
from methods.core.task import Batch, LocalTask, Models, Reply, RoundContext
from methods.coteaching import smallest_loss_indices
from methods.fedavg import FedAvg, client_arrays
from methods.toolkit.aggregation import uniform_weights
from methods.toolkit.losses import cross_entropy, entropy, one_hot
from methods.toolkit.schedules import forget_rate, ramp, rounds_from_fraction


@parameters
class RoFLParams:
    forget_rate: ProperFraction = 0.2  # tau, final fraction dropped per batch
    ramp_fraction: Fraction = 0.1  # T_k, ramp of the rate from 0 to tau, of all rounds
    pseudo_label_start_fraction: Fraction = 0.1  # T_pl, rounds before pseudo-labels
    lambda_cen: NonNegative = 1.0  # lambda_cen, weight of the centroid term; unused if detach
    lambda_e: NonNegative = 0.8  # lambda_e, weight of the entropy term
    detach: bool = True  # true: the centroid term has no gradient, see deviation 2
    pseudo_label_view: Literal["train", "plain"] = "train"  # images for pseudo-labels; code: train


@register(family="label correction", paper="Yang et al., IEEE Intelligent Systems 2022")
class RoFL(FedAvg):
    """Small-loss samples checked against class centroids that clients and server share.

    A client trains on the samples of a batch with the smallest losses. A sample is consistent if
    the centroid nearest to its feature is that of its label. From round T_pl on, an inconsistent
    sample gets the label that the received model predicts. Local centroids follow the features of
    each batch. The server averages the centroids, weighted by their cosine with the current ones.

    Deviations:

    1. The implementation follows the code that FedCorr's tables used, not the paper's text.
    2. That code detaches the features, so the centroid term has no gradient. `detach=false` gives
       it one, as a mean over the selected samples with fixed centroids. The sum in that code would
       grow with the batch size.
    3. That code starts from random global centroids, so the cosine weights of round 0 have mixed
       signs and a sum near 0. Here a class without a centroid takes the unweighted mean of the
       clients' centroids. A class whose weights cancel keeps its centroid.
    4. A local centroid starts from the class mean of the client's first batch with this class. With
       the rule of that code, a centroid of 0 would stay 0.
    5. At least one sample of each batch is selected.
    6. T_k and T_pl are fractions of all rounds.
    """

    name = "rofl"
    params: RoFLParams
    client_state_doc = "mask of the samples selected last, and their labels (for diagnosis only)"

    def initial_state(self, pool: ClientPool, ctx: RoundContext) -> ServerState:
        state = super().initial_state(pool, ctx)
        state.shared["centroids"] = torch.zeros(self.spec.num_classes, self.spec.feature_dim)
        return state

    def aggregate(self, replies: Sequence[Reply], ctx: RoundContext) -> None:
        super().aggregate(replies, ctx)
        local = torch.stack([reply.values["centroids"] for reply in replies])
        self.state.shared["centroids"] = aggregate_centroids(self.state.shared["centroids"], local)

    def aggregation_weights(self, replies: Sequence[Reply]) -> np.ndarray:
        return uniform_weights(len(replies))

    def diagnose(self, pool: ClientPool) -> Diagnosis:
        """Noisy: samples not selected in a client's last epoch. Labels: its targets."""
        noisy = {k: ~mask for k, mask in client_arrays(pool, "chosen").items()}
        return Diagnosis(noisy_samples=noisy, labels=client_arrays(pool, "targets"))

    def start_local_update(self, models: Models, task: LocalTask) -> None:
        params, client, ctx, local = self.params, task.client, task.ctx, task.local
        start = rounds_from_fraction(params.pseudo_label_start_fraction, ctx.spec)
        length = rounds_from_fraction(params.ramp_fraction, ctx.spec)
        local.rate = forget_rate(ctx.round, length, params.forget_rate)
        local.pull = 0.0 if params.detach else params.lambda_cen * ramp(ctx.round, start)
        local.centroids = task.payload.shared["centroids"]
        local.pseudo_labels = client.labels
        local.members = one_hot(client.labels, client.num_classes)
        local.selected, local.targets = [], []  # positions and targets of the last epoch
        if ctx.round == 0 or ctx.round >= start:
            model, generator = models["model"].eval(), task.generator("pseudo_labels")
            view = params.pseudo_label_view
            (features,) = training.map_client_samples(client, [model.features], view, generator)
            if ctx.round == 0:
                local.centroids = class_means(features, local.members)
            if ctx.round >= start:
                local.pseudo_labels = model.head(features).argmax(1)

    def before_epoch(self, epoch: int, order: Tensor, task: LocalTask) -> None:
        local = task.local
        labels = task.client.labels[order], local.pseudo_labels[order]
        local.epoch_columns = torch.stack([*labels, order], 1)
        local.epoch_members = local.members[order]

    def batch_loss(self, model: FlatModel, batch: Batch, task: LocalTask) -> Tensor:
        local = task.local
        logits = model.head(features := model.features(batch.x))
        losses = cross_entropy(logits, batch.y, reduction="none")
        selected = smallest_loss_indices(losses, local.rate)
        of_batch = local.epoch_columns[batch.rows], local.epoch_members[batch.rows]
        columns, members, features, logits = (
            values.index_select(0, selected) for values in (*of_batch, features, logits)
        )
        labels, pseudo, positions = columns.unbind(1)
        consistent = nearest_class(local.centroids, features.detach()) == labels
        targets = torch.where(consistent, labels, pseudo)
        uncertainty = entropy(logits.softmax(1)).mean()
        loss = torch.add(cross_entropy(logits, targets), uncertainty, alpha=self.params.lambda_e)
        if local.pull:
            distances = (features - local.centroids[labels]).square().sum(1)
            loss = loss + local.pull * (consistent * distances).mean()
        if batch.epoch == task.ctx.train.local_epochs - 1:
            local.selected.append(positions)
            local.targets.append(targets)
        means = class_means(features.detach(), members)
        local.centroids = update_local_centroids(local.centroids, means)
        return loss

    def finish_local_update(self, models: Models, task: LocalTask) -> Mapping[str, Any]:
        client, selected = task.client, torch.cat(task.local.selected)
        targets = client.labels.index_copy(0, selected, torch.cat(task.local.targets))
        chosen = torch.zeros_like(targets, dtype=torch.bool).index_fill_(0, selected, True)
        client.state.update(chosen=chosen, targets=targets)
        return {"centroids": task.local.centroids}


def class_means(features: Tensor, members: Tensor) -> Tensor:
    """Mean feature of each class, (classes, d), given one-hot rows; 0 for an empty class."""
    return members.T @ features / members.sum(0).clamp_min(1)[:, None]


def nearest_class(centroids: Tensor, features: Tensor) -> Tensor:
    """For each feature, the class whose centroid has the largest cosine similarity."""
    return (F.normalize(features) @ F.normalize(centroids).T).argmax(1)


def update_local_centroids(centroids: Tensor, means: Tensor) -> Tensor:
    """f <- (1 - s^2) f + s^2 f_batch with s = cos(f, f_batch), for each class.

    Without samples in the batch a class keeps its centroid; without a centroid it takes f_batch.
    """
    weights = F.cosine_similarity(centroids, means).square()
    return centroids.lerp(means, torch.where(centroids.any(1), weights, 1.0)[:, None])


def aggregate_centroids(current: Tensor, local: Tensor) -> Tensor:
    """Mean of the local centroids, weighted by their cosine with the current centroid.

    Shapes are (classes, d) and (clients, classes, d). A row of zeros is a class without a centroid.
    """
    cosines = F.cosine_similarity(current[None], local, dim=2)
    weights = torch.where(current.any(1), cosines, local.any(2).to(local.dtype))
    total = weights.sum(0)[:, None]
    return torch.where(total.abs() > 1e-6, (weights[:, :, None] * local).sum(0) / total, current)
