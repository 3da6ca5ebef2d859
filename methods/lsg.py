"""LSG: Local Self-Guiding (Bai et al., CCGrid 2023)."""

from typing import Literal

import torch
from pydantic import model_validator
from torch import Tensor

from methods.core.contract import ClientPool, Diagnosis
from methods.core.errors import invalid
from methods.core.flat_model import FlatModel
from methods.core.params import Fraction, NonNegative, Positive, ProperFraction, parameters
from methods.core.registry import register
from methods.core.task import Batch, LocalTask, Models
from methods.fedavg import FedAvg, client_arrays
from methods.toolkit import losses
from methods.toolkit.schedules import ramp, rounds_from_fraction


@parameters
class LSGParams:
    sharpening: bool = True  # false: cross-entropy, Table V's "without sharpening"
    supervised_form: Literal["softmax_twice", "literal"] = "softmax_twice"  # see deviation 1
    sharpen_temperature: Positive = 0.5  # T_s
    sharpen_after_warmup: bool = False  # true: cross-entropy in rounds before t_wu (Section V-A)
    distillation: Literal["kl", "js", "none"] = "kl"  # divergence from the teacher, Table VI
    kl_reduction: Literal["mean", "batchmean", "linear"] = "mean"  # see deviation 3
    backprop_distillation: bool = True  # see deviation 2
    temperature: Positive = 1 / 3  # T
    ema_alpha: ProperFraction = 0.9  # alpha, decay of the ensemble logits
    lambda_: NonNegative = 1.0  # lambda, weight of the distillation
    warmup_fraction: Fraction = 0.2  # t_wu as a fraction of all rounds

    @model_validator(mode="after")
    def _check_reduction(self) -> "LSGParams":
        if self.distillation == "js" and self.kl_reduction == "linear":
            expected = "mean or batchmean with method.distillation=js"
            raise invalid("method.kl_reduction", self.kl_reduction, expected)
        return self


@register(family="robust loss", paper="Bai et al., CCGrid 2023")
class LSG(FedAvg):
    """Clients sharpen their predictions and distill from a moving average of their own logits.

    Each client keeps an exponential moving average of the logits of each of its samples, the
    ensemble. The local loss is a cross-entropy of sharpened predictions (Eq. 5) plus lambda times
    the divergence of the predictions from the ensemble (Eq. 7). lambda ramps up in t_wu rounds.

    Deviations:

    1. Eq. 5 read literally is cross-entropy with doubled logits, which fits wrong labels more than
       FedAvg does: `supervised_form=literal`, -log p_s[y]. The default is that of the released
       code, softmax twice, -log softmax(p_s)[y]. No other form can give Tables I, V and VI.
    2. The released code computes the distillation loss but does not backpropagate it, which is
       Table VI's "without" column: `backprop_distillation=false`. The default follows Eq. 8.
    3. The released code passes probabilities where its KL function expects their logarithms, so it
       computes p_T (log p_T - q): `kl_reduction=linear`. The default is the KL divergence of Eq. 7.
       `mean` averages over samples and classes, as the code does, and `batchmean` over samples.
    4. The ensemble uses the logits of the training pass, with dropout and before the optimizer
       step, as in the released code. The paper says "at the current epoch".
    5. Each client has its own ensemble, as in the paper. The released code has one for all clients.
    6. In its first epoch a client has a uniform teacher, as in the paper and the released code.
    7. The paper names no loss before delayed sharpening starts. Here it is cross-entropy.
    8. The paper uses lambda 0.4 at moderate and 1.0 at extreme noise. Such a choice depends on the
       true noise, so it is made in the configuration of an experiment.
    """

    name = "lsg"
    params: LSGParams
    client_state_doc = "ensemble logits of each sample and the number of completed epochs"
    fedavg_equivalent_params = {"sharpening": False, "distillation": "none"}

    def start_local_update(self, models: Models, task: LocalTask) -> None:
        params, client, round, local = self.params, task.client, task.ctx.round, task.local
        warmup = rounds_from_fraction(params.warmup_fraction, task.ctx.spec)
        delayed = params.sharpen_after_warmup and round < warmup
        local.sharpens = params.sharpening and not delayed
        local.weight = params.lambda_ * ramp(round, warmup)
        local.epochs_before = client.state.get("epochs", 0)  # j_k
        local.ensemble = client.state.get("ensemble")
        if local.ensemble is None:
            shape = client.num_samples, client.num_classes
            local.ensemble = torch.zeros(shape, device=client.device)

    def before_epoch(self, epoch: int, order: Tensor, task: LocalTask) -> None:
        params, local = self.params, task.local
        local.order, local.logits, local.teacher = order, [], None
        if params.distillation != "none" and params.backprop_distillation and local.weight:
            epochs = local.epochs_before + epoch
            teacher = correct_bias(local.ensemble[order], params.ema_alpha, epochs)
            teacher = losses.tempered_softmax(teacher, params.temperature)
            local.teacher = teacher, teacher.log()

    def batch_loss(self, model: FlatModel, batch: Batch, task: LocalTask) -> Tensor:
        params, local = self.params, task.local
        logits = model(batch.x)
        if local.sharpens:
            form, temperature = params.supervised_form, params.sharpen_temperature
            loss = sharpened_loss(logits, batch.y, temperature, form)
        else:
            loss = losses.cross_entropy(logits, batch.y)
        if local.teacher is not None:
            teacher, log_teacher = (values[batch.rows] for values in local.teacher)
            loss = loss + local.weight * divergence(logits, teacher, log_teacher, params)
        local.logits.append(logits.detach())
        return loss

    def after_epoch(self, epoch: int, task: LocalTask) -> None:
        """Update the ensemble (Eq. 9). A sample occurs once per epoch."""
        local, alpha = task.local, self.params.ema_alpha
        if self.params.distillation == "none":
            return
        logits = torch.empty_like(local.ensemble)
        logits[local.order] = torch.cat(local.logits)
        local.ensemble = alpha * local.ensemble + (1 - alpha) * logits

    def finish_local_update(self, models: Models, task: LocalTask) -> None:
        if self.params.distillation != "none":
            epochs = task.local.epochs_before + task.ctx.train.local_epochs
            task.client.state.update(ensemble=task.local.ensemble, epochs=epochs)

    def diagnose(self, pool: ClientPool) -> Diagnosis:
        """Labels are the classes of the ensembles. Noisy: samples whose current label differs."""
        labels = {k: z.argmax(1) for k, z in client_arrays(pool, "ensemble").items()}
        noisy = {k: classes != pool.labels(k).numpy() for k, classes in labels.items()}
        return Diagnosis(noisy_samples=noisy, labels=labels)


def sharpened_loss(logits: Tensor, labels: Tensor, temperature: float, form: str) -> Tensor:
    """Eq. 4 and 5. Sharpening a softmax with T_s is softmax(z / T_s)."""
    sharpened = logits / temperature
    if form == "literal":
        return losses.cross_entropy(sharpened, labels)
    return losses.softmax_twice_loss(sharpened.softmax(1), labels)


def divergence(logits: Tensor, teacher: Tensor, log_teacher: Tensor, params: LSGParams) -> Tensor:
    """Eq. 6 and 7: divergence of tempered predictions from the teacher's, which are tempered."""
    student = losses.tempered_softmax(logits, params.temperature)
    if params.kl_reduction == "linear":
        return (teacher * (log_teacher - student)).mean()
    if params.distillation == "js":
        values = losses.js_terms(teacher, student)
    else:
        values = teacher * (log_teacher - student.log())
    return values.mean() if params.kl_reduction == "mean" else values.sum(1).mean()


def correct_bias(ensemble: Tensor, alpha: float, epochs: int) -> Tensor:
    """Divide a moving average that started from 0 by its total weight. Before epoch 1 it is 0."""
    return ensemble / (1 - alpha**epochs) if epochs else ensemble
