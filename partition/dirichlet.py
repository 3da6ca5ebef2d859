"""Label skew by a Dirichlet distribution (Hsu et al., 2019; NIID-Bench, Li et al., ICDE 2022).

Each class is divided among all clients in proportions q_j ~ Dirichlet(alpha). Draws in which a
client has fewer than min_size samples are rejected. After MAX_REDRAWS draws that is an error.
"""

import numpy as np

from methods.core.errors import UserError, invalid
from methods.core.params import Positive, PositiveInt, parameters
from partition import base
from partition.base import MAX_REDRAWS, PARTITIONERS, Partitioner


@parameters
class DirichletParams:
    alpha: Positive  # concentration; smaller values give more skew
    min_size: PositiveInt = 1  # minimum number of samples of a client


def partition(
    labels: np.ndarray, num_clients: int, seed: int, params: DirichletParams
) -> list[np.ndarray]:
    """Each class divided among all clients in Dirichlet(alpha) proportions."""
    limit = len(labels) // num_clients
    if params.min_size > limit:
        expected = f"at most {limit}, the samples per client"
        raise invalid("partition.min_size", params.min_size, expected)
    rng = base.make_rng(seed, "dirichlet")
    _, class_sizes = np.unique(labels, return_counts=True)
    for _ in range(MAX_REDRAWS):
        draws = [base.sample_dirichlet(rng, params.alpha, num_clients) for _ in class_sizes]
        cuts = (np.cumsum(draws, axis=1)[:, :-1] * class_sizes[:, None]).astype(np.int64)
        counts = np.diff(cuts, axis=1, prepend=0, append=class_sizes[:, None])
        if counts.sum(axis=0).min() >= params.min_size:
            return base.assign_samples(labels, counts, rng)
    raise UserError(
        f"cannot partition with partition.alpha={params.alpha}: a client has fewer than "
        f"partition.min_size={params.min_size} samples in each of {MAX_REDRAWS} draws; increase "
        "alpha, or reduce min_size or federation.num_clients"
    )


PARTITIONERS.add(Partitioner("dirichlet", DirichletParams, partition))
