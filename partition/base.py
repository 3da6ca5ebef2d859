"""What the partition schemes share: the registry's record, the error, the random stream and the dealing of samples."""

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np

# Schemes that reject unlucky draws give up with an error after this many, so that no setting can hang.
MAX_REDRAWS = 1000


ROOM = {
    "num_clients": "federation"
}  # where a key lives in the configuration, if not under `partition`


class PartitionError(ValueError):
    """A partition that cannot be made; the message is one line with the key, its value and what is legal."""


@dataclass(frozen=True)
class Scheme:
    """One way to split a data set; `disjoint` and `covering` are promises that hold for all legal parameters."""

    name: str
    params: type
    function: Callable[[np.ndarray, int, int, Any], list[np.ndarray]]
    one_line: str
    disjoint: bool
    covering: bool
    noise_parts: Callable[[np.ndarray, int, Any], list[np.ndarray]] | None = (
        None  # whom noise is drawn for, if not the clients that train
    )


def check(key: str, value: object, is_legal: bool, legal: str) -> None:
    if not is_legal:
        raise PartitionError(f"{ROOM.get(key, 'partition')}.{key}={value!r}: must be {legal}")


def is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, (bool, np.bool_))


def is_integer(value: object) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def generator(seed: int, scheme: str) -> np.random.Generator:
    """A stream of its own for each scheme, unrelated to every other use of the same seed."""
    return np.random.default_rng([seed, zlib.crc32(f"partition.{scheme}".encode())])


def deal(labels: np.ndarray, counts: np.ndarray, rng: np.random.Generator) -> list[np.ndarray]:
    """Hand out `counts[j, k]` random samples of the j-th class present to client k; each client's indices ascend."""
    owner = np.empty(len(labels), dtype=np.int64)
    num_clients = counts.shape[1]
    for label, row in zip(np.unique(labels), counts, strict=True):
        owner[rng.permutation(np.flatnonzero(labels == label))] = np.repeat(
            np.arange(num_clients), row
        )
    return np.split(np.argsort(owner, kind="stable"), np.cumsum(counts.sum(axis=0))[:-1])


def dirichlet(
    rng: np.random.Generator | np.random.RandomState, alpha: float, size: int
) -> np.ndarray:
    """One symmetric Dirichlet draw; numpy answers nan where alpha is so small that all its gamma draws underflow."""
    shares = rng.dirichlet(np.full(size, alpha))
    check(
        "alpha",
        alpha,
        bool(np.isfinite(shares).all()),
        f"large enough to draw shares of {size} clients",
    )
    return shares
