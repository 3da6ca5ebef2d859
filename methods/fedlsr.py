"""FedLSR: local self-regularization with two views (Jiang et al., CIKM 2022)."""

from collections.abc import Mapping
from typing import Any, Literal

from torch import Tensor

from methods.core.flat_model import FlatModel
from methods.core.params import Fraction, NonNegative, Positive, parameters
from methods.core.registry import register
from methods.core.task import Batch, LocalTask, Models
from methods.fedavg import FedAvg
from methods.toolkit.losses import entropy, js_terms, sharpen, softmax_twice_loss, tempered_softmax
from methods.toolkit.schedules import ramp, rounds_from_fraction


@parameters
class FedLSRParams:
    gamma: NonNegative = 0.4  # gamma, weight of the divergence between the views
    warmup_fraction: Fraction = 0.2  # t_w as a fraction of all rounds
    temperature: Positive = 1 / 3  # T_d
    sharpen_temperature: Positive = 0.5  # T_s
    lambda_e: NonNegative = 0.0  # lambda_e, weight of the entropy; 0: FedLSR, 0.6: FedLSR+
    entropy_form: Literal["fixed", "code"] = "fixed"  # see deviation 4


@register(family="robust loss", paper="Jiang et al., CIKM 2022")
class FedLSR(FedAvg):
    """Clients train on mixed, sharpened predictions of two views and align the two predictions.

    Predictions of two views of an image are mixed with a random weight and sharpened for the
    supervised loss. Their Jensen-Shannon divergence has weight gamma, which ramps up in t_w rounds.

    Deviations:

    1. As in the released code, the cross-entropy applies softmax to the sharpened probabilities.
    2. The second view is made from the image in [0, 1]. The released code augments the augmented,
       normalized batch, where color operations clip. Both augment once per batch.
    3. The cost counts the samples of the second view as scored, not as trained.
    4. The entropy term belongs to FedLSR+ and is off by default. The authors' notebook has it on,
       with weight 0.6. There it is the entropy of a softmax of the first view's probabilities:
       `entropy_form=code`. The default is the mean entropy of both views' predictions.
    5. The paper uses another optimizer and 5 clients per round. The configuration follows LSG.
    """

    name = "fedlsr"
    params: FedLSRParams

    def start_local_update(self, models: Models, task: LocalTask) -> None:
        warmup = rounds_from_fraction(self.params.warmup_fraction, task.ctx.spec)
        task.local.weight = self.params.gamma * ramp(task.ctx.round, warmup)
        task.local.mix_rng = task.rng("mixing")

    def train_options(self, task: LocalTask) -> Mapping[str, Any]:
        return {"second_view": ("second", task.generator("second_view"))}

    def batch_loss(self, model: FlatModel, batch: Batch, task: LocalTask) -> Tensor:
        local = task.local
        first, second = (model(x) for x in batch.both_views())
        mix = float(local.mix_rng.random())  # Beta(1, 1)
        return two_view_loss(first, second, batch.y, mix, local.weight, self.params)


def two_view_loss(
    first: Tensor, second: Tensor, labels: Tensor, mix: float, weight: float, params: FedLSRParams
) -> Tensor:
    """Loss of two views' logits. `mix` weights the first view, `weight` the divergence."""
    mixed = mix * first.softmax(1) + (1 - mix) * second.softmax(1)
    loss = softmax_twice_loss(sharpen(mixed, params.sharpen_temperature), labels)
    if weight:
        views = (tempered_softmax(logits, params.temperature) for logits in (first, second))
        loss = loss + weight * js_terms(*views).mean()
    if params.lambda_e:
        loss = loss + params.lambda_e * prediction_entropy(first, second, params)
    return loss


def prediction_entropy(first: Tensor, second: Tensor, params: FedLSRParams) -> Tensor:
    """Entropy term of FedLSR+, in the form `params.entropy_form`."""
    if params.entropy_form == "code":
        return entropy(tempered_softmax(first, params.temperature).softmax(1)).mean()
    return (entropy(first.softmax(1)) + entropy(second.softmax(1))).mean() / 2
