"""Label skew by a Dirichlet distribution over clients (Hsu et al., 2019; Li et al., "NIID-Bench", ICDE 2022).

Each class is cut among all clients in proportions q_j ~ Dirichlet(alpha). Draws in which a client has fewer than
min_size samples are rejected; after a bounded number of draws that is an error: a small alpha can make it hopeless.
"""

from dataclasses import dataclass

import numpy as np

from .base import MAX_REDRAWS, PartitionError, Scheme, check, deal, generator, is_integer, is_number
from .base import dirichlet as draw_shares


@dataclass(frozen=True)
class DirichletParams:
    alpha: float  # concentration: the smaller, the fewer classes dominate a client
    min_size: int = 1  # samples that every client has at least

    def __post_init__(self) -> None:
        check(
            "alpha",
            self.alpha,
            is_number(self.alpha) and 0 < self.alpha < np.inf,
            "a finite number above 0",
        )
        check(
            "min_size",
            self.min_size,
            is_integer(self.min_size) and self.min_size >= 1,
            "an integer of at least 1",
        )


def split(
    labels: np.ndarray, num_clients: int, seed: int, params: DirichletParams
) -> list[np.ndarray]:
    most = len(labels) // num_clients
    check(
        "min_size",
        params.min_size,
        params.min_size <= most,
        f"at most {most}, the samples per client",
    )
    rng = generator(seed, "dirichlet")
    _, sizes = np.unique(labels, return_counts=True)
    for _ in range(MAX_REDRAWS):
        shares = np.stack([draw_shares(rng, params.alpha, num_clients) for _ in sizes])
        cuts = (np.cumsum(shares, axis=1)[:, :-1] * sizes[:, None]).astype(np.int64)
        counts = np.diff(cuts, axis=1, prepend=0, append=sizes[:, None])
        if counts.sum(axis=0).min() >= params.min_size:
            return deal(labels, counts, rng)
    raise PartitionError(
        f"partition.alpha={params.alpha}, partition.min_size={params.min_size}: none of {MAX_REDRAWS} draws gave each "
        f"of {num_clients} clients that many samples; must be a larger alpha, a smaller min_size or fewer clients"
    )


SCHEME = Scheme(
    name="dirichlet",
    params=DirichletParams,
    function=split,
    one_line="every class cut among all clients in Dirichlet(alpha) proportions, with a smallest client size",
    disjoint=True,
    covering=True,
)
