"""Fed-CNML's mathematics (Wu et al., Computer Science 51(10), 2024) as pure functions."""

import numpy as np
import torch
from torch import Tensor

ROUNDING = (
    1e-9  # a mean of equal divergences may fall below them by rounding; they are ties all the same
)


def binarise(scores: np.ndarray, tau1: float) -> tuple[float, np.ndarray]:
    """Equations 3 and 4 on scores[p, q], the accuracy of model q on client p's labels: mu1, and eta_q = data sets on which q scores well.

    The diagonal (a model on the data it was trained on) takes no part.
    """
    others = ~np.eye(len(scores), dtype=bool)
    highest = scores[others].max()
    average = min(
        scores[others].mean(), highest
    )  # a mean of equal numbers may exceed them by rounding
    threshold = highest - (highest - average) / tau1
    return float(threshold), ((scores >= threshold) & others).sum(axis=0)


def choose_clean(eta: np.ndarray, received: np.ndarray, mu2: int, least: int) -> np.ndarray:
    """S_clear: clients with eta > mu2; when these are fewer than `least`, the best by eta, then by mean received score, then by number."""
    order = np.lexsort((-received, -eta))
    return np.sort(order[: max(int((eta > mu2).sum()), least)])


def jensen_shannon(probability: Tensor) -> Tensor:
    """Divergence (base 2) between a prediction and a one-hot label, which depends on the label's probability a alone (equation 7).

    JSD = 1 - ((1 + a) log2(1 + a) - a log2 a) / 2: falls from 1 at a = 0 to 0 at a = 1.
    """
    a = probability.double().clamp(0, 1)
    return 1 - (torch.xlogy(1 + a, 1 + a) - torch.xlogy(a, a)) / (2 * np.log(2))


def cutoff(mean: np.ndarray, minimum: np.ndarray, tau2: float, jsd_limit: float) -> np.ndarray:
    """Equation 8 in the form its text describes: the mean, lowered towards the minimum when the mean reaches J_u."""
    return np.where(mean >= jsd_limit, mean - (mean - minimum) / tau2, mean)


def sample_weights(noisy: Tensor, mean_over: str) -> Tensor:
    """Weights of a batch's samples. `subsets`: their sum adds the mean of the clean to that of the noisy ones, 0 when there are none;
    `batch`: one mean over both."""
    if mean_over == "batch":
        return torch.full((len(noisy),), 1.0 / len(noisy))
    num_noisy = noisy.sum()
    return 1.0 / torch.where(noisy, num_noisy, len(noisy) - num_noisy)


def triplet(logits: Tensor, own: Tensor, other: Tensor, margin: float) -> Tensor:
    """Equations 11 to 13 per sample: the local network shall stay nearer to its own global network than to the other one."""
    return ((logits - own).square().sum(1) - (logits - other).square().sum(1) + margin).clamp_min(0)
