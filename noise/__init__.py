"""Label noise: noise models that turn clean labels into the labels given to clients."""

from typing import Any

import numpy as np

from methods.core.errors import invalid
from noise.base import NOISE_MODELS, NoiseInput, NoiseRecord

__all__ = ["NOISE_MODELS", "NoiseRecord", "apply_noise", "make_noise_record", "pool_noise_record"]


def apply_noise(
    name: str,
    labels: np.ndarray,
    client_indices: list[np.ndarray],
    num_classes: int,
    seed: int,
    params: Any,
) -> NoiseRecord:
    """Apply a noise model to the clean labels of a dataset. The arguments are not changed."""
    model = NOISE_MODELS.get(name)
    labels = np.asarray(labels)
    if not isinstance(params, model.params):
        raise invalid("noise.params", params, f"an instance of {model.params.__name__}")
    if labels.ndim != 1 or not len(labels) or not np.issubdtype(labels.dtype, np.integer):
        raise invalid("labels", f"{labels.dtype}{labels.shape}", "one integer per sample")
    if labels.min() < 0 or labels.max() >= num_classes:
        raise invalid("labels", f"{labels.min()} to {labels.max()}", f"0 to {num_classes - 1}")
    if not 0 <= seed < 2**32:
        raise invalid("seed", seed, "an integer in [0, 2**32)")
    if not client_indices:
        raise invalid("client_indices", client_indices, "at least one client")
    joined = np.concatenate(client_indices)
    if ((joined < 0) | (joined >= len(labels))).any():
        span = f"{joined.min()} to {joined.max()}"
        raise invalid("client_indices", span, f"0 to {len(labels) - 1}")
    clean = labels.astype(np.int64)
    given, level = model.apply(NoiseInput(clean, client_indices, num_classes, seed), params)
    return make_noise_record(clean, given, level, client_indices, num_classes, model.convention)


def make_noise_record(
    clean_labels: np.ndarray,
    given_labels: np.ndarray,
    level: np.ndarray,
    client_indices: list[np.ndarray],
    num_classes: int,
    convention: str,
) -> NoiseRecord:
    """Realized noise statistics for the given clients."""
    flipped = given_labels != clean_labels
    used = np.unique(np.concatenate(client_indices))
    pairs = clean_labels[used] * num_classes + given_labels[used]
    return NoiseRecord(
        labels=given_labels,
        flipped=flipped,
        client_level=level,
        client_rate=_noise_rates(flipped, client_indices),
        transition=np.bincount(pairs, minlength=num_classes**2).reshape(num_classes, num_classes),
        convention=convention,
    )


def pool_noise_record(
    record: NoiseRecord,
    clean_labels: np.ndarray,
    client_indices: list[np.ndarray],
    num_classes: int,
) -> NoiseRecord:
    """Record of the same labels for other clients, whose noise levels are their realized rates."""
    rates = _noise_rates(record.flipped, client_indices)
    convention = record.convention.rstrip(".")
    convention += "; applied to a federation whose samples are pooled."
    return make_noise_record(
        clean_labels, record.labels, rates, client_indices, num_classes, convention
    )


def _noise_rates(flipped: np.ndarray, client_indices: list[np.ndarray]) -> np.ndarray:
    return np.array([flipped[part].mean() if len(part) else 0.0 for part in client_indices])
