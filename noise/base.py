"""What the noise models share: the registry's record, the result, the error, the random stream and exact draws."""

import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np


class NoiseError(ValueError):
    """Noise that cannot be drawn; the message is one line with the key, its value and what is legal."""


@dataclass(frozen=True)
class NoiseModel:
    """One noise model; its function answers the noisy labels and each client's nominal level."""

    name: str
    params: type
    function: Callable[[np.ndarray, list[np.ndarray], int, int, Any], tuple[np.ndarray, np.ndarray]]
    one_line: str
    convention: str  # what a level means here, and in which paper; equal levels of two conventions do not compare


@dataclass(frozen=True)
class NoiseRecord:
    labels: np.ndarray  # (n,) int64 noisy labels
    flipped: np.ndarray  # (n,) bool: the label differs from the clean one
    client_level: np.ndarray  # (K,) nominal level of each client
    client_rate: (
        np.ndarray
    )  # (K,) realised share of wrong labels, a sample held twice counted twice; 0 without samples
    transition: (
        np.ndarray
    )  # (C, C) counts true -> noisy over the samples that belong to at least one client
    convention: str


def check(key: str, value: object, is_legal: bool, legal: str) -> None:
    if not is_legal:
        raise NoiseError(f"noise.{key}={value!r}: must be {legal}")


def check_rate(key: str, value: float) -> None:
    is_rate = isinstance(value, Real) and not isinstance(value, bool) and 0 <= value <= 1
    check(key, value, is_rate, "a number in [0, 1]")


def check_disjoint(key: str, value: object, parts: list[np.ndarray], num_samples: int) -> None:
    """A sample has one label, so noise that depends on its client needs every sample to have at most one client."""
    owners = np.bincount(np.concatenate(parts), minlength=num_samples)
    shared = int((owners > 1).sum())
    check(
        key,
        value,
        not shared,
        f"combined with disjoint clients ({shared} samples are held more than once)",
    )


def generator(seed: int, model: str) -> np.random.Generator:
    """A stream of its own for each model, unrelated to the partition of the same seed."""
    return np.random.default_rng([seed, zlib.crc32(f"noise.{model}".encode())])


def pick_exactly(
    groups: Iterable[np.ndarray], epsilon: float, rng: np.random.Generator
) -> np.ndarray:
    """int(size * epsilon) random members of each group; with one seed, a larger epsilon only adds members."""
    return np.concatenate([rng.permutation(group)[: int(len(group) * epsilon)] for group in groups])
