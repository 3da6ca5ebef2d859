"""FedProx (Li et al., MLSys 2020)."""

from dataclasses import dataclass

from methods.core.contract import Batch, RoundContext
from methods.core.flat_model import FlatModel
from methods.core.registry import register
from methods.fedavg import FedAvg


@dataclass(frozen=True)
class FedProxParams:
    mu: float = 1.0  # mu, strength of the proximal term
    form: str = "squared"  # squared: (mu/2)|w - w_t|^2, the algorithm's definition; norm: mu|w - w_t|, FedCorr's released trainer

    def __post_init__(self) -> None:
        if self.form not in ("squared", "norm"):
            raise ValueError(f"method.form={self.form!r} is not legal; legal: squared, norm")
        if self.mu < 0:
            raise ValueError(f"method.mu={self.mu} is not legal; legal: at least 0")


@register(family="regularisation", paper="Li et al., MLSys 2020")
class FedProx(FedAvg):
    """FedAvg whose local loss holds the weights near the received model.

    Deviations: FedCorr's table very likely used the unsquared norm (`form=norm`), skipped on the first batch of each epoch where its
    gradient would be 0/0; here the gradient is 0 at distance 0 and no batch is skipped.
    """

    name = "fedprox"
    Params = FedProxParams
    params: FedProxParams
    fedavg_equivalent_params = {"mu": 0.0}

    def penalty(self, net: FlatModel, batch: Batch, ctx: RoundContext) -> None:
        drift = net.drift
        if self.params.form == "norm":
            drift.div_(drift.norm().clamp_min(1e-12))
        net.grad.add_(drift, alpha=self.params.mu)
