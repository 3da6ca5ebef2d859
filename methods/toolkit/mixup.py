"""Mixup (Zhang et al., ICLR 2018): convex combinations of pairs of samples. Pure functions."""

import numpy as np
import torch
from torch import Tensor


def draw(alpha: float, rng: np.random.Generator) -> float:
    """lambda ~ Beta(alpha, alpha), the share of the first sample of a pair; alpha 0 mixes nothing."""
    return float(rng.beta(alpha, alpha)) if alpha > 0 else 1.0


def mix(x: Tensor, y: Tensor, share: float, partners: Tensor) -> tuple[Tensor, Tensor]:
    """share * (x, y) + (1 - share) * (x, y)[partners]; `y` holds one row of class probabilities per sample."""
    return torch.lerp(x[partners], x, share), torch.lerp(y[partners], y, share)
