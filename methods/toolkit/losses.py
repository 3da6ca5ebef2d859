"""Losses used by two or more methods. Pure functions of tensors."""

import torch
import torch.nn.functional as F
from torch import Tensor


def cross_entropy(logits: Tensor, labels: Tensor, reduction: str = "mean") -> Tensor:
    """Cross-entropy against hard (int64) or soft (float, one row of probabilities per sample) labels."""
    return F.cross_entropy(logits, labels, reduction=reduction)


def entropy(probabilities: Tensor, floor: float = 1e-12) -> Tensor:
    """Shannon entropy of each row, natural logarithm."""
    return -(probabilities * probabilities.clamp_min(floor).log()).sum(1)


def sharpen(probabilities: Tensor, temperature: float) -> Tensor:
    """p^(1/T) renormalised: T < 1 makes a distribution more decided."""
    powered = probabilities ** (1.0 / temperature)
    return powered / powered.sum(1, keepdim=True)


def softmax_twice_loss(probabilities: Tensor, labels: Tensor, reduction: str = "mean") -> Tensor:
    """Cross-entropy that takes probabilities for logits, so that softmax acts twice: -log softmax(p)[y].

    Bounded (width 1), and flat where the model is sure of any class, hence robust against wrong labels. FedCorr's sample losses, LSG's and
    FedLSR's supervised terms are of this form in the code that produced their tables.
    """
    return F.cross_entropy(probabilities, labels, reduction=reduction)


def one_hot(labels: Tensor, num_classes: int) -> Tensor:
    """Hard labels as float rows; soft labels pass through."""
    return (
        labels if labels.is_floating_point() else F.one_hot(labels, num_classes).to(torch.float32)
    )


def tempered_softmax(logits: Tensor, temperature: float, floor: float = 1e-6) -> Tensor:
    """softmax(z / T) held above a floor, for divergences: LSG and FedLSR take the logarithm of the clamped values.

    With T = 1/3 the floor is often reached, and there the gradient is 0. A log-softmax would train differently.
    """
    return (logits / temperature).softmax(1).clamp(floor, 1.0)


def kl_terms(target: Tensor, probabilities: Tensor) -> Tensor:
    """The terms p_c (log p_c - log q_c) of KL(p || q), (n, classes); both arguments above 0. A row's sum is the divergence."""
    return target * (target.log() - probabilities.log())


def js_terms(first: Tensor, second: Tensor) -> Tensor:
    """The terms of the Jensen-Shannon divergence, (n, classes): half of each side's KL to their mean."""
    mean = (first + second) / 2
    return (kl_terms(first, mean) + kl_terms(second, mean)) / 2
