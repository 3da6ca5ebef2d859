"""FedCorr's mathematics (Xu et al., CVPR 2022) as functions of tensors."""

import torch
from torch import Tensor

from methods.core.flat_model import FlatModel
from methods.toolkit.losses import cross_entropy, softmax_twice_loss


def relabel_count(num_samples: int, noise_level: float, pi: float) -> int:
    """Number of samples to relabel."""
    # Truncated in this order, as in the official code: 44 samples, 30 noisy, pi = 0.5 give 14.
    return int(num_samples * noise_level * pi)


def largest_loss_indices(losses: Tensor, pool: Tensor, count: int) -> Tensor:
    """Positions of the `count` largest losses among the samples of a bool mask."""
    return losses.masked_fill(~pool, -torch.inf).topk(min(count, int(pool.sum()))).indices


def relabel(labels: Tensor, candidates: Tensor, logits: Tensor, theta: float) -> tuple[Tensor, int]:
    """Replace labels of candidates with confidence above theta. Also count the changes."""
    confidence, predicted = logits.softmax(1)[candidates].max(1)
    is_confident = confidence > theta
    new = labels.clone()
    new[candidates[is_confident]] = predicted[is_confident]
    return new, int((new != labels).sum())


def sample_losses(logits: Tensor, labels: Tensor, kind: str) -> Tensor:
    """Loss of each sample, (n,). `kind` is the option `sample_loss`."""
    if kind == "ce_on_probs":
        return softmax_twice_loss(logits.softmax(1), labels, reduction="none")
    return cross_entropy(logits, labels, reduction="none")


def add_proximal_grad(model: FlatModel, step: int, weight: float, form: str) -> None:
    """Add the gradient of weight * |w - w_t| (l2) or weight * |w - w_t|^2 (l2sq)."""
    if form == "l2sq":
        model.grad.add_(model.drift, alpha=2 * weight)
    elif step > 0:  # As in the official code, l2 does not act on the first batch of an epoch.
        drift = model.drift
        model.grad.addcmul_(drift, weight / drift.norm().clamp_min(1e-12))
