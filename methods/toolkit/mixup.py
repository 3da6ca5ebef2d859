"""Mixup (Zhang et al., ICLR 2018): convex combinations of pairs of samples."""

import numpy as np
import torch
from torch import Tensor


def sample_lambda(alpha: float, rng: np.random.Generator) -> float:
    """lambda ~ Beta(alpha, alpha), the weight of the first sample of a pair; 1 if alpha is 0."""
    return float(rng.beta(alpha, alpha)) if alpha > 0 else 1.0


def mix(x: Tensor, y: Tensor, lam: float, partners: Tensor) -> tuple[Tensor, Tensor]:
    """lambda * (x, y) + (1 - lambda) * (x, y)[partners]. `y` has one probability row per sample."""
    return torch.lerp(x[partners], x, lam), torch.lerp(y[partners], y, lam)
