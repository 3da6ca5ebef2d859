"""Mixup (Zhang et al., ICLR 2018): convex combinations of pairs of samples."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Generator, Tensor


def sample_lambda(alpha: float, rng: np.random.Generator) -> float:
    """lambda ~ Beta(alpha, alpha), the weight of the first sample of a pair; 1 if alpha is 0."""
    return float(rng.beta(alpha, alpha)) if alpha > 0 else 1.0


def batch_sizes(count: int, size: int) -> list[int]:
    """Sizes of the batches of an epoch."""
    return [min(size, count - start) for start in range(0, count, size)]


def draw(
    sizes: Sequence[int], alpha: float, rng: np.random.Generator, generator: Generator
) -> tuple[Tensor, Tensor, Tensor]:
    """One lambda per batch, and partners within it: for each sample, in the order of an epoch.

    Partners are given by their rows in the batch, and by their rows in the epoch.
    """
    lam = torch.tensor([sample_lambda(alpha, rng) for _ in sizes])
    partners = torch.cat([torch.randperm(size, generator=generator) for size in sizes])
    counts = torch.tensor(sizes)
    starts = (counts.cumsum(0) - counts).repeat_interleave(counts)
    return lam.repeat_interleave(counts), partners, partners + starts


def mix(values: Tensor, lam: Tensor | float, partners: Tensor) -> Tensor:
    """lambda * values + (1 - lambda) * values[partners]. lambda can differ between rows."""
    if isinstance(lam, Tensor):
        lam = lam.view(-1, *(1 for _ in values.shape[1:]))
    return torch.lerp(values.index_select(0, partners), values, lam)
