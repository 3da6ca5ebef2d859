"""Fed-CNML (Wu, Zhang, Yue, Ji and Jing; Computer Science 51(10), 2024)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from methods.core import training
from methods.core.contract import ClientPool, Diagnosis, ServerState
from methods.core.errors import invalid
from methods.core.registry import register
from methods.core.task import Batch, LocalTask, Models, Payload, Reply, RoundContext, TaskSpec
from methods.fedavg import FedAvg, client_arrays, sample_cohort
from methods.fedcnml import scoring
from methods.fedcnml.params import FedCNMLParams, learning_rate, make_schedule
from methods.toolkit.losses import cross_entropy, one_hot, sharpen

MAX_MODEL_BYTES_PER_CALL = 64 * 2**20  # models sent to a client at once for scoring


@dataclass(kw_only=True)
class FedCNMLState(ServerState):
    clean: np.ndarray  # clean clients; all before scoring
    sums: np.ndarray  # (K, models) sum of the divergences that a client reported last
    minima: np.ndarray  # (K, models) their minimum
    counts: np.ndarray  # (K,) their number
    eta: np.ndarray | None = None  # (K,) neighbors of each client; None without scoring
    scored_models: list[Tensor] = field(default_factory=list)  # models to score in this round
    values: dict[str, float] = field(default_factory=dict)  # for the learning curve
    arrays: dict[str, Any] = field(default_factory=dict)  # for the journal


@register(family="noise detection", paper="Wu et al., Computer Science 2024")
class FedCNML(FedAvg):
    """Finds clean clients by mutual scoring; two models then select samples for each other.

    Stages:

    1. `scoring`: every client trains a model and scores the models of the others on its labels.
       Models that score well on many clients mark clean clients.
    2. `warmup`: clean clients train two models with cross-entropy.
    3. `federation`: all clients train. Each model selects noisy samples for the other, by the JS
       divergence of prediction and label. They get pseudo-labels and a triplet loss.

    Deviations:

    1. The paper has no official code and no tau_1, tau_2, J_u, lambda, T, local epochs and client
       fraction. Our choice, or the values of UNICON (CVPR 2022), whose selection it adapts.
    2. Epochs of the paper are read as rounds, and as local epochs in the scoring stage.
    3. Equation 8 raises the cutoff where the text lowers it. The text is followed.
    4. The sign of equation 13 moves a model away from its global model. The text is followed.
    5. Equations 9 and 10 take separate means over clean and noisy samples, here within a batch. One
       noisy sample can then outweigh all others. `mean_over=batch` takes one mean.
    6. The triplet loss uses logits. The global models are in training mode like the local ones. A
       `margin` above 0 activates it before a model has moved half of the way to the other.
    7. If fewer clients are clean than a round needs, or than a tenth of all, the next best scores
       are added. Without noise all scores are close to their maximum and few exceed the threshold.
    8. The cutoffs are means over the last reported divergences. With `statistics=full` every client
       reports in every round, as in the paper.
    9. The paper does not define ablation c2. Here it is one model, own selection, no triplet loss.
    10. `mu2=0` uses all clients, as Table 2 of the paper says, although eta > 0 would not.
    """

    name = "fedcnml"
    params: FedCNMLParams
    state: FedCNMLState
    model_names = ("a", "b")
    client_state_doc = "predicted noisy samples of the last local update"

    # Server side

    def validate(self, spec: TaskSpec) -> None:
        super().validate(spec)
        scored = self.params.client_scoring_enabled
        least, terms = 2 * spec.clients_per_round, "2 * federation.clients_per_round"
        if scored:
            least, terms = least + spec.num_clients, f"federation.num_clients + {terms}"
        if (budget := spec.participations) < least:
            raise invalid("budget.participations", budget, f"at least {terms} = {least}")
        if scored and spec.num_clients < 2:
            raise invalid("federation.num_clients", 1, "at least 2, or method.ablation=c1")

    def setup(self, spec: TaskSpec, pool: ClientPool, ctx: RoundContext) -> None:
        super().setup(spec, pool, ctx)
        scored, _, self.rounds = make_schedule(self.params, spec)
        later = self.rounds * spec.clients_per_round
        self.planned_participations = scored * spec.num_clients + later

    def initial_state(self, pool: ClientPool, ctx: RoundContext) -> FedCNMLState:
        models, clients = super().initial_state(pool, ctx).models, pool.num_clients
        if self.params.ablation == "c2":
            del models["b"]
        sums, minima = np.zeros((clients, len(models))), np.full((clients, len(models)), np.inf)
        clean, counts = np.arange(clients), np.zeros(clients)
        return FedCNMLState(models, clean=clean, sums=sums, minima=minima, counts=counts)

    def stage(self, round: int) -> str | None:
        scored, warmup, rounds = make_schedule(self.params, self.spec)
        if round < scored:
            return "scoring"
        if round < scored + warmup:
            return "warmup"
        return "federation" if round < scored + rounds else None

    def select_clients(self, pool: ClientPool, ctx: RoundContext) -> Sequence[int]:
        if ctx.stage == "scoring":
            return range(pool.num_clients)
        if ctx.stage == "warmup":
            return sample_cohort(self.state.clean, self.spec.clients_per_round, ctx)
        return super().select_clients(pool, ctx)

    def before_round(self, pool: ClientPool, ids: Sequence[int], ctx: RoundContext) -> None:
        state, params = self.state, self.params
        state.arrays = {}  # The scores go to the journal once.
        if ctx.stage != "federation":
            return
        cohort, measured = set(ids), range(pool.num_clients) if params.statistics == "full" else ids
        payloads = {k: Payload(state.models, {"trains": k in cohort}) for k in measured}
        for reply in pool.run_task(measured, self.measure, lambda k, _: payloads[k], ctx):
            k = reply.client_id
            state.sums[k], state.minima[k] = reply.values["sums"], reply.values["minima"]
            state.counts[k] = reply.num_samples
        mean, minimum = state.sums.sum(axis=0) / state.counts.sum(), state.minima.min(axis=0)
        cutoffs = scoring.divergence_cutoff(mean, minimum, params.tau2, params.jsd_limit)
        state.shared["cutoffs"] = cutoffs

    def payload(self, client_id: int, ctx: RoundContext) -> Payload:
        if ctx.stage == "scoring":
            return Payload({"a": self.state.models["a"]}, {})
        # In the federation stage, `measure` has already sent the models to the cohort.
        models = {} if ctx.stage == "federation" else self.state.models
        return Payload(models, self.state.shared)

    def aggregate(self, replies: Sequence[Reply], ctx: RoundContext) -> None:
        state = self.state
        if ctx.stage == "scoring":
            state.scored_models = [reply.models["a"] for reply in replies]
            return
        super().aggregate(replies, ctx)
        if ctx.stage == "federation":
            cutoffs = zip(state.models, state.shared["cutoffs"], strict=True)
            state.values = {f"cutoff_{name}": value for name, value in cutoffs}
            if self.params.uses_triplet:
                judged = sum(reply.values["judged"] for reply in replies)
                active = sum(reply.values["active"] for reply in replies)
                state.values["triplet_active"] = active / max(judged, 1)

    def after_round(self, pool: ClientPool, ctx: RoundContext) -> None:
        if ctx.stage != "scoring":
            return
        state = self.state
        scores = self._mutual_scores(pool, ctx)
        state.scored_models = []
        mu1, state.eta = scoring.count_neighbors(scores, self.params.tau1)
        received, given = np.nanmean(scores, axis=0), np.nanmean(scores, axis=1)
        least = max(self.spec.clients_per_round, -(-self.spec.num_clients // 10))
        state.clean = scoring.select_clean_clients(state.eta, received, self.params.mu2, least)
        state.arrays = {"eta": state.eta, "mu1": mu1, "received": received, "given": given}
        state.arrays["clean"] = state.clean

    def _mutual_scores(self, pool: ClientPool, ctx: RoundContext) -> np.ndarray:
        """Accuracy of model q on the labels of client p at [p, q]. The diagonal is NaN."""
        models, clients = self.state.scored_models, range(pool.num_clients)
        scores = np.full((len(clients), len(clients)), np.nan)
        model_bytes = models[0].numel() * models[0].element_size()
        chunk_size = max(MAX_MODEL_BYTES_PER_CALL // model_bytes, 1)
        for start in clients[::chunk_size]:
            chunk = clients[start : start + chunk_size]
            others = {p: [q for q in chunk if q != p] for p in clients}
            payloads = {p: Payload({str(q): models[q] for q in others[p]}, {}) for p in clients}
            scoring_clients = [p for p in clients if others[p]]
            for reply in pool.run_task(scoring_clients, self.score, lambda p, _: payloads[p], ctx):
                scores[reply.client_id, others[reply.client_id]] = reply.values["accuracies"]
        return scores

    def diagnose(self, pool: ClientPool) -> Diagnosis:
        state = self.state
        masks = client_arrays(pool, "noisy") or None
        diagnosis = Diagnosis(noisy_samples=masks, values=state.values, arrays=state.arrays)
        if state.eta is None:
            return diagnosis
        noisy = np.setdiff1d(range(pool.num_clients), state.clean).tolist()
        return replace(diagnosis, client_scores=-state.eta, noisy_clients=noisy)

    # Client side

    @torch.no_grad()
    def score(self, task: LocalTask) -> Reply:
        """Client task: accuracy of each model of the payload on the client's labels."""
        client, num_samples = task.client, self.params.scoring_samples
        index = torch.arange(client.num_samples, device=client.device)
        if 0 < num_samples < client.num_samples:
            # The same samples for all models, even if they come in several payloads.
            order = torch.randperm(client.num_samples, generator=task.generator("scoring"))
            (index,) = client.upload(order[:num_samples])
        vectors = list(task.payload.models.values())
        model = client.load_model(vectors[0]).eval()
        correct = []
        for part in index.split(training.INFERENCE_BATCH_SIZE):
            x, y = client.images(part), client.labels[part]
            hits = [(model.load(vector)(x).argmax(1) == y).sum() for vector in vectors]
            correct.append(torch.stack(hits))
        accuracies = np.asarray(torch.stack(correct).sum(0).cpu()) / len(index)
        return client.reply({}, accuracies=accuracies)

    def measure(self, task: LocalTask) -> Reply:
        """Client task: report divergences. The cohort also keeps them for its local updates."""
        client, models = task.client, task.load_models()
        predictions = torch.stack(training.predict_proba(client, *models.values()))
        labels = client.labels.expand(len(models), -1)[:, :, None]
        # On the host in float64, which some devices do not have. Arrays in the state stay there.
        of_label = predictions.gather(2, labels).squeeze(2).cpu()
        divergences = scoring.jensen_shannon(of_label)
        if task.payload.shared["trains"]:
            pseudo = sharpen(predictions.mean(0), self.params.temperature)
            client.state.update(divergences=divergences.numpy(), pseudo=pseudo)
            client.state["models"] = dict(task.payload.models)
        return client.reply({}, sums=divergences.sum(1).numpy(), minima=divergences.amin(1).numpy())

    def local_update(self, task: LocalTask) -> Reply:
        if task.ctx.stage == "federation":  # The models came with `measure`.
            models = task.client.state.pop("models")
            task = replace(task, payload=Payload(models, task.payload.shared))
        return super().local_update(task)

    def start_local_update(self, models: Models, task: LocalTask) -> None:
        """Select the noisy samples of each model and their targets (eq. 9 and 10)."""
        if task.ctx.stage != "federation":
            return
        client, local = task.client, task.local
        divergences, pseudo = (client.state.pop(name) for name in ("divergences", "pseudo"))
        cutoffs = task.payload.shared["cutoffs"][:, None]
        # Each model uses the selection of the other; a single model uses its own.
        noisy = (divergences > cutoffs + scoring.TIE_TOLERANCE)[::-1].copy()
        (local.noisy,) = client.upload(torch.from_numpy(noisy))
        labels = one_hot(client.labels, client.num_classes)
        local.targets = torch.where(local.noisy[:, :, None], pseudo, labels)
        client.state["noisy"] = local.noisy[0].clone()
        local.global_models = []
        if self.params.uses_triplet:
            local.global_models = [model.train() for model in task.load_models().values()]
        local.judged, local.hinges = 0, []

    def train_options(self, task: LocalTask) -> Mapping[str, Any]:
        options: dict[str, Any] = {"lr": learning_rate(self.params, task.ctx)}
        if task.ctx.stage == "scoring":
            options["local_epochs"] = self.params.scoring_epochs
        elif task.ctx.stage == "federation":
            options["view"] = self.params.view
        return options

    def before_epoch(self, epoch: int, order: Tensor, task: LocalTask) -> None:
        if task.ctx.stage != "federation":
            return
        local, size = task.local, task.ctx.train.batch_size
        local.epoch_noisy, local.epoch_targets = local.noisy[:, order], local.targets[:, order]
        local.weights = scoring.sample_weights(local.epoch_noisy, size, self.params.mean_over)
        # Read once per epoch: which batches have noisy samples.
        num_noisy = scoring.count_in_batches(local.epoch_noisy, size).sum(0)
        local.has_noisy = num_noisy[::size].tolist()
        local.judged += sum(local.has_noisy) if local.global_models else 0

    def joint_loss(self, models: Models, batch: Batch, task: LocalTask) -> Tensor:
        """Cross-entropy with given or pseudo-labels, plus the triplet loss (eq. 9 to 15)."""
        if task.ctx.stage != "federation":
            return super().joint_loss(models, batch, task)
        local, params, rows = task.local, self.params, batch.rows
        global_logits = []
        if local.has_noisy[batch.step]:
            with torch.no_grad():
                global_logits = [model(batch.x) for model in local.global_models]
        losses = []
        for i, model in enumerate(models.values()):
            logits = model(batch.x)
            terms = cross_entropy(logits, local.epoch_targets[i, rows], reduction="none")
            if global_logits:
                own, other = global_logits[i], global_logits[1 - i]
                hinge = scoring.triplet(logits, own, other, params.margin)
                hinge = hinge * local.epoch_noisy[i, rows]
                terms = terms + params.triplet_weight * hinge
                local.hinges.append(hinge.detach())
            losses.append((local.weights[i, rows] * terms).sum())
        return torch.stack(losses).sum()

    def finish_local_update(self, models: Models, task: LocalTask) -> Mapping[str, Any]:
        if task.ctx.stage != "federation":
            return {}
        hinges = task.local.hinges
        active = int((torch.cat(hinges) > 0).sum()) if hinges else 0
        return {"judged": task.local.judged, "active": active}
