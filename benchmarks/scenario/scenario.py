"""Federated scenario shared by all methods of a seed: data partition and label noise."""

import hashlib
import io
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

import noise
import partition
from benchmarks.config.schema import RunConfig
from benchmarks.data import Dataset
from benchmarks.records.files import atomic_write
from methods.core.errors import UserError
from methods.core.streams import numpy_generator


@dataclass(frozen=True)
class Scenario:
    """Samples and labels of all clients."""

    client_indices: list[np.ndarray]  # sample indices of each client
    clean_labels: np.ndarray  # (n,) labels of the dataset
    noise: noise.NoiseRecord
    num_classes: int
    # Indices of samples that clients have lost to the validation set. No client has them.
    held_out: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    noisy_labels: np.ndarray | None = None  # of the scenario, if clients get the clean labels

    @property
    def num_clients(self) -> int:
        return len(self.client_indices)

    @property
    def client_sizes(self) -> np.ndarray:
        return np.array([len(indices) for indices in self.client_indices], dtype=np.int64)

    @property
    def noise_rate(self) -> float:
        """Fraction of wrong labels over the samples of all clients."""
        return float(self.noise.flipped[np.concatenate(self.client_indices)].mean())

    @property
    def hash(self) -> str:
        """Hash of partition and noisy labels. Runs with equal hashes have the same scenario."""
        digest = hashlib.sha256()
        for indices in self.client_indices:
            digest.update(len(indices).to_bytes(8, "little"))
            digest.update(indices.astype("<i8").tobytes())
        labels = self.noise.labels if self.noisy_labels is None else self.noisy_labels
        digest.update(labels.astype("<i8").tobytes())
        digest.update(self.held_out.astype("<i8").tobytes())
        return digest.hexdigest()[:16]

    def class_counts(self, labels: np.ndarray) -> np.ndarray:
        """Histogram (clients, classes) of labels of the training samples."""
        counts = [np.bincount(labels[i], minlength=self.num_classes) for i in self.client_indices]
        return np.stack(counts)

    def save(self, path: Path) -> None:
        buffer = io.BytesIO()
        np.savez_compressed(
            buffer,
            parts=np.concatenate(self.client_indices),
            sizes=self.client_sizes,
            held_out=self.held_out,
            noisy_labels=self.noise.labels,
            flipped=self.noise.flipped,
            client_level=self.noise.client_level,
            client_rate=self.noise.client_rate,
            transition=self.noise.transition,
            clean_counts=self.class_counts(self.clean_labels),
        )
        atomic_write(path, buffer.getvalue())


def build_scenario(config: RunConfig, dataset: Dataset) -> Scenario:
    """Partition the training samples by clean labels, apply label noise, hold out samples."""
    labels, num_classes, seed = dataset.train_labels, dataset.num_classes, config.seed
    name, params = config.partition.name, config.partition.params
    num_clients = config.federation.num_clients
    client_indices = partition.partition_labels(name, labels, num_clients, seed, params)
    noise_clients = partition.clients_for_noise(name, labels, client_indices, seed, params)
    record = noise.apply_noise(
        config.noise.name, labels, noise_clients, num_classes, seed, config.noise.params
    )
    if noise_clients is not client_indices:
        record = noise.pool_noise_record(record, client_indices)
    scenario = Scenario(client_indices, labels, record, num_classes)
    scenario = hold_out(scenario, config.evaluate.validation, seed)
    if config.labels == "given":
        return scenario
    if not dataset.labels_are_clean:
        reason = f"{dataset.name} has no clean training labels"
        raise UserError(f"cannot train on labels=clean: {reason}")
    convention = "Clean labels; the noise of the scenario is not applied."
    levels = np.zeros(num_clients)
    clean = replace(scenario.noise, labels=labels, client_level=levels, convention=convention)
    # The hash stays that of the scenario with noise.
    return replace(scenario, noise=clean, noisy_labels=scenario.noise.labels)


def hold_out(scenario: Scenario, share: float, seed: int) -> Scenario:
    """Take a random share of the samples of each client away from it.

    At least one sample is kept, and at least one is held out unless it is the only one. Noise rates
    are those of the samples that are kept; noise levels stay.
    """
    if not share:
        return scenario
    kept, held_out = [], []
    for client, indices in enumerate(scenario.client_indices):
        count = min(max(round(share * len(indices)), 1), len(indices) - 1)
        order = numpy_generator(seed, "validation", client).permutation(len(indices))
        held_out.append(indices[np.sort(order[:count])])
        kept.append(indices[np.sort(order[count:])])
    record = replace(scenario.noise, client_indices=kept)
    return replace(scenario, client_indices=kept, noise=record, held_out=np.concatenate(held_out))
