"""Fed-CNML's mathematics (Wu et al., Computer Science 51(10), 2024) as pure functions."""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

# The mean of equal values can be slightly smaller than the values.
TIE_TOLERANCE = 1e-9


def count_neighbors(scores: np.ndarray, tau1: float) -> tuple[float, np.ndarray]:
    """Threshold mu_1 and eta_q, the number of clients on which model q scores well (eq. 3 and 4).

    `scores[p, q]` is the accuracy of model q on client p's labels. The diagonal is ignored.
    """
    others = ~np.eye(len(scores), dtype=bool)
    highest = scores[others].max()
    # The mean of equal values can be slightly larger than the values.
    average = min(scores[others].mean(), highest)
    threshold = highest - (highest - average) / tau1
    return float(threshold), ((scores >= threshold) & others).sum(axis=0)


def select_clean_clients(eta: np.ndarray, received: np.ndarray, mu2: int, least: int) -> np.ndarray:
    """S_clear: clients with eta > mu2, but at least the first `least` by eta, score and number."""
    order = np.lexsort((-received, -eta))
    return np.sort(order[: max(int((eta > mu2).sum()), least)])


def jensen_shannon(probability: Tensor) -> Tensor:
    """Divergence (base 2) between a prediction and a one-hot label (eq. 7).

    With the probability a of the label: 1 - ((1 + a) log2(1 + a) - a log2 a) / 2, from 1 to 0.
    """
    a = probability.double().clamp(0, 1)
    return 1 - (torch.xlogy(1 + a, 1 + a) - torch.xlogy(a, a)) / (2 * math.log(2))


def divergence_cutoff(mean: np.ndarray, low: np.ndarray, tau2: float, limit: float) -> np.ndarray:
    """Equation 8 as its text describes it: the mean, lowered towards the minimum from J_u on."""
    return np.where(mean >= limit, mean - (mean - low) / tau2, mean)


def sample_weights(noisy: Tensor, batch_size: int, mean_over: str) -> Tensor:
    """Weights of the samples of an epoch in their batches, (models, n).

    `batch`: the weighted sum is the mean over the batch. `subsets`: it is the mean over the clean
    samples plus the mean over the noisy samples, where an empty subset counts 0.
    """
    num_noisy, num_clean = (count_in_batches(mask, batch_size) for mask in (noisy, ~noisy))
    if mean_over == "batch":
        return 1.0 / (num_noisy + num_clean)
    return 1.0 / torch.where(noisy, num_noisy, num_clean)


def count_in_batches(mask: Tensor, batch_size: int) -> Tensor:
    """For each sample of an epoch, the number of samples of a mask in its batch, (models, n)."""
    padded: Tensor = F.pad(mask, (0, -mask.shape[1] % batch_size)).view(len(mask), -1, batch_size)
    counts = padded.sum(2, keepdim=True).expand_as(padded)
    return counts.flatten(1)[:, : mask.shape[1]]


def triplet(logits: Tensor, own: Tensor, other: Tensor, margin: float) -> Tensor:
    """Triplet loss of each sample (eq. 11 to 13): stay closer to the own global model's logits."""
    return ((logits - own).square().sum(1) - (logits - other).square().sum(1) + margin).clamp_min(0)
