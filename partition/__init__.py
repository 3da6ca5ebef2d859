"""Data partitions: partitioners that assign training samples to clients, given clean labels."""

from typing import Any

import numpy as np

from methods.core.errors import UserError, invalid
from partition.base import PARTITIONERS, Partitioner, make_rng

__all__ = ["PARTITIONERS", "Partitioner", "clients_for_noise", "partition_labels"]


def partition_labels(
    name: str, labels: np.ndarray, num_clients: int, seed: int, params: Any
) -> list[np.ndarray]:
    """Sample indices of each client, as int64 arrays in random order (see `_shuffle_clients`).

    Label noise depends on the order.
    """
    if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer) or (labels < 0).any():
        found = f"{labels.dtype}{labels.shape}"
        raise invalid("labels", found, "one non-negative integer per sample")
    if not 1 <= num_clients <= len(labels):
        expected = f"an integer in [1, {len(labels)}], at least one sample per client"
        raise invalid("federation.num_clients", num_clients, expected)
    parts = PARTITIONERS.get(name).partition(labels, num_clients, seed, params)
    client_indices = [np.asarray(indices, dtype=np.int64) for indices in parts]
    for client, indices in enumerate(client_indices):
        if not len(indices):
            raise UserError(
                f"cannot partition with {name}: client {client} of {num_clients} has no samples "
                f"(seed {seed}); reduce federation.num_clients or change the parameters"
            )
    return _shuffle_clients(client_indices, seed, params)


def clients_for_noise(
    name: str, labels: np.ndarray, client_indices: list[np.ndarray], seed: int, params: Any
) -> list[np.ndarray]:
    """Client indices to which noise is applied: `client_indices`, unless samples are pooled."""
    function = PARTITIONERS.get(name).clients_for_noise
    if function is None:
        return client_indices
    return _shuffle_clients(function(labels, seed, params), seed, params)


def _shuffle_clients(client_indices: list[np.ndarray], seed: int, params: Any) -> list[np.ndarray]:
    """Shuffle the samples of each client, so that a position says nothing about a label.

    Partitioners return blocks of one class or ascending indices. `form=official` keeps the order of
    the official code, on which its label noise depends.
    """
    if getattr(params, "form", None) == "official":
        return client_indices
    return [
        make_rng(seed, "client order", client).permutation(indices)
        for client, indices in enumerate(client_indices)
    ]
