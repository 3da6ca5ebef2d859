"""FedCorr (Xu, Chen, Quek and Chong, CVPR 2022): find noisy clients by the dimension of their predictions, correct their labels, train on."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from methods.core import training
from methods.core.contract import (
    Batch,
    Client,
    ClientPool,
    Diagnosis,
    DivergenceError,
    Payload,
    Reply,
    RoundContext,
    TaskSpec,
)
from methods.core.flat_model import FlatModel
from methods.core.registry import register
from methods.core.streams import numpy_generator
from methods.fedcorr.params import FedCorrParams, make_plan
from methods.toolkit import mixture, mixup
from methods.toolkit.final_stage import FinalStageDelegation
from methods.toolkit.lid import lid
from methods.toolkit.losses import cross_entropy, one_hot, softmax_twice_loss


def relabel_count(num_samples: int, noise_level: float, pi: float) -> int:
    """Truncates the product in this order, as the released code does: 44 samples, 30 of them noisy, pi = .5 give 14."""
    return int(num_samples * noise_level * pi)


def largest(losses: Tensor, pool: Tensor, count: int) -> Tensor:
    """Positions of the `count` largest losses among the samples of a bool mask."""
    return losses.masked_fill(~pool, -torch.inf).topk(min(count, int(pool.sum()))).indices


def relabel(
    labels: Tensor, candidates: Tensor, probabilities: Tensor, theta: float
) -> tuple[Tensor, int]:
    """New labels, where the candidates get the likeliest class if its probability exceeds theta; and how many changed."""
    confidence, predicted = probabilities[candidates].max(1)
    sure = confidence > theta
    new = labels.clone()
    new[candidates[sure]] = predicted[sure]
    return new, int((new != labels).sum())


def proximal_pull(net: FlatModel, batch: Batch, strength: float, form: str) -> None:
    """Adds the gradient of strength * |w - w_t| (l2) or strength * |w - w_t|^2 (l2sq) to the network's."""
    if form == "l2sq":
        net.grad.add_(net.drift, alpha=2 * strength)
    elif batch.step > 0:
        drift = net.drift
        net.grad.add_(drift, alpha=strength / max(float(drift.norm()), 1e-12))


@register(family="label correction", paper="Xu et al., CVPR 2022")
class FedCorr(FinalStageDelegation):
    """Identifies noisy clients by LID, relabels their samples, finetunes on clean clients, then trains on all.

    Stages: `preprocessing` (one client after the other, each starting from the model the one before it left; at the end of each iteration mixtures
    find noisy clients, their noise levels and their noisy samples, part of which get the global model's labels), `finetuning` (clean clients
    only; then every confident prediction becomes a label on noisy clients), `training` (all clients; `final` names another method for it).

    Deviations: where released code and paper differ, `profile=official` (default) follows the code, `profile=paper` the text; the seven switches
    from `prox` to `score_view` depart from either one by one. The text names no view for scoring: plain images in its profile are our choice. The
    code's strict comparison with theta, `mu <= kappa`, and confidence threshold in the second relabelling hold in both. Mixtures take the run's seed, as the
    code does. Ours: LID uses the neighbours there are when a client has no more than k samples; clients are shuffled explicitly in each iteration, also
    without fraction scheduling, where the code would visit some twice and some never; when no client is below kappa, the least noisy cohort is finetuned
    on (the code fails); T_1 is cut when it would take more than half the budget. Taking a stage away leaves its share of the budget unspent, as the
    supplement says of finetuning (C.6); for usual training nothing is said. A successor named by `final` starts from the finetuned model with its registered
    defaults, empty state and round 0, and without mixup; the paper says none of this.
    """

    name = "fedcorr"
    Params = FedCorrParams
    params: FedCorrParams
    final_stage = "training"
    client_state = "the last loss of every sample, and which samples are held to be noisy"
    fedavg_equivalent_params: ClassVar = {
        "iterations": 0,
        "finetuning": False,
        "finetuning_share": 0.0,
        "mixup": False,
    }

    # --- server -------------------------------------------------------------------------------------------------------------------------

    def check(self, spec: TaskSpec) -> None:
        if self.params.iterations and spec.num_clients > spec.participations:
            raise ValueError(
                f"budget.participations={spec.participations} is less than one visit of every client; legal: at least "
                f"federation.num_clients={spec.num_clients}, or method.iterations=0"
            )
        super().check(spec)
        plan = make_plan(self.params, spec)
        if plan.before_training + plan.training == 0:
            raise ValueError(
                "method.iterations=0 with finetuning=false and usual_training=false leaves nothing to do; legal: at least one stage"
            )

    def setup(self, spec: TaskSpec, fleet: ClientPool, ctx: RoundContext) -> None:
        super().setup(spec, fleet, ctx)
        self.plan = make_plan(self.params, spec)
        self.rounds = self.plan.before_training + self.plan.training
        self.planned_participations = (
            self.plan.iterations * spec.num_clients
            + (self.plan.finetuning + self.plan.training) * spec.clients_per_round
        )
        self._private = {
            "iteration": 0,  # finished ones
            "lid": np.zeros(spec.num_clients),
            "cumulative_lid": np.zeros(spec.num_clients),
            "mixture": {},
            "noisy": [],  # S_n of the last iteration
            "noise_levels": np.zeros(spec.num_clients),  # mu_hat
            "relabelled": 0,
            "visits_since": 0,  # the last iteration's end
        }

    def final_rounds(self, spec: TaskSpec) -> tuple[int, int]:
        plan = make_plan(self.params, spec)
        return plan.before_training, plan.training

    def stage(self, round: int) -> str | None:
        if round < self.plan.preprocessing:
            return "preprocessing"
        if round < self.plan.before_training:
            return "finetuning"
        return "training" if round < self.rounds else None

    def select(self, fleet: ClientPool, ctx: RoundContext) -> Sequence[int]:
        if ctx.stage == "preprocessing":
            iteration, turn = divmod(ctx.round, self.plan.rounds_per_iteration)
            order = numpy_generator(ctx.seed, "visiting order", iteration).permutation(
                fleet.num_clients
            )
            size = 1 if self.params.fraction_scheduling else self.spec.clients_per_round
            return [int(k) for k in np.sort(order[turn * size : (turn + 1) * size])]
        if ctx.stage == "finetuning":
            levels = self._private["noise_levels"]
            clean = np.flatnonzero(levels <= self.params.kappa)
            if len(clean) == 0:
                return [
                    int(k)
                    for k in np.sort(
                        np.argsort(levels, kind="stable")[: self.spec.clients_per_round]
                    )
                ]
            cohort = ctx.rng("select").choice(
                clean, size=min(self.spec.clients_per_round, len(clean)), replace=False
            )
            return [int(k) for k in np.sort(cohort)]
        return super().select(fleet, ctx)

    def payload(self, client_id: int, ctx: RoundContext) -> Payload:
        if ctx.stage == "preprocessing":
            return Payload(
                self.models, {"noise_level": float(self._private["noise_levels"][client_id])}
            )
        return super().payload(client_id, ctx)

    def aggregate(self, replies: Sequence[Reply], ctx: RoundContext) -> None:
        super().aggregate(replies, ctx)
        if ctx.stage == "preprocessing":
            for reply in replies:
                self._private["lid"][reply.client_id] = reply.values["lid"]

    def after_round(self, fleet: ClientPool, ctx: RoundContext) -> None:
        self._private["visits_since"] += (
            1
            if ctx.stage == "preprocessing" and self.params.fraction_scheduling
            else self.spec.clients_per_round
        )
        if ctx.stage == "preprocessing" and (ctx.round + 1) % self.plan.rounds_per_iteration == 0:
            self._end_iteration(fleet, ctx)
        elif (
            ctx.stage == "finetuning"
            and ctx.round + 1 == self.plan.before_training
            and self.params.correction
        ):
            noisy = self._private["noisy"]
            if self.params.switches.stage2_relabel == "kappa":
                noisy = [
                    int(k)
                    for k in np.flatnonzero(self._private["noise_levels"] > self.params.kappa)
                ]
            replies = fleet.ask(
                noisy, self.relabel_confident, lambda k, ctx: Payload(self.models, {}), ctx
            )
            self._private["relabelled"] = sum(reply.values["relabelled"] for reply in replies)
        super().after_round(fleet, ctx)

    def _end_iteration(self, fleet: ClientPool, ctx: RoundContext) -> None:
        """Steps 1 to 3 of Section 3.2: noisy clients, their noise levels, their labels."""
        state = self._private
        if not np.isfinite(state["lid"]).all():
            raise DivergenceError(
                f"round {ctx.round} ({ctx.stage}): the LID score of a client is not finite"
            )
        state["iteration"] += 1
        state["visits_since"] = 0
        state["cumulative_lid"] = state["cumulative_lid"] + state["lid"]
        split = mixture.split_by_gmm(state["cumulative_lid"], ctx.seed)
        state["mixture"] = {
            "means": split.means,
            "variances": split.variances,
            "weights": split.weights,
        }
        state["noisy"] = [int(k) for k in np.flatnonzero(split.is_high)]
        models = self.models if self.params.correction else {}
        replies = fleet.ask(state["noisy"], self.examine, lambda k, ctx: Payload(models, {}), ctx)
        state["noise_levels"] = np.zeros(fleet.num_clients)
        for reply in replies:
            state["noise_levels"][reply.client_id] = reply.values["noise_level"]
        state["relabelled"] = sum(reply.values["relabelled"] for reply in replies)

    def diagnosis(self, fleet: ClientPool) -> Diagnosis:
        state = self._private
        if self.plan.iterations == 0:
            return Diagnosis()
        values = {
            "iterations": self.plan.iterations,
            "iteration": state["iteration"],
            "relabelled": state["relabelled"],
        }
        if state["iteration"] == 0:
            return Diagnosis(values=values)
        arrays: dict[str, Any] = {}
        if state["visits_since"] < self.spec.clients_per_round:  # the first test after an iteration
            arrays = {
                name: state[name]
                for name in (
                    "iteration",
                    "lid",
                    "cumulative_lid",
                    "mixture",
                    "noise_levels",
                    "noisy",
                )
            }
        return Diagnosis(
            client_scores=state["cumulative_lid"],
            noisy_clients=state["noisy"],
            noise_rates=state["noise_levels"],
            noisy_samples={k: fleet.state(k)["fedcorr_noisy"].numpy() for k in state["noisy"]},
            values=values,
            arrays=arrays,
        )

    # --- client -------------------------------------------------------------------------------------------------------------------------

    def local_update(self, client: Client, payload: Payload, ctx: RoundContext) -> Reply:
        if self.is_handed_over(ctx):
            return super().local_update(client, payload, ctx)
        net = client.network(payload.models["model"])
        strength = (
            self.params.beta * payload.shared.get("noise_level", 0.0)
            if self.params.proximal
            else 0.0
        )
        form = self.params.switches.prox
        penalty = (lambda batch: proximal_pull(net, batch, strength, form)) if strength else None
        training.train(client, [net], self._loss(client, net, ctx), ctx, penalty=penalty)
        if ctx.stage != "preprocessing":
            return client.reply({"model": net.vector})
        logits = self._logits(client, net, ctx, "score")
        client.state["fedcorr_losses"] = self._sample_losses(logits, client.labels)
        return client.reply(
            {"model": net.vector}, lid=lid(logits.softmax(1), self.params.neighbours).mean().item()
        )

    def examine(self, client: Client, payload: Payload, ctx: RoundContext) -> Reply:
        """A noisy client at the end of an iteration: its noise level, and new labels for part of its samples when a model is sent."""
        losses = client.state["fedcorr_losses"]
        noisy = torch.from_numpy(mixture.split_by_gmm(losses.numpy(), ctx.seed).is_high)
        noise_level = int(noisy.sum()) / client.num_samples
        client.state["fedcorr_noisy"] = noisy
        changed = 0
        if payload.models:
            switches = self.params.switches
            logits = self._logits(client, client.network(payload.models["model"]), ctx, "relabel")
            if switches.rank_loss == "global":
                losses = self._sample_losses(logits, client.labels)
            pool = noisy if switches.relabel_pool == "noisy" else torch.ones_like(noisy)
            candidates = largest(
                losses, pool, relabel_count(client.num_samples, noise_level, self.params.pi)
            )
            client.labels, changed = relabel(
                client.labels, candidates, logits.softmax(1), self.params.theta
            )
        return client.reply({}, noise_level=noise_level, relabelled=changed)

    def relabel_confident(self, client: Client, payload: Payload, ctx: RoundContext) -> Reply:
        """After finetuning: every sample of which the global model is sure."""
        logits = self._logits(client, client.network(payload.models["model"]), ctx, "relabel")
        client.labels, changed = relabel(
            client.labels, torch.arange(client.num_samples), logits.softmax(1), self.params.theta
        )
        return client.reply({}, relabelled=changed)

    def _loss(self, client: Client, net: FlatModel, ctx: RoundContext) -> Callable[[Batch], Tensor]:
        if not self.params.mixup or (
            ctx.stage != "preprocessing" and self.params.switches.mixup_stages == "preprocessing"
        ):
            return lambda batch: cross_entropy(net(batch.x), batch.y)
        shares, partners = ctx.rng("mixup", client.id), ctx.generator("mixup", client.id)

        def mixed(batch: Batch) -> Tensor:
            share = mixup.sample_lambda(self.params.alpha, shares)
            order = torch.randperm(len(batch.y), generator=partners)
            x, y = mixup.mix(batch.x, one_hot(batch.y, client.num_classes), share, order)
            return cross_entropy(net(x), y)

        return mixed

    def _logits(self, client: Client, net: FlatModel, ctx: RoundContext, purpose: str) -> Tensor:
        generator = ctx.generator(purpose, client.id)
        return training.map_client_samples(
            client, [net.eval()], self.params.switches.score_view, generator
        )[0]

    def _sample_losses(self, logits: Tensor, labels: Tensor) -> Tensor:
        if self.params.switches.sample_loss == "ce_on_probs":
            return softmax_twice_loss(logits.softmax(1), labels, reduction="none")
        return cross_entropy(logits, labels, reduction="none")
