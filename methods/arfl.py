"""ARFL: attack-resistant federated learning with residual-based reweighting (Fu et al., 2019)."""

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from methods.core.registry import register
from methods.fedavg import FedAvg
from methods.toolkit.aggregation import residual_reweighting, weighted_mean


@dataclass(frozen=True)
class ARFLParams:
    confidence_interval: float = (
        2.0  # lambda, width of the interval in which a residual costs no weight
    )
    delta: float = (
        0.1  # delta, parameter confidence below which a value is replaced by the fitted line
    )

    def __post_init__(self) -> None:
        if not self.confidence_interval > 0:
            raise ValueError(
                f"method.confidence_interval={self.confidence_interval} is not legal; legal: above 0"
            )
        if not 0 <= self.delta <= 1:
            raise ValueError(f"method.delta={self.delta} is not legal; legal: 0 to 1")


@register(family="aggregation", paper="Fu et al., arXiv:1912.11464")
class ARFL(FedAvg):
    """FedAvg whose server weighs each model by its residuals from a robust line through all models, regardless of the clients' sizes.

    Deviations: the aggregation follows the released code (intercept through the medians, scale without the smallest residual, squared
    model weights). That code is silent on three cases: fewer than three models are averaged plainly, models without any spread get
    equal weights, and corrected batch-norm statistics stay at or above the smallest value any client sent. Local training is FedAvg's on all of a
    client's data; the released trainer holds 30 % of them back and cuts an epoch after 31 batches.
    """

    name = "arfl"
    Params = ARFLParams
    params: ARFLParams
    skip_nonfinite_updates = True

    def combine(self, matrix: Tensor, weights: np.ndarray) -> Tensor:
        return weighted_mean(
            *residual_reweighting(
                matrix, self.params.confidence_interval, self.params.delta, self.spec.num_trainable
            )
        )
