"""RoFL (Yang et al., IEEE Intelligent Systems 2022): clients and server agree on class centroids in feature space."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from methods.core import training
from methods.core.contract import (
    Batch,
    Client,
    ClientPool,
    Diagnosis,
    Payload,
    Reply,
    RoundContext,
    TaskSpec,
)
from methods.core.registry import register
from methods.coteaching import smallest_loss_indices
from methods.fedavg import FedAvg
from methods.toolkit.losses import cross_entropy, entropy, one_hot
from methods.toolkit.schedules import forget_rate, ramp, rounds_from_fraction


@dataclass(frozen=True)
class RoFLParams:
    forget_rate: float = 0.2  # tau, share of each batch left out in the end
    ramp_rounds: float = (
        0.1  # T_k, as a share of all rounds: those in which the rate grows from 0 to tau
    )
    pseudo_label_start: float = (
        0.1  # T_pl, as a share of all rounds: from there on the global model may replace labels
    )
    lambda_cen: float = (
        1.0  # lambda_cen, pull of a feature towards its class centroid; without effect while detach
    )
    lambda_e: float = 0.8  # lambda_e, weight of the entropy term
    detach: bool = True  # true: no gradient from the centroid term, as in the released code; false: the mean over the chosen samples
    pseudo_label_view: str = (
        "train"  # train: pseudo-labels from augmented images, as in the released code; plain
    )

    def __post_init__(self) -> None:
        if not 0 <= self.forget_rate < 1:
            raise ValueError(
                f"method.forget_rate={self.forget_rate} is not legal; legal: 0 or more, below 1"
            )
        for name in ("ramp_rounds", "pseudo_label_start"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(
                    f"method.{name}={getattr(self, name)} is not legal; legal: 0 to 1, a share of the rounds"
                )
        for name in ("lambda_cen", "lambda_e"):
            if getattr(self, name) < 0:
                raise ValueError(
                    f"method.{name}={getattr(self, name)} is not legal; legal: at least 0"
                )
        if self.pseudo_label_view not in ("train", "plain"):
            raise ValueError(
                f"method.pseudo_label_view={self.pseudo_label_view!r} is not legal; legal: train, plain"
            )


@register(family="label correction", paper="Yang et al., IEEE Intelligent Systems 2022")
class RoFL(FedAvg):
    """Small-loss samples, checked against shared class centroids; where the two disagree the global model gives the label.

    Deviations: this is the implementation that FedCorr's tables used, not the text. Its features are detached before the centroid term, which
    then has no gradient; `detach=false` gives it one, as a mean over the chosen samples with the centroids held fixed (the released sum
    would grow with the batch). Its first global centroids are random, so that the cosine weights of round 0 have mixed signs and a sum
    near 0; here a class that has no centroid yet takes the plain mean of those who have one, and a class whose weights cancel keeps its
    centroid. A class that a client meets before the server knows it starts from that client's first batch mean; in the
    released rule a centroid of 0 would stay 0 for ever. At least one sample of a batch is chosen. T_k and T_pl are shares of the rounds.
    """

    name = "rofl"
    Params = RoFLParams
    params: RoFLParams
    client_state = (
        "which samples it left out last, and the labels it trained on (for diagnosis only)"
    )

    # --- server -------------------------------------------------------------------------------------------------------------------------

    def setup(self, spec: TaskSpec, fleet: ClientPool, ctx: RoundContext) -> None:
        super().setup(spec, fleet, ctx)
        self.shared["centroids"] = torch.zeros(spec.num_classes, spec.feature_dim)

    def aggregate(self, replies: Sequence[Reply], ctx: RoundContext) -> None:
        super().aggregate(replies, ctx)
        self.shared["centroids"] = merge(
            self.shared["centroids"], torch.stack([reply.values["centroids"] for reply in replies])
        )

    def weights(self, replies: Sequence[Reply]) -> np.ndarray:
        return np.full(len(replies), 1 / len(replies))

    def diagnosis(self, fleet: ClientPool) -> Diagnosis:
        """Held to be mislabelled: what was left out in the last epoch of a client's last visit. Labels: what the rest was trained on."""
        states = {k: fleet.state(k) for k in range(fleet.num_clients)}
        visited = {k: state for k, state in states.items() if "targets" in state}
        return Diagnosis(
            noisy_samples={k: ~state["chosen"].numpy() for k, state in visited.items()},
            labels={k: state["targets"].numpy() for k, state in visited.items()},
        )

    # --- client -------------------------------------------------------------------------------------------------------------------------

    def local_update(self, client: Client, payload: Payload, ctx: RoundContext) -> Reply:
        params = self.params
        net = client.network(payload.models["model"])
        start = rounds_from_fraction(params.pseudo_label_start, ctx.spec)
        rate = forget_rate(
            ctx.round, rounds_from_fraction(params.ramp_rounds, ctx.spec), params.forget_rate
        )
        pull = 0.0 if params.detach else params.lambda_cen * ramp(ctx.round, start)
        centroids = payload.shared["centroids"]
        guesses = client.labels  # before T_pl a sample keeps its label whatever its centroid says
        if ctx.round == 0 or ctx.round >= start:
            net.eval()
            (features,) = training.map_client_samples(
                client,
                [net.features],
                params.pseudo_label_view,
                ctx.generator("pseudo_labels", client.id),
            )
            if ctx.round == 0:
                centroids = class_means(features, client.labels, client.num_classes)
            if ctx.round >= start:
                guesses = net.head(features).argmax(1)
        chosen, targets = torch.empty(client.num_samples, dtype=torch.bool), client.labels.clone()

        def batch_loss(batch: Batch) -> Tensor:
            nonlocal centroids
            features = net.features(batch.x)
            logits = net.head(features)
            easy = smallest_loss_indices(cross_entropy(logits, batch.y, reduction="none"), rate)
            index, features, logits, labels = (
                batch.index[easy],
                features[easy],
                logits[easy],
                batch.y[easy],
            )
            consistent = nearest(centroids, features.detach()) == labels
            target = torch.where(consistent, labels, guesses[index])
            loss = (
                cross_entropy(logits, target) + params.lambda_e * entropy(logits.softmax(1)).mean()
            )
            if pull:
                loss = (
                    loss
                    + pull * (consistent * (features - centroids[labels]).square().sum(1)).mean()
                )
            # Every epoch writes over the one before: the last one remains.
            chosen[batch.index] = False
            chosen[index] = True
            targets[batch.index] = batch.y
            targets[index] = target
            centroids = follow(
                centroids, class_means(features.detach(), labels, client.num_classes)
            )
            return loss

        training.train(client, [net], batch_loss, ctx)
        client.state.update(chosen=chosen, targets=targets)
        return client.reply({"model": net.vector}, centroids=centroids)


def class_means(features: Tensor, labels: Tensor, num_classes: int) -> Tensor:
    """Mean feature of each class, (classes, d); 0 for a class that is absent."""
    members = one_hot(labels, num_classes)
    return members.T @ features / members.sum(0).clamp_min(1)[:, None]


def nearest(centroids: Tensor, features: Tensor) -> Tensor:
    """For each feature the class whose centroid has the largest cosine."""
    return (F.normalize(features) @ F.normalize(centroids).T).argmax(1)


def follow(centroids: Tensor, means: Tensor) -> Tensor:
    """A client's step: f <- (1 - s^2) f + s^2 f_batch with s = cos(f, f_batch); an absent class stays, one without a centroid takes the mean."""
    share = F.cosine_similarity(centroids, means).square()
    return centroids.lerp(means, torch.where(centroids.any(1), share, 1.0)[:, None])


def merge(current: Tensor, local: Tensor) -> Tensor:
    """The server's step, (classes, d) and (clients, classes, d): mean of the clients' centroids weighted by their cosine with the current one."""
    weights = torch.where(
        current.any(1),
        F.cosine_similarity(current[None], local, dim=2),
        local.any(2).to(local.dtype),
    )
    total = weights.sum(0)[:, None]
    return torch.where(total.abs() > 1e-6, (weights[:, :, None] * local).sum(0) / total, current)
