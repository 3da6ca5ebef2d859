"""FedDyn: federated learning based on dynamic regularization (Acar et al., ICLR 2021)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from methods.core.contract import ClientPool, Diagnosis, ServerState
from methods.core.flat_model import FlatModel
from methods.core.params import Positive, parameters
from methods.core.registry import register
from methods.core.task import Batch, LocalTask, Models, Reply, RoundContext
from methods.fedavg import FedAvg
from methods.toolkit.aggregation import uniform_weights, weighted_mean


@parameters
class FedDynParams:
    alpha: Positive = 0.01  # alpha, weight of the dynamic regularizer


@dataclass(kw_only=True)
class FedDynState(ServerState):
    """The model in `models` is theta, which is sent to the clients."""

    h: Tensor  # mean of g_k over all clients
    mean_model: Tensor  # unweighted mean of the last cohort's models


@register(family="regularization", paper="Acar et al., ICLR 2021", static_step=True)
class FedDyn(FedAvg):
    """Local losses with a linear and a quadratic term that align local optima with the global one.

    A client minimizes f_k(w) - <g_k, w> + (alpha/2)|w - theta|^2 and then sets
    g_k <- g_k - alpha (w_k - theta). The server keeps h, the mean of all g_k, and sends
    theta = (unweighted mean of the cohort's models) - h / alpha.

    Deviations:

    1. As in the released code, the local terms of a client with n_k samples use
       alpha_k = alpha * (mean n) / n_k, while g_k and h use alpha.
    2. As in the released code, `train.clip_norm` limits the gradient of the loss and the linear
       terms. The term alpha_k w is added after clipping, like weight decay.
    3. As in the released code, the mean of the cohort's models is evaluated instead of theta.
    4. The regularizer acts on trainable weights. Batch-norm statistics, which the models of the
       released code do not have, are averaged with sample weights.
    """

    name = "feddyn"
    params: FedDynParams
    state: FedDynState
    client_state_doc = "gradient g (one model)"

    def initial_state(self, pool: ClientPool, ctx: RoundContext) -> FedDynState:
        models = super().initial_state(pool, ctx).models
        shared = {"mean_samples": float(pool.client_sizes.mean())}
        h = torch.zeros(self.spec.num_trainable)
        return FedDynState(models, shared, h=h, mean_model=models["model"])

    def aggregate(self, replies: Sequence[Reply], ctx: RoundContext) -> None:
        state, alpha, end = self.state, self.params.alpha, self.spec.num_trainable
        matrix = torch.stack([reply.models["model"] for reply in replies])
        mean = weighted_mean(matrix, uniform_weights(len(replies)))
        mean[end:] = weighted_mean(matrix[:, end:], self.aggregation_weights(replies))
        # Clients outside the cohort contribute zero to the sum over all clients.
        fraction = len(replies) / self.spec.num_clients
        state.h = state.h - alpha * fraction * (mean[:end] - state.models["model"][:end])
        state.mean_model, state.models["model"] = mean, mean.clone()
        state.models["model"][:end] -= state.h / alpha

    def eval_models(self) -> Mapping[str, Tensor]:
        return {"model": self.state.mean_model}

    def diagnose(self, pool: ClientPool) -> Diagnosis:
        return Diagnosis(values={"theta_offset": float(self.state.h.norm() / self.params.alpha)})

    def start_local_update(self, models: Models, task: LocalTask) -> None:
        theta, alpha = models["model"].weights, self.params.alpha
        local_alpha = alpha * task.payload.shared["mean_samples"] / task.client.num_samples
        g = task.client.state.get("g", torch.zeros_like(theta))
        task.local.g, task.local.alpha = g, local_alpha
        # Part of every gradient, so both are clipped together.
        models["model"].grad_offset = -(local_alpha / alpha) * g - local_alpha * theta

    def add_penalty_grad(self, model: FlatModel, batch: Batch, task: LocalTask) -> None:
        model.grad.add_(model.weights, alpha=task.local.alpha)

    def finish_local_update(self, models: Models, task: LocalTask) -> None:
        task.client.state["g"] = task.local.g - self.params.alpha * models["model"].drift
