"""Label noise: noise models that turn clean labels into the labels given to clients."""

from dataclasses import replace
from typing import Any

import numpy as np

from methods.core.errors import invalid
from noise.base import NOISE_MODELS, NoiseInput, NoiseRecord

__all__ = ["NOISE_MODELS", "NoiseRecord", "apply_noise", "pool_noise_record"]


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
    joined = np.concatenate(client_indices)
    if ((joined < 0) | (joined >= len(labels))).any():
        span = f"{joined.min()} to {joined.max()}"
        raise invalid("client_indices", span, f"0 to {len(labels) - 1}")
    clean = labels.astype(np.int64)
    given, level = model.apply(NoiseInput(clean, client_indices, num_classes, seed), params)
    return NoiseRecord(clean, given, level, client_indices, num_classes, model.convention)


def pool_noise_record(record: NoiseRecord, client_indices: list[np.ndarray]) -> NoiseRecord:
    """Record of the same labels for other clients, whose noise levels are their realized rates."""
    convention = record.convention.rstrip(".")
    convention += "; applied to a federation whose samples are pooled."
    pooled = replace(record, client_indices=client_indices, convention=convention)
    return replace(pooled, client_level=pooled.client_rate)
