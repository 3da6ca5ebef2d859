"""Co-teaching (Han et al., NeurIPS 2018) on every client, with both networks averaged."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from methods.core import training
from methods.core.contract import Batch, Client, ClientPool, Diagnosis, Payload, Reply, RoundContext
from methods.core.registry import register
from methods.fedavg import FedAvg
from methods.toolkit.losses import cross_entropy
from methods.toolkit.schedules import forget_rate, num_kept, rounds_from_fraction


@dataclass(frozen=True)
class CoteachingParams:
    forget_rate: float = 0.2  # tau, share of each batch left out in the end
    forget_rate_is_oracle: bool = (
        False  # to be set when forget_rate is taken from the true noise, as the paper does
    )
    ramp_rounds: float = (
        0.1  # T_k, as a share of all rounds: those in which the rate grows from 0 to tau
    )

    def __post_init__(self) -> None:
        if not 0 <= self.forget_rate < 1:
            raise ValueError(
                f"method.forget_rate={self.forget_rate} is not legal; legal: 0 or more, below 1"
            )
        if not 0 <= self.ramp_rounds <= 1:
            raise ValueError(
                f"method.ramp_rounds={self.ramp_rounds} is not legal; legal: 0 to 1, a share of the rounds"
            )


@register(family="sample selection", paper="Han et al., NeurIPS 2018")
class Coteaching(FedAvg):
    """Two networks, each trained on the samples of a batch that the other finds smallest_loss_indices.

    Deviations: the paper trains centrally; here two global networks with initial weights of their own are sent, trained and averaged. The rate grows
    over global rounds instead of epochs, linearly (the paper's c = 1). The released code divides a mean loss by the number of
    picks once more; here the mean is taken once. It drops a last short batch, here it is kept, and at least one sample of a batch is
    picked. The paper sets tau to the true noise rate: then `forget_rate_is_oracle` marks the run. Tested is the first
    network; the second only chooses samples for it.
    """

    name = "coteaching"
    Params = CoteachingParams
    params: CoteachingParams
    model_names = ("a", "b")
    client_state = "which samples the first network picked last"

    def oracle(self) -> str:
        return (
            f"forget_rate={self.params.forget_rate} is the true noise rate"
            if self.params.forget_rate_is_oracle
            else ""
        )

    def serving(self) -> Mapping[str, Tensor]:
        return {"a": self.models["a"]}

    def local_update(self, client: Client, payload: Payload, ctx: RoundContext) -> Reply:
        nets = {name: client.network(vector) for name, vector in payload.models.items()}
        rate = forget_rate(
            ctx.round,
            rounds_from_fraction(self.params.ramp_rounds, ctx.spec),
            self.params.forget_rate,
        )
        picked = torch.zeros(client.num_samples, dtype=torch.bool)

        def batch_loss(batch: Batch) -> Tensor:
            # One sum for both: each network's loss reaches its own weights only, the choice carries no gradient.
            losses_a, losses_b = (
                cross_entropy(net(batch.x), batch.y, reduction="none") for net in nets.values()
            )
            easy_a, easy_b = (
                smallest_loss_indices(losses_a, rate),
                smallest_loss_indices(losses_b, rate),
            )
            if batch.epoch == ctx.train.local_epochs - 1:
                picked[batch.index[easy_a]] = True
            return losses_a[easy_b].mean() + losses_b[easy_a].mean()

        training.train(client, list(nets.values()), batch_loss, ctx)
        client.state["picked"] = picked
        return client.reply({name: net.vector for name, net in nets.items()})

    def diagnosis(self, fleet: ClientPool) -> Diagnosis:
        """Held to be mislabelled: what the first network left out in the last epoch of a client's last visit."""
        states = {k: fleet.state(k) for k in range(fleet.num_clients)}
        return Diagnosis(
            noisy_samples={
                k: ~state["picked"].numpy() for k, state in states.items() if "picked" in state
            }
        )


def smallest_loss_indices(losses: Tensor, rate: float) -> Tensor:
    """Positions of the smallest losses when a share is left out; of equal losses the first."""
    return losses.detach().argsort(stable=True)[: num_kept(len(losses), rate)]
