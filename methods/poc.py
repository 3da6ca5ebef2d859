"""PoC: power-of-choice client selection, variant pow-d (Cho et al., AISTATS 2022)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from methods.core import training
from methods.core.contract import Client, ClientPool, Payload, Reply, RoundContext, TaskSpec
from methods.core.registry import register
from methods.fedavg import FedAvg
from methods.toolkit.aggregation import uniform_weights
from methods.toolkit.losses import cross_entropy


@dataclass(frozen=True)
class PoCParams:
    d: int = 30  # d, candidates asked for their loss in a round; all clients where there are fewer
    weighting: str = "plain"  # plain: mean over the chosen, since candidates are drawn by size; samples: weighted by size as in FedAvg

    def __post_init__(self) -> None:
        if self.d < 1:
            raise ValueError(f"method.d={self.d} is not legal; legal: at least 1")
        if self.weighting not in ("plain", "samples"):
            raise ValueError(
                f"method.weighting={self.weighting!r} is not legal; legal: plain, samples"
            )


@register(family="selection", paper="Cho et al., AISTATS 2022")
class PoC(FedAvg):
    """FedAvg in which those clients of a random candidate set train whose loss under the global model is largest.

    Deviations: none from pow-d; FedCorr does not say which variant it ran. The loss is taken on the client's working labels and unaugmented
    images, in eval mode. The chosen clients are metered as if they received the model a second time.
    """

    name = "poc"
    Params = PoCParams
    params: PoCParams

    def check(self, spec: TaskSpec) -> None:
        super().check(spec)
        if self.params.d < spec.clients_per_round:
            raise ValueError(
                f"method.d={self.params.d} is not legal; legal: at least federation.clients_per_round={spec.clients_per_round}"
            )

    def select(self, fleet: ClientPool, ctx: RoundContext) -> Sequence[int]:
        rng = ctx.rng("candidates")
        candidates = rng.choice(
            fleet.num_clients,
            size=min(self.params.d, fleet.num_clients),
            replace=False,
            p=fleet.sizes / fleet.sizes.sum(),
        )
        replies = fleet.ask([int(k) for k in candidates], self.local_loss, self.payload, ctx)
        losses = np.array([reply.values["loss"] for reply in replies])
        order = np.lexsort((rng.random(len(losses)), -losses))  # largest first, ties at random
        return [int(k) for k in np.sort(candidates[order[: self.spec.clients_per_round]])]

    def weights(self, replies: Sequence[Reply]) -> np.ndarray:
        return (
            uniform_weights(len(replies)) if self.params.weighting == "plain" else super().weights(replies)
        )

    def local_loss(self, client: Client, payload: Payload, ctx: RoundContext) -> Reply:
        """Mean cross-entropy over all of a client's samples."""
        (logits,) = training.map_client_samples(
            client, [client.network(payload.models["model"]).eval()]
        )
        return client.reply({}, loss=float(cross_entropy(logits, client.labels)))
