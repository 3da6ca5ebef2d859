"""Norm clipping (Sun et al., 2019), as a method that does not live in the suite."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor

from methods.core.registry import register
from methods.fedavg import FedAvg


@dataclass(frozen=True)
class NormClippingParams:
    limit: float = 1.0  # M, largest norm of a client's update; 0: none

    def __post_init__(self) -> None:
        if self.limit < 0:
            raise ValueError(f"method.limit={self.limit} is not legal; legal: at least 0")


@register(family="aggregation", paper="Sun et al., arXiv:1911.07963")
class NormClipping(FedAvg):
    """FedAvg whose server shortens every client's update to a largest norm.

    Deviations: the paper adds noise to the sum for differential privacy; here nothing is added.
    """

    name = "norm_clipping"
    Params = NormClippingParams
    params: NormClippingParams
    fedavg_equivalent_params: ClassVar = {"limit": 0.0}

    def combine(self, matrix: Tensor, weights: np.ndarray) -> Tensor:
        if not self.params.limit:
            return super().combine(matrix, weights)
        before = self.models["model"]
        updates = matrix - before
        shorter = updates * (
            self.params.limit / updates.norm(dim=1, keepdim=True).clamp_min(1e-12)
        ).clamp_max(1)
        return before + super().combine(shorter, weights)
