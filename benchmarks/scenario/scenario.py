"""Federated scenario shared by all methods of a seed: data partition and label noise."""

import hashlib
import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import noise
import partition
from benchmarks.config.schema import RunConfig
from benchmarks.data import Dataset
from benchmarks.records.files import atomic_write


@dataclass(frozen=True)
class Scenario:
    """Samples and labels of all clients."""

    client_indices: list[np.ndarray]  # sample indices of each client
    clean_labels: np.ndarray  # (n,) labels of the dataset
    noise: noise.NoiseRecord
    num_classes: int

    @property
    def num_clients(self) -> int:
        return len(self.client_indices)

    @property
    def client_sizes(self) -> np.ndarray:
        """Number of samples of each client."""
        return np.array([len(indices) for indices in self.client_indices], dtype=np.int64)

    @property
    def noise_rate(self) -> float:
        """Fraction of wrong labels over the samples of all clients."""
        return float(self.noise.flipped[np.concatenate(self.client_indices)].mean())

    @property
    def hash(self) -> str:
        """Hash of partition and given labels. Runs with equal hashes have the same scenario."""
        digest = hashlib.sha256()
        for indices in self.client_indices:
            digest.update(len(indices).to_bytes(8, "little"))
            digest.update(indices.astype("<i8").tobytes())
        digest.update(self.noise.labels.astype("<i8").tobytes())
        return digest.hexdigest()[:16]

    def class_counts(self, labels: np.ndarray) -> np.ndarray:
        """Histogram (clients, classes) of labels of the training samples."""
        counts = [np.bincount(labels[i], minlength=self.num_classes) for i in self.client_indices]
        return np.stack(counts)

    def save(self, path: Path) -> None:
        """Write the scenario as an .npz file."""
        buffer = io.BytesIO()
        np.savez_compressed(
            buffer,
            parts=np.concatenate(self.client_indices),
            sizes=self.client_sizes,
            noisy_labels=self.noise.labels,
            flipped=self.noise.flipped,
            client_level=self.noise.client_level,
            client_rate=self.noise.client_rate,
            transition=self.noise.transition,
            clean_counts=self.class_counts(self.clean_labels),
        )
        atomic_write(path, buffer.getvalue())


def build_scenario(config: RunConfig, dataset: Dataset) -> Scenario:
    """Partition the training samples by their clean labels, then apply label noise."""
    labels, num_classes, seed = dataset.train_labels, dataset.num_classes, config.seed
    name, params = config.partition.name, config.partition.params
    num_clients = config.federation.num_clients
    client_indices = partition.partition_labels(name, labels, num_clients, seed, params)
    noise_clients = partition.clients_for_noise(name, labels, client_indices, seed, params)
    record = noise.apply_noise(
        config.noise.name, labels, noise_clients, num_classes, seed, config.noise.params
    )
    if noise_clients is not client_indices:
        record = noise.pool_noise_record(record, labels, client_indices, num_classes)
    return Scenario(client_indices, labels, record, num_classes)
