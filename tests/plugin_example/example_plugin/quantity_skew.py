"""Clients of different sizes (NIID-Bench, Li et al., ICDE 2022): an external partitioner."""

import numpy as np

from methods.core.params import Positive, parameters
from partition.base import PARTITIONERS, Partitioner, make_rng, sample_dirichlet


@parameters
class QuantitySkewParams:
    alpha: Positive = 0.5  # concentration; smaller values give more skew


def partition_quantity_skew(
    labels: np.ndarray, num_clients: int, seed: int, params: QuantitySkewParams
) -> list[np.ndarray]:
    """Client sizes in Dirichlet(alpha) proportions."""
    rng = make_rng(seed, "quantity_skew")
    fractions = sample_dirichlet(rng, params.alpha, num_clients)
    sizes = 1 + rng.multinomial(len(labels) - num_clients, fractions)
    return np.split(rng.permutation(len(labels)), np.cumsum(sizes)[:-1])


PARTITIONERS.add(Partitioner("quantity_skew", QuantitySkewParams, partition_quantity_skew))
