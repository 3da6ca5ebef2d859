"""FedProx: federated optimization in heterogeneous networks (Li et al., MLSys 2020)."""

from typing import Literal

from methods.core.flat_model import FlatModel
from methods.core.params import NonNegative, parameters
from methods.core.registry import register
from methods.core.task import Batch, LocalTask
from methods.fedavg import FedAvg


@parameters
class FedProxParams:
    mu: NonNegative = 1.0  # mu, weight of the proximal term
    form: Literal["squared", "norm"] = "squared"  # squared: (mu/2)|w - w_t|^2; norm: mu|w - w_t|


@register(family="regularization", paper="Li et al., MLSys 2020", static_step=True)
class FedProx(FedAvg):
    """FedAvg with a proximal term that keeps local weights w close to the received weights w_t.

    Deviations:

    1. FedCorr's released trainer uses the norm without the square: `form=norm`. It skips the first
       batch of each epoch, where the gradient is 0/0. Here it is 0, and no batch is skipped.
    """

    name = "fedprox"
    params: FedProxParams
    fedavg_equivalent_params = {"mu": 0.0}

    def add_penalty_grad(self, model: FlatModel, batch: Batch, task: LocalTask) -> None:
        drift = model.drift
        if self.params.form == "norm":
            drift.div_(drift.norm().clamp_min(1e-12))
        model.grad.add_(drift, alpha=self.params.mu)
