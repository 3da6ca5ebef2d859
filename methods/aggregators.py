"""Pure functions of an (M, P) matrix of client models."""

import numpy as np
import torch
from torch import Tensor


def weighted_mean(matrix: Tensor, weights: np.ndarray) -> Tensor:
    """Sum_m weights_m * matrix_m, accumulated row by row in float64 so that the result does not depend on the number of threads."""
    total = torch.zeros(matrix.shape[1], dtype=torch.float64)
    for row, weight in zip(matrix, weights, strict=True):
        total.add_(row, alpha=float(weight))
    return total.to(matrix.dtype)
