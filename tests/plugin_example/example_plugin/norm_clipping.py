"""Norm clipping (Sun et al., 2019): a method in a package outside the suite."""

import numpy as np
from torch import Tensor

from methods import FedAvg, NonNegative, parameters, register


@parameters
class NormClippingParams:
    limit: NonNegative = 1.0  # M, maximum norm of a client's update; 0: no limit


@register(family="aggregation", paper="Sun et al., arXiv:1911.07963")
class NormClipping(FedAvg):
    """FedAvg with client updates that are scaled down to a maximum norm.

    Deviations:

    1. The paper adds noise to the sum for differential privacy. Here no noise is added.
    """

    name = "norm_clipping"
    params: NormClippingParams
    fedavg_equivalent_params = {"limit": 0.0}

    def aggregate_models(self, matrix: Tensor, weights: np.ndarray) -> Tensor:
        if not self.params.limit:
            return super().aggregate_models(matrix, weights)
        current = self.state.models["model"]
        updates = matrix - current
        norms = updates.norm(dim=1, keepdim=True).clamp_min(1e-12)
        scales = (self.params.limit / norms).clamp_max(1)
        return current + super().aggregate_models(updates * scales, weights)
