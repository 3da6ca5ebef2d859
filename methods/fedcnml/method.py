"""Fed-CNML (Wu, Zhang, Yue, Ji, Jing; Computer Science 51(10), 2024): mutual scoring of clients, two collaborating networks, a triplet loss."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import torch
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
from methods.fedavg import FedAvg
from methods.fedcnml.scoring import (
    ROUNDING,
    binarise,
    choose_clean,
    cutoff,
    jensen_shannon,
    sample_weights,
    triplet,
)
from methods.toolkit.losses import cross_entropy, one_hot, sharpen

SCORING_BYTES = 64 * 2**20  # models sent to a client at once for scoring


@dataclass(frozen=True)
class FedCNMLParams:
    ablation: str = "none"  # none; c1: no mutual scoring; c2: one network that selects for itself; c3: no triplet loss
    scoring_epochs: int = 25  # E0, epochs of the networks that are scored
    scoring_samples: int = 0  # of each client, on which it scores the others' networks; 0: all
    tau1: float = 2.0  # tau_1, filter coefficient of the score threshold mu_1; 1: the mean, large: the maximum
    mu2: int = 5  # mu_2, a clean client has more neighbours than this; 0: all clients are taken for clean, as in c1
    horizon: int = (
        350  # the paper's rounds: warmup and decay_every are stretched by rounds / horizon
    )
    warmup: int = 25  # T_w, rounds on clean clients, out of horizon
    decay_every: int = 120  # rounds between two decays of the learning rate, out of horizon
    decay: float = 0.1  # factor of a decay
    tau2: float = 5.0  # tau_2, filter coefficient of the divergence cut-off
    jsd_limit: float = 0.7  # J_u, mean divergence (base 2) from which the cut-off is lowered
    statistics: str = "merged"  # merged: divergences of the cohort with the others' last ones; full: all clients measure every round
    temperature: float = 0.5  # T of the pseudo-labels
    triplet_weight: float = 0.025  # lambda
    margin: float = 0.0  # added inside the hinge of the triplet loss
    mean_over: str = "subsets"  # subsets: the loss adds the means over clean and noisy samples of a batch; batch: one mean over both
    view: str = (
        "strong"  # images in the federation stage: strong (AutoAugment's CIFAR-10 policy) | train
    )

    def __post_init__(self) -> None:
        for name, legal in (
            ("ablation", ("none", "c1", "c2", "c3")),
            ("statistics", ("merged", "full")),
            ("mean_over", ("subsets", "batch")),
            ("view", ("strong", "train")),
        ):
            if getattr(self, name) not in legal:
                raise ValueError(
                    f"method.{name}={getattr(self, name)!r} is not legal; legal: {', '.join(legal)}"
                )
        for name, low in (
            ("scoring_epochs", 1), ("scoring_samples", 0), ("tau1", 1), ("mu2", 0), ("horizon", 2), ("warmup", 1), ("decay_every", 1),
            ("tau2", 1), ("jsd_limit", 0), ("triplet_weight", 0), ("margin", 0),
        ):  # fmt: skip
            if not getattr(self, name) >= low:
                raise ValueError(
                    f"method.{name}={getattr(self, name)} is not legal; legal: at least {low}"
                )
        for name in ("decay", "temperature"):
            if not 0 < getattr(self, name) <= 1:
                raise ValueError(
                    f"method.{name}={getattr(self, name)} is not legal; legal: above 0, at most 1"
                )
        if self.warmup >= self.horizon:
            raise ValueError(
                f"method.warmup={self.warmup} is not legal; legal: less than method.horizon={self.horizon}"
            )

    @property
    def scores_clients(self) -> bool:
        return self.ablation != "c1" and self.mu2 > 0

    @property
    def uses_triplet(self) -> bool:
        return self.ablation not in ("c2", "c3") and self.triplet_weight > 0


class Schedule(NamedTuple):
    scoring: int  # rounds of the scoring stage: 1, or 0 without scoring
    warmup: int
    rounds: int  # warm-up and federation together


@register(family="noise detection", paper="Wu et al., Computer Science 2024")
class FedCNML(FedAvg):
    """Clients score each other's models; two networks, warmed up on the clean clients, select samples for each other.

    Deviations: the paper leaves tau_1, tau_2, J_u, lambda, T, the local epochs and the client fraction open and has no released code. Values
    are ours or UNICON's (CVPR 2022), whose selection it adapts; its epochs are read as rounds, and as local epochs in the scoring stage.
    Equation 8 prints a cut-off that rises where the text lowers it, equation 13 a sign that drives a network from its own global network:
    the text is followed. Equations 9 and 10 take the means over clean and noisy samples apart, here within a batch, where one doubtful sample
    can outweigh all others; `mean_over=batch` takes one mean. The triplet loss is taken on logits, which the two networks have in
    common, with the global networks in training mode as the local ones are; `margin` starts it before a network has drifted half the way to the
    other. When fewer clients are found clean than a round needs, or than a tenth, the best-scored fill up: without noise all scores lie
    near their maximum and few exceed the threshold. The cut-offs are means over the last reported divergences; `statistics=full` has every client
    measure in every round, as the paper does. Ablation c2 is undefined in the paper: one network, own selection, no triplet loss.
    `mu2=0` takes all clients, as its Table 2 says, though eta > 0 would not.
    """

    name = "fedcnml"
    Params = FedCNMLParams
    params: FedCNMLParams
    model_names: ClassVar[tuple[str, ...]] = ("a", "b")
    client_state = "which samples it held noisy at the last visit"

    def __init__(self, params: FedCNMLParams):
        super().__init__(params)
        if params.ablation == "c2":
            self.model_names = ("a",)  # type: ignore[misc]

    def schedule(self, spec: TaskSpec) -> Schedule:
        """Follows from parameters and budget, so that server and clients agree on it."""
        scoring = int(self.params.scores_clients)
        rounds = (spec.participations - scoring * spec.num_clients) // spec.clients_per_round
        warmup = round(self.params.warmup * rounds / self.params.horizon)
        return Schedule(scoring, min(max(warmup, 1), rounds - 1), rounds)

    def learning_rate(self, ctx: RoundContext) -> float:
        scoring, _, rounds = self.schedule(ctx.spec)
        decays = (
            max(ctx.round - scoring, 0) * self.params.horizon // (self.params.decay_every * rounds)
        )
        return ctx.train.lr * ctx.train.lr_decay**ctx.round * self.params.decay**decays

    # --- server -------------------------------------------------------------------------------------------------------------

    def check(self, spec: TaskSpec) -> None:
        super().check(spec)
        least = 2 * spec.clients_per_round + (spec.num_clients if self.params.scores_clients else 0)
        if spec.participations < least:
            visits = (
                "federation.num_clients + 2 federation.clients_per_round"
                if self.params.scores_clients
                else "2 rounds"
            )
            raise ValueError(
                f"budget.participations={spec.participations} is not legal for fedcnml; legal: at least {visits} = {least}"
            )
        if self.params.scores_clients and spec.num_clients < 2:
            raise ValueError(
                "federation.num_clients=1 is not legal for fedcnml, whose clients score each other; legal: 2 or more, or method.ablation=c1"
            )

    def setup(self, spec: TaskSpec, fleet: ClientPool, ctx: RoundContext) -> None:
        super().setup(spec, fleet, ctx)
        scoring, _, self.rounds = self.schedule(spec)
        self.planned_participations = (
            scoring * spec.num_clients + self.rounds * spec.clients_per_round
        )
        shape = (spec.num_clients, len(self.model_names))
        self._private = {
            "clean": np.arange(spec.num_clients),
            "sums": np.zeros(shape),  # of the divergences a client reported last, per network
            "minima": np.full(shape, np.inf),
            "counts": np.zeros(spec.num_clients),
            "values": {},
            "arrays": {},
        }

    def stage(self, round: int) -> str | None:
        scoring, warmup, rounds = self.schedule(self.spec)
        if round < scoring:
            return "scoring"
        if round < scoring + warmup:
            return "warmup"
        return "federation" if round < scoring + rounds else None

    def select(self, fleet: ClientPool, ctx: RoundContext) -> Sequence[int]:
        if ctx.stage == "scoring":
            return range(fleet.num_clients)
        if ctx.stage == "warmup":
            cohort = ctx.rng("select").choice(
                self._private["clean"], size=self.spec.clients_per_round, replace=False
            )
            return [int(k) for k in np.sort(cohort)]
        return super().select(fleet, ctx)

    def before_round(self, fleet: ClientPool, ids: Sequence[int], ctx: RoundContext) -> None:
        self._private["arrays"] = {}  # the scores go to the journal once
        if ctx.stage != "federation":
            return
        cohort = set(ids)

        def nets(client_id: int, ctx: RoundContext) -> Payload:
            return Payload(self.models, {"trains": client_id in cohort})

        state = self._private
        for reply in fleet.ask(
            range(fleet.num_clients) if self.params.statistics == "full" else ids,
            self.measure,
            nets,
            ctx,
        ):
            state["sums"][reply.client_id], state["minima"][reply.client_id] = (
                reply.values["sums"],
                reply.values["minima"],
            )
            state["counts"][reply.client_id] = reply.num_samples
        mean = state["sums"].sum(axis=0) / state["counts"].sum()
        self.shared["cutoffs"] = cutoff(
            mean, state["minima"].min(axis=0), self.params.tau2, self.params.jsd_limit
        )

    def payload(self, client_id: int, ctx: RoundContext) -> Payload:
        if ctx.stage == "scoring":
            return Payload({"a": self.models["a"]}, {})
        # In the federation stage the cohort has the networks already, from `measure`.
        return Payload({} if ctx.stage == "federation" else self.models, self.shared)

    def aggregate(self, replies: Sequence[Reply], ctx: RoundContext) -> None:
        if ctx.stage == "scoring":
            self._private["scored"] = [reply.models["a"] for reply in replies]
            return
        super().aggregate(replies, ctx)
        if ctx.stage == "federation":
            values = {
                f"cutoff_{name}": value
                for name, value in zip(self.model_names, self.shared["cutoffs"], strict=True)
            }
            if self.params.uses_triplet:
                judged = sum(reply.values["judged"] for reply in replies)
                values["triplet_active"] = sum(reply.values["active"] for reply in replies) / max(
                    judged, 1
                )
            self._private["values"] = values

    def after_round(self, fleet: ClientPool, ctx: RoundContext) -> None:
        if ctx.stage != "scoring":
            return
        scores = self._mutual_scores(fleet, self._private.pop("scored"), ctx)
        threshold, eta = binarise(scores, self.params.tau1)
        received, given = np.nanmean(scores, axis=0), np.nanmean(scores, axis=1)
        least = max(self.spec.clients_per_round, -(-self.spec.num_clients // 10))
        clean = choose_clean(eta, received, self.params.mu2, least)
        self._private |= {"clean": clean, "eta": eta}
        self._private["arrays"] = {
            "eta": eta,
            "mu1": threshold,
            "received": received,
            "given": given,
            "clean": clean,
        }

    def _mutual_scores(
        self, fleet: ClientPool, models: Sequence[Tensor], ctx: RoundContext
    ) -> np.ndarray:
        """Accuracy of model q on client p's labels at [p, q]; the diagonal, which nobody needs, is NaN."""
        scores = np.full((fleet.num_clients, fleet.num_clients), np.nan)
        at_once = max(SCORING_BYTES // (models[0].numel() * models[0].element_size()), 1)
        for start in range(0, fleet.num_clients, at_once):
            chunk = range(start, min(start + at_once, fleet.num_clients))
            others = {p: [q for q in chunk if q != p] for p in range(fleet.num_clients)}

            def sent(p: int, ctx: RoundContext, others: dict[int, list[int]] = others) -> Payload:
                return Payload({str(q): models[q] for q in others[p]}, {})

            for reply in fleet.ask([p for p in others if others[p]], self.score, sent, ctx):
                scores[reply.client_id, others[reply.client_id]] = reply.values["accuracies"]
        return scores

    def diagnosis(self, fleet: ClientPool) -> Diagnosis:
        state, noisy_clients = self._private, None
        if "eta" in state:
            noisy_clients = np.setdiff1d(np.arange(fleet.num_clients), state["clean"]).tolist()
        masks = {
            k: fleet.state(k)["noisy"].numpy()
            for k in range(fleet.num_clients)
            if "noisy" in fleet.state(k)
        }
        return Diagnosis(
            client_scores=-state["eta"] if "eta" in state else None,
            noisy_clients=noisy_clients,
            noisy_samples=masks or None,
            values=state["values"],
            arrays=state["arrays"],
        )

    # --- client -------------------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def score(self, client: Client, payload: Payload, ctx: RoundContext) -> Reply:
        """Accuracy of each model sent on this client's labels, one pass per model."""
        index = torch.arange(client.num_samples)
        if 0 < self.params.scoring_samples < client.num_samples:
            # The same samples for all models, whichever request they come in.
            index = torch.randperm(
                client.num_samples, generator=ctx.generator("scoring", client.id)
            )[: self.params.scoring_samples]
        models = list(payload.models.values())
        net = client.network(models[0]).eval()
        right = np.zeros(len(models))
        for part in index.split(training.SCORING_BATCH):
            x, y = client.images(part), client.labels[part]
            right += [int((net.load(model)(x).argmax(1) == y).sum()) for model in models]
        return client.reply({}, accuracies=right / len(index))

    def measure(self, client: Client, payload: Payload, ctx: RoundContext) -> Reply:
        """What the cut-offs need of this client's divergences. A client that trains next keeps what it then needs."""
        nets = [client.network(vector) for vector in payload.models.values()]
        predictions = torch.stack(training.probabilities(client, *nets))
        labels = client.labels.expand(len(nets), -1)[:, :, None]
        divergences = jensen_shannon(predictions.gather(2, labels).squeeze(2))
        if payload.shared["trains"]:
            pseudo = sharpen(predictions.mean(0), self.params.temperature)
            client.state |= {
                "models": dict(payload.models),
                "divergences": divergences,
                "pseudo": pseudo,
            }
        return client.reply({}, sums=divergences.sum(1).numpy(), minima=divergences.amin(1).numpy())

    def local_update(self, client: Client, payload: Payload, ctx: RoundContext) -> Reply:
        if ctx.stage == "federation":
            return self._federate(client, payload, ctx)
        nets = {name: client.network(vector) for name, vector in payload.models.items()}

        def batch_loss(batch: Batch) -> Tensor:
            return torch.stack(
                [cross_entropy(net(batch.x), batch.y) for net in nets.values()]
            ).sum()

        epochs = self.params.scoring_epochs if ctx.stage == "scoring" else ctx.train.local_epochs
        training.train(
            client,
            list(nets.values()),
            batch_loss,
            ctx,
            lr=self.learning_rate(ctx),
            local_epochs=epochs,
        )
        return client.reply({name: net.vector for name, net in nets.items()})

    def _federate(self, client: Client, payload: Payload, ctx: RoundContext) -> Reply:
        """Train on given labels where the other network finds them likely, on pseudo-labels elsewhere (equations 9 to 15)."""
        models, divergences, pseudo = (
            client.state.pop(name) for name in ("models", "divergences", "pseudo")
        )
        held_noisy = divergences > torch.from_numpy(payload.shared["cutoffs"])[:, None] + ROUNDING
        noisy = held_noisy.flip(
            0
        )  # each network's samples are judged by the other; a single one judges for itself
        targets = torch.where(noisy[:, :, None], pseudo, one_hot(client.labels, client.num_classes))
        client.state["noisy"] = noisy[0].clone()
        nets = [client.network(vector) for vector in models.values()]
        anchors = (
            [client.network(vector).train() for vector in models.values()]
            if self.params.uses_triplet
            else []
        )
        judged = active = 0

        def batch_loss(batch: Batch) -> Tensor:
            nonlocal judged, active
            anchored = []
            if noisy[:, batch.index].any():
                with torch.no_grad():
                    anchored = [anchor(batch.x) for anchor in anchors]
            losses = []
            for number, net in enumerate(nets):
                logits, rows = net(batch.x), noisy[number, batch.index]
                terms = cross_entropy(logits, targets[number, batch.index], reduction="none")
                if anchored:
                    hinge = (
                        triplet(logits, anchored[number], anchored[1 - number], self.params.margin)
                        * rows
                    )
                    terms = terms + self.params.triplet_weight * hinge
                    judged, active = judged + int(rows.sum()), active + int((hinge > 0).sum())
                losses.append((sample_weights(rows, self.params.mean_over) * terms).sum())
            return torch.stack(losses).sum()

        training.train(
            client, nets, batch_loss, ctx, view=self.params.view, lr=self.learning_rate(ctx)
        )
        trained = {name: net.vector for name, net in zip(models, nets, strict=True)}
        return client.reply(trained, judged=judged, active=active)
