"""ARFL: attack-resistant federated learning with residual-based reweighting (Fu et al., 2019)."""

import numpy as np
from torch import Tensor

from methods.core.params import Fraction, Positive, parameters
from methods.core.registry import register
from methods.fedavg import FedAvg
from methods.toolkit.aggregation import residual_reweighting, weighted_mean


@parameters
class ARFLParams:
    confidence_interval: Positive = 2.0  # lambda, residuals in this interval keep full confidence
    delta: Fraction = 0.1  # delta, values with less confidence are replaced by the fitted line


@register(family="aggregation", paper="Fu et al., arXiv:1912.11464", static_step=True)
class ARFL(FedAvg):
    """FedAvg with models weighted by their residuals, independent of client sizes.

    For each coordinate the server fits a robust line to the sorted values of all models. The
    residuals from this line give the weight of each model, and extreme values are replaced.

    Deviations:

    1. As released: intercept through medians, scale without smallest residual, squared weights.
    2. Fewer than three models, or models without any spread, get uniform weights.
    3. Corrected batch-norm statistics are at least the smallest value that any client sent.
    4. FedAvg trains locally. The released code holds out 30 % of the data and stops at 31 batches.
    """

    name = "arfl"
    params: ARFLParams
    skip_nonfinite_updates = True

    def aggregate_models(self, matrix: Tensor, weights: np.ndarray) -> Tensor:
        interval, delta = self.params.confidence_interval, self.params.delta
        corrected = residual_reweighting(matrix, interval, delta, self.spec.num_trainable)
        return weighted_mean(*corrected)
