"""FedDyn: federated learning based on dynamic regularization (Acar et al., ICLR 2021)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from methods.core import training
from methods.core.contract import (
    Batch,
    Client,
    ClientPool,
    Diagnosis,
    Payload,
    Reply,
    RoundContext,
    TaskSpec,
)
from methods.core.registry import register
from methods.fedavg import FedAvg
from methods.toolkit.aggregation import uniform_weights, weighted_mean


@dataclass(frozen=True)
class FedDynParams:
    alpha: float = 0.01  # alpha, strength of the dynamic regulariser; the server divides by it

    def __post_init__(self) -> None:
        if not self.alpha > 0:
            raise ValueError(f"method.alpha={self.alpha} is not legal; legal: above 0")


@register(family="regularisation", paper="Acar et al., ICLR 2021")
class FedDyn(FedAvg):
    """Local losses with a linear and a quadratic term that make every client's optimum the global one.

    A client minimises f_k(w) - <g_k, w> + (alpha/2)|w - theta|^2, then g_k <- g_k - alpha (w_k - theta); the server keeps h, the mean of all g_k, and
    sends theta = (plain mean of the cohort's models) - h / alpha.

    Deviations: as the released code does, the local terms of a client with n_k samples use alpha_k = alpha * (mean n) / n_k while g_k and h use
    alpha; `train.clip_norm` limits the gradient of the loss and the linear terms, before alpha_k w (there a part of the weight decay) is added; and
    the cohort's mean is tested, never theta. The regulariser acts on trainable weights; batch-norm statistics, which
    the released networks do not have, are averaged by samples.
    """

    name = "feddyn"
    Params = FedDynParams
    params: FedDynParams
    client_state = "gradient g (one model)"

    def setup(self, spec: TaskSpec, fleet: ClientPool, ctx: RoundContext) -> None:
        super().setup(spec, fleet, ctx)
        self.shared["mean_samples"] = float(fleet.sizes.mean())
        self._private["h"] = torch.zeros(spec.num_trainable)

    def aggregate(self, replies: Sequence[Reply], ctx: RoundContext) -> None:
        trainable, alpha = self.spec.num_trainable, self.params.alpha
        matrix = torch.stack([reply.models["model"] for reply in replies])
        mean = weighted_mean(matrix, uniform_weights(len(replies)))
        mean[trainable:] = weighted_mean(matrix[:, trainable:], self.weights(replies))
        theta = self.models["model"][:trainable]
        share = (
            len(replies) / self.spec.num_clients
        )  # clients that stay away add nothing to the sum over all
        self._private["h"] = self._private["h"] - alpha * share * (mean[:trainable] - theta)
        self._private["mean"] = mean
        self.models["model"] = mean.clone()
        self.models["model"][:trainable] -= self._private["h"] / alpha

    def serving(self) -> Mapping[str, Tensor]:
        return {"model": self._private.get("mean", self.models["model"])}

    def diagnosis(self, fleet: ClientPool) -> Diagnosis:
        return Diagnosis(
            values={"theta_offset": float(self._private["h"].norm() / self.params.alpha)}
        )

    def local_update(self, client: Client, payload: Payload, ctx: RoundContext) -> Reply:
        net = client.network(payload.models["model"])
        theta = net.weights.clone()
        g = client.state.get("g", torch.zeros_like(theta))
        alpha = self.params.alpha * payload.shared["mean_samples"] / client.num_samples
        linear = -(alpha / self.params.alpha) * g - alpha * theta

        def batch_loss(batch: Batch) -> Tensor:
            net.grad.copy_(
                linear
            )  # the backward pass adds to it, so that both are clipped together
            return self.batch_loss(net, batch, ctx)

        def penalty(batch: Batch) -> None:
            net.grad.add_(net.weights, alpha=alpha)

        training.train(client, [net], batch_loss, ctx, penalty=penalty)
        client.state["g"] = g - self.params.alpha * (net.weights - theta)
        return client.reply({"model": net.vector})
