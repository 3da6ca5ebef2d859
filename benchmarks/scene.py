"""The frozen world that every method of a seed shares: who holds which samples, and which labels are wrong."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import noise
import partition
from benchmarks.config import RunConfig
from benchmarks.data import Dataset
from benchmarks.errors import UserError


@dataclass(frozen=True)
class Scene:
    parts: list[np.ndarray]  # sample indices of each client
    clean: np.ndarray  # (n,) the data set's own labels
    noise: noise.NoiseRecord
    num_classes: int

    @property
    def num_clients(self) -> int:
        return len(self.parts)

    @property
    def sizes(self) -> np.ndarray:
        return np.array([len(part) for part in self.parts], dtype=np.int64)

    @property
    def hash(self) -> str:
        """Identity of partition and noise; equal hashes mean that two runs saw the same clients with the same labels."""
        digest = hashlib.sha256()
        for part in self.parts:
            digest.update(len(part).to_bytes(8, "little"))
            digest.update(part.astype("<i8").tobytes())
        digest.update(self.noise.labels.astype("<i8").tobytes())
        return digest.hexdigest()[:16]

    def class_counts(self, labels: np.ndarray) -> np.ndarray:
        """(clients, classes) histogram of some labels of the training set."""
        return np.stack([np.bincount(labels[part], minlength=self.num_classes) for part in self.parts])

    def save(self, path: Path) -> None:
        np.savez_compressed(
            path,
            parts=np.concatenate(self.parts),
            sizes=self.sizes,
            noisy_labels=self.noise.labels,
            flipped=self.noise.flipped,
            client_level=self.noise.client_level,
            client_rate=self.noise.client_rate,
            transition=self.noise.transition,
            clean_counts=self.class_counts(self.clean),
        )


def build(config: RunConfig, dataset: Dataset) -> Scene:
    """Partition on the clean labels, then noise. An impossible pair is one line."""
    labels = dataset.train_labels
    try:
        parts = partition.make(config.partition.name, labels, config.federation.num_clients, config.seed, config.partition.params)
        record = noise.apply(config.noise.name, labels, parts, dataset.num_classes, config.seed, config.noise.params)
    except ValueError as error:
        raise UserError(str(error)) from error
    return Scene(parts, labels, record, dataset.num_classes)
