"""Symmetric cross-entropy (Wang et al., ICCV 2019) as the clients' loss."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from methods.core.contract import Batch, RoundContext
from methods.core.flat_model import FlatModel
from methods.core.registry import register
from methods.fedavg import FedAvg
from methods.toolkit.losses import cross_entropy, one_hot

LABEL_FLOOR = (
    1e-4  # stands for the probability 0 of a one-hot label: log 0 becomes A = ln 1e-4 = -9.2103
)
PROBABILITY_FLOOR = 1e-7


@dataclass(frozen=True)
class SymmetricCEParams:
    alpha: float = 0.1  # alpha, weight of cross-entropy
    beta: float = 1.0  # beta, weight of reverse cross-entropy

    def __post_init__(self) -> None:
        for name in ("alpha", "beta"):
            if getattr(self, name) < 0:
                raise ValueError(
                    f"method.{name}={getattr(self, name)} is not legal; legal: at least 0"
                )


@register(family="robust loss", paper="Wang et al., ICCV 2019")
class SymmetricCE(FedAvg):
    """FedAvg whose clients minimise cross-entropy plus reverse cross-entropy.

    Deviations: the paper trains one model centrally; here every client uses its loss. The constants are those of the released code (labels held
    above 1e-4, probabilities above 1e-7). The paper names no weights for Fashion-MNIST: those of CIFAR-10 are used there.
    """

    name = "symmetric_ce"
    Params = SymmetricCEParams
    params: SymmetricCEParams
    fedavg_equivalent_params: ClassVar = {"alpha": 1.0, "beta": 0.0}

    def batch_loss(self, net: FlatModel, batch: Batch, ctx: RoundContext) -> Tensor:
        logits = net(batch.x)
        return self.params.alpha * cross_entropy(
            logits, batch.y
        ) + self.params.beta * reverse_cross_entropy(logits, batch.y)


def reverse_cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """-sum_c p_c log y_c, the mean over samples; for a hard label 9.2103 (1 - p_y)."""
    probabilities = logits.softmax(1).clamp(PROBABILITY_FLOOR, 1.0)
    log_labels = one_hot(labels, logits.shape[1]).clamp(LABEL_FLOOR, 1.0).log()
    return -(probabilities * log_labels).sum(1).mean()
