"""Shared by the partitioners: registry, random stream and assignment of samples."""

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from methods.core.errors import UserError
from methods.core.plugins import Registry, first_sentence

MAX_REDRAWS = 1000  # limit of rejection sampling; then the parameters are an error


@dataclass(frozen=True)
class Partitioner:
    """A registered partitioner.

    `partition(clean_labels, num_clients, seed, params)` returns the sample indices of each client.
    They are shuffled afterwards, unless `params.form` is "official". The first line of its
    docstring is the summary in lists of components.
    `disjoint` and `uses_all_samples` hold for every valid parameter value (checked by tests).
    `clients_for_noise(clean_labels, seed, params)` returns the client indices to which label noise
    is applied, if these are not the clients that train.
    """

    name: str
    params: type  # a class made by `methods.core.params.parameters`
    partition: Callable[[np.ndarray, int, int, Any], list[np.ndarray]]
    disjoint: bool = True  # no sample belongs to two clients
    uses_all_samples: bool = True
    clients_for_noise: Callable[[np.ndarray, int, Any], list[np.ndarray]] | None = None

    @property
    def summary(self) -> str:
        return first_sentence(self.partition)


PARTITIONERS: Registry[Partitioner] = Registry("partition", "fln.partitions", "partition")


def make_rng(seed: int, name: str, *key: int) -> np.random.Generator:
    """Random stream of one partitioner, independent of other streams of the seed."""
    return np.random.default_rng([seed, zlib.crc32(f"partition.{name}".encode()), *key])


def assign_samples(
    labels: np.ndarray, counts: np.ndarray, rng: np.random.Generator
) -> list[np.ndarray]:
    """Assign `counts[j, k]` random samples of the j-th class to client k, in ascending order."""
    owner = np.empty(len(labels), dtype=np.int64)
    clients = np.arange(counts.shape[1])
    for label, row in zip(np.unique(labels), counts, strict=True):
        owner[rng.permutation(np.flatnonzero(labels == label))] = np.repeat(clients, row)
    return np.split(np.argsort(owner, kind="stable"), np.cumsum(counts.sum(axis=0))[:-1])


def sample_dirichlet(
    rng: np.random.Generator | np.random.RandomState, alpha: float, size: int
) -> np.ndarray:
    """Sample a symmetric Dirichlet distribution. Raise if floats cannot represent it."""
    fractions = rng.dirichlet(np.full(size, alpha))
    if not np.isclose(fractions.sum(), 1) or fractions.max() > 1:  # NaN gives True
        raise UserError(
            f"cannot partition with partition.alpha={alpha}: the Dirichlet distribution of {size} "
            "clients cannot be sampled in floating point; choose a less extreme value"
        )
    return fractions
