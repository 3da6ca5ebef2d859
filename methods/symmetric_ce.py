"""Symmetric cross-entropy (Wang et al., ICCV 2019) as the local loss."""

from torch import Tensor

from methods.core.flat_model import FlatModel
from methods.core.params import NonNegative, parameters
from methods.core.registry import register
from methods.core.task import Batch, LocalTask
from methods.fedavg import FedAvg
from methods.toolkit.losses import cross_entropy, one_hot


@parameters
class SymmetricCEParams:
    alpha: NonNegative = 0.1  # alpha, weight of cross-entropy
    beta: NonNegative = 1.0  # beta, weight of reverse cross-entropy


@register(family="robust loss", paper="Wang et al., ICCV 2019")
class SymmetricCE(FedAvg):
    """FedAvg with cross-entropy plus reverse cross-entropy as the local loss.

    Deviations:

    1. The paper trains one model centrally. Here each client uses the loss.
    2. As released, labels are clamped to 1e-4 (the paper's A = -9.2103), probabilities to 1e-7.
    3. The paper has no weights for Fashion-MNIST. Those of CIFAR-10 are used.
    """

    name = "symmetric_ce"
    params: SymmetricCEParams
    fedavg_equivalent_params = {"alpha": 1.0, "beta": 0.0}

    def before_epoch(self, epoch: int, order: Tensor, task: LocalTask) -> None:
        client = task.client
        task.local.log_labels = log_labels(client.labels[order], client.num_classes)

    def batch_loss(self, model: FlatModel, batch: Batch, task: LocalTask) -> Tensor:
        logits, targets = model(batch.x), task.local.log_labels[batch.rows]
        forward = self.params.alpha * cross_entropy(logits, batch.y)
        return forward + self.params.beta * reverse_cross_entropy(logits, targets)


def log_labels(labels: Tensor, num_classes: int) -> Tensor:
    """log y_c, (n, classes). Zeros of y are clamped."""
    return one_hot(labels, num_classes).clamp(1e-4, 1.0).log()


def reverse_cross_entropy(logits: Tensor, log_labels: Tensor) -> Tensor:
    """Mean over samples of -sum_c p_c log y_c. For a hard label this is 9.2103 (1 - p_y)."""
    return -(logits.softmax(1).clamp(1e-7, 1.0) * log_labels).sum(1).mean()
