"""Coordinate-wise median (Yin et al., ICML 2018)."""

import numpy as np
from torch import Tensor

from methods.core.registry import register
from methods.fedavg import FedAvg
from methods.toolkit.aggregation import coordinate_median


@register(family="aggregation", paper="Yin et al., ICML 2018", static_step=True)
class Median(FedAvg):
    """FedAvg with the median of each coordinate as aggregation, independent of client sizes.

    Deviations:

    1. For an even cohort the median is the mean of the two middle values.
    2. Batch-norm statistics are aggregated like weights.
    """

    name = "median"

    def aggregate_models(self, matrix: Tensor, weights: np.ndarray) -> Tensor:
        return coordinate_median(matrix)
