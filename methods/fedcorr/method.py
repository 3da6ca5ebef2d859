"""FedCorr (Xu, Chen, Quek and Chong, CVPR 2022): multi-stage label correction."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from methods.core import training
from methods.core.contract import ClientPool, Diagnosis, DivergenceError
from methods.core.errors import UserError, invalid
from methods.core.flat_model import FlatModel
from methods.core.registry import register
from methods.core.task import Batch, LocalTask, Models, Payload, Reply, RoundContext, TaskSpec
from methods.fedavg import sample_cohort
from methods.fedcorr import relabeling
from methods.fedcorr.params import FedCorrParams, make_schedule
from methods.toolkit import mixup
from methods.toolkit.final_stage import DelegatingState, FinalStageDelegation
from methods.toolkit.lid import lid
from methods.toolkit.losses import cross_entropy, one_hot
from methods.toolkit.mixture import split_by_gmm


@dataclass(kw_only=True)
class FedCorrState(DelegatingState):
    lid: np.ndarray  # (K,) LID scores of the current iteration
    cumulative_lid: np.ndarray  # (K,) sum of the LID scores over the finished iterations
    noise_levels: np.ndarray  # (K,) mu_hat, estimated noise levels
    iteration: int = 0  # number of finished iterations
    mixture: dict[str, np.ndarray] = field(default_factory=dict)  # of the last iteration
    noisy: list[int] = field(default_factory=list)  # S_n, noisy clients of the last iteration
    relabeled: int = 0  # number of labels that the last relabeling changed
    participations_since_iteration: int = 0  # upper bound, since the end of the last iteration


@register(family="label correction", paper="Xu et al., CVPR 2022")
class FedCorr(FinalStageDelegation):
    """Identifies noisy clients by LID, relabels their samples, finetunes on clean clients.

    Stages:

    1. `preprocessing`: clients train one after the other, each from the model of the previous one.
       After each iteration over all clients, Gaussian mixtures identify noisy clients, their noise
       levels and noisy samples. Some noisy samples get the label that the global model predicts.
    2. `finetuning`: clean clients train. Confident predictions then replace labels of noisy ones.
    3. `training`: all clients train. `final_method` can name another method for this stage.

    Deviations:

    1. Where official code and paper differ, `profile=official` (default) follows the code and
       `profile=paper` the text. The seven options from `prox` to `score_view` change a profile.
    2. The paper does not name a view for scoring. Its profile uses plain images.
    3. Both profiles take from the code the strict comparison with theta, the condition mu <= kappa,
       and the confidence threshold of the second relabeling.
    4. Each mixture has a random stream of its own. The code uses the seed of the run for all.
    5. LID uses the neighbors that exist if a client has no more than k samples.
    6. The clients are shuffled explicitly in each iteration. Without fraction scheduling, the code
       can train some clients twice and others never.
    7. If no client is below kappa, finetuning uses the least noisy cohort. The code fails.
    8. T_1 is reduced if it needs more than half of the budget.
    9. A disabled stage leaves its part of the budget unspent, as C.6 says for finetuning.
    10. The method named by `final_method` starts from the finetuned model with its registered
        defaults, empty state, round 0 and without mixup. The paper does not specify this.
    """

    name = "fedcorr"
    params: FedCorrParams
    state: FedCorrState
    final_stage = "training"
    client_state_doc = "last loss of every sample, and the predicted noisy samples"
    fedavg_equivalent_params = {"iterations": 0, "finetuning_fraction": 0.0, "mixup": False}

    # Server side

    def validate(self, spec: TaskSpec) -> None:
        if self.params.iterations and spec.num_clients > spec.participations:
            least = f"at least federation.num_clients={spec.num_clients}, or method.iterations=0"
            raise invalid("budget.participations", spec.participations, least)
        super().validate(spec)
        if sum(self.final_rounds(spec)) == 0:
            raise UserError("all FedCorr stages are disabled; enable at least one")

    def setup(self, spec: TaskSpec, pool: ClientPool, ctx: RoundContext) -> None:
        schedule = self.schedule = make_schedule(self.params, spec)
        super().setup(spec, pool, ctx)
        self.rounds = schedule.rounds_before_training + schedule.training
        later = (schedule.finetuning + schedule.training) * spec.clients_per_round
        self.planned_participations = schedule.iterations * spec.num_clients + later

    def initial_state(self, pool: ClientPool, ctx: RoundContext) -> FedCorrState:
        models = super().initial_state(pool, ctx).models
        lid, cumulative, levels = np.zeros((3, pool.num_clients))
        return FedCorrState(models, lid=lid, cumulative_lid=cumulative, noise_levels=levels)

    def final_rounds(self, spec: TaskSpec) -> tuple[int, int]:
        schedule = make_schedule(self.params, spec)
        return schedule.rounds_before_training, schedule.training

    def stage(self, round: int) -> str | None:
        if round < self.schedule.preprocessing_rounds:
            return "preprocessing"
        if round < self.schedule.rounds_before_training:
            return "finetuning"
        return "training" if round < self.rounds else None

    def select_clients(self, pool: ClientPool, ctx: RoundContext) -> Sequence[int]:
        if ctx.stage == "training":
            return super().select_clients(pool, ctx)
        size = self.spec.clients_per_round
        if ctx.stage == "preprocessing":
            turn = ctx.round % self.schedule.rounds_per_iteration
            rng = replace(ctx, round=ctx.round - turn).rng("client order")  # one per iteration
            size = 1 if self.params.fraction_scheduling else size
            cohort = rng.permutation(pool.num_clients)[turn * size : (turn + 1) * size]
        else:
            clean = np.flatnonzero(self.state.noise_levels <= self.params.kappa)
            if len(clean):
                return sample_cohort(clean, min(size, len(clean)), ctx)
            cohort = np.argsort(self.state.noise_levels, kind="stable")[:size]
        return [int(k) for k in np.sort(cohort)]

    def payload(self, client_id: int, ctx: RoundContext) -> Payload:
        if ctx.stage == "preprocessing":
            level = float(self.state.noise_levels[client_id])
            return Payload(self.state.models, {"noise_level": level})
        return super().payload(client_id, ctx)

    def aggregate(self, replies: Sequence[Reply], ctx: RoundContext) -> None:
        super().aggregate(replies, ctx)
        if ctx.stage == "preprocessing":
            for reply in replies:
                self.state.lid[reply.client_id] = reply.values["lid"]

    def after_round(self, pool: ClientPool, ctx: RoundContext) -> None:
        schedule, next_round = self.schedule, ctx.round + 1
        is_single = ctx.stage == "preprocessing" and self.params.fraction_scheduling
        self.state.participations_since_iteration += 1 if is_single else self.spec.clients_per_round
        if ctx.stage == "preprocessing" and next_round % schedule.rounds_per_iteration == 0:
            self._end_iteration(pool, ctx)
        elif ctx.stage == "finetuning" and next_round == schedule.rounds_before_training:
            if self.params.correction:
                self._relabel_after_finetuning(pool, ctx)
        super().after_round(pool, ctx)

    def _end_iteration(self, pool: ClientPool, ctx: RoundContext) -> None:
        """Steps 1 to 3 of Section 3.2: noisy clients, their noise levels, their labels."""
        state = self.state
        if not np.isfinite(state.lid).all():
            where = f"round {ctx.round} ({ctx.stage})"
            raise DivergenceError(f"{where}: the LID score of a client is not finite")
        state.iteration += 1
        state.participations_since_iteration = 0
        state.cumulative_lid = state.cumulative_lid + state.lid
        split = split_by_gmm(state.cumulative_lid, int(ctx.rng("mixture").integers(2**32)))
        state.mixture = {name: getattr(split, name) for name in ("means", "variances", "weights")}
        state.noisy = [int(k) for k in np.flatnonzero(split.is_high)]
        payload = Payload(state.models if self.params.correction else {}, {})
        replies = pool.run_task(state.noisy, self.examine, lambda k, ctx: payload, ctx)
        state.noise_levels = np.zeros(pool.num_clients)
        for reply in replies:
            state.noise_levels[reply.client_id] = reply.values["noise_level"]
        state.relabeled = sum(reply.values["relabeled"] for reply in replies)

    def _relabel_after_finetuning(self, pool: ClientPool, ctx: RoundContext) -> None:
        state, noisy = self.state, self.state.noisy
        if self.params.options.stage2_relabel == "kappa":
            noisy = [int(k) for k in np.flatnonzero(state.noise_levels > self.params.kappa)]
        payload = Payload(state.models, {})
        replies = pool.run_task(noisy, self.relabel_confident, lambda k, ctx: payload, ctx)
        state.relabeled = sum(reply.values["relabeled"] for reply in replies)

    def diagnose(self, pool: ClientPool) -> Diagnosis:
        state, total = self.state, self.schedule.iterations
        if total == 0:
            return Diagnosis()
        values = {"iterations": total, "iteration": state.iteration, "relabelled": state.relabeled}
        if state.iteration == 0:
            return Diagnosis(values=values)
        arrays: dict[str, Any] = {}
        # Only the first evaluation after an iteration goes to the journal.
        if state.participations_since_iteration < self.spec.clients_per_round:
            names = ("iteration", "lid", "cumulative_lid", "mixture", "noise_levels", "noisy")
            arrays = {name: getattr(state, name) for name in names}
        return Diagnosis(
            client_scores=state.cumulative_lid,
            noisy_clients=state.noisy,
            noise_rates=state.noise_levels,
            noisy_samples={k: pool.state(k)["fedcorr_noisy"].numpy() for k in state.noisy},
            values=values,
            arrays=arrays,
        )

    # Client side

    def start_local_update(self, models: Models, task: LocalTask) -> None:
        local, params, is_first_stage = task.local, self.params, task.ctx.stage == "preprocessing"
        noise_level = task.payload.shared.get("noise_level", 0.0)
        local.prox_weight = params.beta * noise_level if params.proximal else 0.0
        local.prox_form = params.options.prox
        local.uses_mixup = params.mixup and (is_first_stage or params.options.mixup_stages == "all")
        if local.uses_mixup:
            rng, generator, train = task.rng("mixup"), task.generator("mixup"), task.ctx.train
            sizes = mixup.batch_sizes(task.client.num_samples, train.batch_size)
            epochs = (
                mixup.draw(sizes, params.alpha, rng, generator) for _ in range(train.local_epochs)
            )
            stacked = [torch.stack(values) for values in zip(*epochs, strict=True)]
            local.mixups = task.client.upload_later(*stacked)

    def before_epoch(self, epoch: int, order: Tensor, task: LocalTask) -> None:
        local, client = task.local, task.client
        if local.uses_mixup:
            local.lam, local.partners, partner_rows = (draws[epoch] for draws in local.mixups())
            labels = one_hot(client.labels, client.num_classes)[order]
            local.labels = mixup.mix(labels, local.lam, partner_rows)

    def batch_loss(self, model: FlatModel, batch: Batch, task: LocalTask) -> Tensor:
        local = task.local
        if not local.uses_mixup:
            return super().batch_loss(model, batch, task)
        rows = batch.rows
        x = mixup.mix(batch.x, local.lam[rows], local.partners[rows])
        return cross_entropy(model(x), local.labels[rows])

    def add_penalty_grad(self, model: FlatModel, batch: Batch, task: LocalTask) -> None:
        local = task.local
        if local.prox_weight:
            relabeling.add_proximal_grad(model, batch.step, local.prox_weight, local.prox_form)

    def finish_local_update(self, models: Models, task: LocalTask) -> Mapping[str, Any]:
        if task.ctx.stage != "preprocessing":
            return {}
        logits = self._compute_logits(models["model"], task, "score")
        task.client.state["fedcorr_losses"] = self._sample_losses(logits, task)
        return {"lid": lid(logits.softmax(1), self.params.num_neighbors).mean().item()}

    def examine(self, task: LocalTask) -> Reply:
        """Client task: estimate the noise level. If the payload has a model, relabel samples."""
        client, params, options = task.client, self.params, self.params.options
        losses = client.state["fedcorr_losses"].cpu()
        seed = int(task.rng("mixture").integers(2**32))
        noisy = torch.from_numpy(split_by_gmm(losses.numpy(), seed).is_high)
        noise_level = int(noisy.sum()) / client.num_samples
        client.state["fedcorr_noisy"] = noisy
        changed = 0
        if task.payload.models:
            logits = self._compute_logits(task.load_models()["model"], task, "relabel")
            if options.rank_loss == "global":
                losses = self._sample_losses(logits, task)
            pool = noisy if options.relabel_pool == "noisy" else torch.ones_like(noisy)
            count = relabeling.relabel_count(client.num_samples, noise_level, params.pi)
            candidates = relabeling.largest_loss_indices(losses, pool, count)
            changed = self._relabel(candidates, logits, task)
        return client.reply({}, noise_level=noise_level, relabeled=changed)

    def relabel_confident(self, task: LocalTask) -> Reply:
        """Client task: replace the label of every sample with a confident prediction."""
        samples = torch.arange(task.client.num_samples)
        logits = self._compute_logits(task.load_models()["model"], task, "relabel")
        return task.client.reply({}, relabeled=self._relabel(samples, logits, task))

    def _relabel(self, candidates: Tensor, logits: Tensor, task: LocalTask) -> int:
        """Replace labels of candidates with confident predictions. Returns how many changed."""
        client, theta = task.client, self.params.theta
        labels, changed = relabeling.relabel(client.labels.cpu(), candidates, logits, theta)
        (client.labels,) = client.upload(labels)
        return changed

    def _compute_logits(self, model: FlatModel, task: LocalTask, purpose: str) -> Tensor:
        """Logits of all samples, on the host: ranks and distances must not depend on a device."""
        view, generator = self.params.options.score_view, task.generator(purpose)
        return training.map_client_samples(task.client, [model.eval()], view, generator)[0].cpu()

    def _sample_losses(self, logits: Tensor, task: LocalTask) -> Tensor:
        labels, kind = task.client.labels.cpu(), self.params.options.sample_loss
        return relabeling.sample_losses(logits, labels, kind)
