"""PoC: power-of-choice client selection, variant pow-d (Cho et al., AISTATS 2022)."""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from methods.core import training
from methods.core.contract import ClientPool
from methods.core.errors import invalid
from methods.core.params import PositiveInt, parameters
from methods.core.registry import register
from methods.core.task import LocalTask, Reply, RoundContext, TaskSpec
from methods.fedavg import FedAvg
from methods.toolkit.aggregation import uniform_weights
from methods.toolkit.losses import cross_entropy


@parameters
class PoCParams:
    d: PositiveInt = 30  # d, candidates per round, at most all clients
    weighting: Literal["plain", "samples"] = "plain"  # plain: unweighted mean; samples: as FedAvg


@register(family="selection", paper="Cho et al., AISTATS 2022", static_step=True)
class PoC(FedAvg):
    """FedAvg with a biased cohort: the clients with the largest loss among random candidates.

    The server samples d candidates with probabilities proportional to their numbers of samples.
    Candidates report the loss of the global model, and those with the largest losses train. The
    mean of their models is unweighted, because sampling already depends on the client sizes.

    Deviations:

    1. FedCorr does not say which variant of PoC it uses. This is pow-d.
    2. The loss is computed on current labels and images without augmentation, in evaluation mode.
    3. The cost counts the model twice for clients of the cohort: for the query and for training.
    """

    name = "poc"
    params: PoCParams

    def validate(self, spec: TaskSpec) -> None:
        super().validate(spec)
        if self.params.d < spec.clients_per_round:
            least = f"at least federation.clients_per_round={spec.clients_per_round}"
            raise invalid("method.d", self.params.d, least)

    def select_clients(self, pool: ClientPool, ctx: RoundContext) -> Sequence[int]:
        rng, sizes = ctx.rng("candidates"), pool.client_sizes
        count = min(self.params.d, pool.num_clients)
        candidates = rng.choice(pool.num_clients, size=count, replace=False, p=sizes / sizes.sum())
        replies = pool.run_task([int(k) for k in candidates], self.local_loss, self.payload, ctx)
        losses = np.array([reply.values["loss"] for reply in replies])
        largest = largest_loss_indices(losses, self.spec.clients_per_round, rng)
        return [int(k) for k in np.sort(candidates[largest])]

    def aggregation_weights(self, replies: Sequence[Reply]) -> np.ndarray:
        if self.params.weighting == "plain":
            return uniform_weights(len(replies))
        return super().aggregation_weights(replies)

    def local_loss(self, task: LocalTask) -> Reply:
        """Client task: mean cross-entropy of the received model over all samples."""
        client, model = task.client, task.load_models()["model"]
        (logits,) = training.map_client_samples(client, [model.eval()])
        return client.reply({}, loss=float(cross_entropy(logits, client.labels)))


def largest_loss_indices(losses: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Positions of the `count` largest losses, in descending order. Ties are broken at random."""
    return np.lexsort((rng.random(len(losses)), -losses))[:count]
