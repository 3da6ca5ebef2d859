"""Losses that two or more methods share. Pure functions of tensors."""

import torch
import torch.nn.functional as F
from torch import Tensor


def cross_entropy(logits: Tensor, labels: Tensor, reduction: str = "mean") -> Tensor:
    """Cross-entropy with hard labels, int64 (n,), or soft labels, float (n, classes)."""
    return F.cross_entropy(logits, labels, reduction=reduction)


def entropy(probabilities: Tensor) -> Tensor:
    """Shannon entropy of each row, in nats."""
    return -(probabilities * probabilities.clamp_min(1e-12).log()).sum(1)


def sharpen(probabilities: Tensor, temperature: float) -> Tensor:
    """p^(1/T), normalized. T < 1 lowers the entropy of each row."""
    powered = probabilities ** (1.0 / temperature)
    return powered / powered.sum(1, keepdim=True)


def softmax_twice_loss(probabilities: Tensor, labels: Tensor, reduction: str = "mean") -> Tensor:
    """-log softmax(p)[y]: cross-entropy with probabilities in the place of logits.

    The loss is bounded and its gradient vanishes for confident predictions of any class, so it is
    robust to wrong labels. The released code of FedCorr, LSG and FedLSR computes this form.
    """
    return F.cross_entropy(probabilities, labels, reduction=reduction)


def one_hot(labels: Tensor, num_classes: int) -> Tensor:
    """Hard labels as float rows. Soft labels are returned unchanged."""
    if labels.is_floating_point():
        return labels
    return F.one_hot(labels, num_classes).to(torch.float32)


def tempered_softmax(logits: Tensor, temperature: float) -> Tensor:
    """softmax(z / T), clamped to [1e-6, 1] because LSG and FedLSR take its logarithm.

    Clamped entries have no gradient. At T = 1/3 they are frequent, so log-softmax is no substitute.
    """
    return (logits / temperature).softmax(1).clamp(1e-6, 1.0)


def kl_terms(target: Tensor, probabilities: Tensor) -> Tensor:
    """Terms p_c (log p_c - log q_c) of KL(p || q), (n, classes). All entries must be positive."""
    return target * (target.log() - probabilities.log())


def js_terms(first: Tensor, second: Tensor) -> Tensor:
    """Terms of the Jensen-Shannon divergence, (n, classes). All entries must be positive."""
    mean = (first + second) / 2
    return (kl_terms(first, mean) + kl_terms(second, mean)) / 2
