"""Partitions: how the samples of a data set are spread over clients. Always made on the clean labels."""

from typing import Any

import numpy as np

from . import bernoulli_dirichlet, centralized, classes_per_client, dirichlet, iid, shards
from .base import PartitionError, Scheme, check, is_integer

__all__ = ["SCHEMES", "PartitionError", "Scheme", "make", "noise_parts"]

SCHEMES: dict[str, Scheme] = {
    module.SCHEME.name: module.SCHEME
    for module in (iid, bernoulli_dirichlet, classes_per_client, dirichlet, shards, centralized)
}


def make(
    name: str, labels: np.ndarray, num_clients: int, seed: int, params: Any
) -> list[np.ndarray]:
    """The sample indices of each client, as int64 arrays whose order is part of the result: noise draws follow it."""
    check("name", name, name in SCHEMES, f"one of {', '.join(SCHEMES)}")
    scheme = SCHEMES[name]
    check("params", params, isinstance(params, scheme.params), f"a {scheme.params.__name__}")
    labels = np.asarray(labels)
    is_label_vector = (
        labels.ndim == 1 and np.issubdtype(labels.dtype, np.integer) and (labels >= 0).all()
    )
    check(
        "labels",
        f"{labels.dtype}{labels.shape}",
        bool(is_label_vector),
        "one non-negative integer per sample",
    )
    check("seed", seed, is_integer(seed) and 0 <= seed < 2**32, "an integer in [0, 2**32)")
    check(
        "num_clients",
        num_clients,
        is_integer(num_clients) and 1 <= num_clients <= len(labels),
        f"an integer in [1, {len(labels)}], at least one sample per client",
    )
    parts = [
        np.asarray(part, dtype=np.int64)
        for part in scheme.function(labels, num_clients, seed, params)
    ]
    for client, part in enumerate(parts):
        if not len(part):
            raise PartitionError(
                f"partition.name={name!r}: client {client} gets no sample from {params} and seed {seed}; must be fewer "
                f"clients than {num_clients}, or other parameters"
            )
    return parts


def noise_parts(
    name: str, labels: np.ndarray, parts: list[np.ndarray], seed: int, params: Any
) -> list[np.ndarray]:
    """The clients for whom noise is drawn: those that train, unless the scheme pools a federation."""
    draw = SCHEMES[name].noise_parts
    return parts if draw is None else draw(labels, seed, params)
