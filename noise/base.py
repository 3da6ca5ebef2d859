"""Shared by the noise models: registry, input, result and sampling of exact fractions."""

import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from methods.core.errors import UserError, invalid
from methods.core.plugins import Registry, first_sentence

Noisy = tuple[np.ndarray, np.ndarray]  # (n,) given labels, (K,) nominal noise level of each client


@dataclass(frozen=True)
class NoiseInput:
    """Clean labels of a dataset, its clients and the seed. Noise models must not change them."""

    labels: np.ndarray  # (n,) int64, clean labels
    client_indices: list[np.ndarray]  # sample indices of each client
    num_classes: int
    seed: int

    @property
    def num_clients(self) -> int:
        return len(self.client_indices)

    def rng(self, name: str) -> np.random.Generator:
        """Random stream of a noise model, independent of the partition's stream."""
        return np.random.default_rng([self.seed, zlib.crc32(f"noise.{name}".encode())])

    def class_members(self) -> list[np.ndarray]:
        return [np.flatnonzero(self.labels == label) for label in range(self.num_classes)]

    def require_two_classes(self, epsilon: float) -> None:
        """Raise if labels must change but there is only one class."""
        if epsilon > 0 and self.num_classes < 2:
            raise invalid("noise.epsilon", epsilon, "0 for a dataset with one class")

    def require_disjoint(self, option: str) -> None:
        """Raise if clients share a sample. It has one label, so its noise needs one client."""
        joined = np.concatenate(self.client_indices)
        if repeated := len(joined) - len(np.unique(joined)):
            raise UserError(
                f"cannot apply {option}: the partition assigns samples more than once ({repeated} "
                "repetitions); choose a partition with disjoint clients"
            )


@dataclass(frozen=True)
class NoiseModel:
    """A registered noise model. `apply(data, params)` returns given labels and noise levels."""

    name: str
    params: type  # a class made by `methods.core.params.parameters`
    apply: Callable[[NoiseInput, Any], Noisy]  # its docstring is the summary in lists
    convention: str  # meaning of a noise level; levels of two conventions are not comparable

    @property
    def summary(self) -> str:
        return first_sentence(self.apply)


NOISE_MODELS: Registry[NoiseModel] = Registry("noise model", group="fln.noise", package="noise")


@dataclass(frozen=True)
class NoiseRecord:
    """Labels after noise, and the realized noise of the clients."""

    clean_labels: np.ndarray  # (n,) int64
    labels: np.ndarray  # (n,) int64, given labels
    client_level: np.ndarray  # (K,) nominal noise level
    client_indices: list[np.ndarray]
    num_classes: int
    convention: str

    @cached_property
    def flipped(self) -> np.ndarray:
        """(n,) bool, True where the given label differs from the clean label."""
        return np.asarray(self.labels != self.clean_labels)

    @cached_property
    def client_rate(self) -> np.ndarray:
        """(K,) realized fraction of wrong labels; 0 without samples."""
        wrong = (self.flipped[part] for part in self.client_indices)
        return np.array([part.mean() if len(part) else 0.0 for part in wrong])

    @cached_property
    def transition(self) -> np.ndarray:
        """(C, C) counts clean -> given, over samples of at least one client."""
        used, size = np.unique(np.concatenate(self.client_indices)), self.num_classes
        pairs = self.clean_labels[used] * size + self.labels[used]
        return np.bincount(pairs, minlength=size**2).reshape(size, size)


def sample_exact_fraction(
    groups: Iterable[np.ndarray], epsilon: float, rng: np.random.Generator
) -> np.ndarray:
    """Sample int(size * epsilon) members of each group.

    With the same seed, the members for a larger epsilon include those for a smaller one.
    """
    return np.concatenate([rng.permutation(group)[: int(len(group) * epsilon)] for group in groups])
