"""Coordinate-wise median (Yin et al., ICML 2018)."""

import numpy as np
from torch import Tensor

from methods.core.registry import register
from methods.fedavg import FedAvg
from methods.toolkit.aggregation import coordinate_median


@register(family="aggregation", paper="Yin et al., ICML 2018")
class Median(FedAvg):
    """FedAvg whose server takes the median of every coordinate, regardless of the clients' sizes.

    Deviations: none. An even cohort gives the mean of the two middle values; batch-norm statistics are treated like weights.
    """

    name = "median"

    def combine(self, matrix: Tensor, weights: np.ndarray) -> Tensor:
        return coordinate_median(matrix)
