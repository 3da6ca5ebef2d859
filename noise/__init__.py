"""Label noise: given the clean labels and the clients, the labels that clients see and a record of what was changed."""

from typing import Any

import numpy as np

from . import human, none, pairwise, rho_tau, symmetric
from .base import NoiseError, NoiseModel, NoiseRecord, check

__all__ = ["MODELS", "NoiseError", "NoiseModel", "NoiseRecord", "apply", "pool", "record"]

MODELS: dict[str, NoiseModel] = {
    module.MODEL.name: module.MODEL for module in (rho_tau, symmetric, pairwise, human, none)
}


def apply(
    name: str, labels: np.ndarray, parts: list[np.ndarray], num_classes: int, seed: int, params: Any
) -> NoiseRecord:
    """Draw the noise of one data set. The given labels stay as they are."""
    check("name", name, name in MODELS, f"one of {', '.join(MODELS)}")
    model = MODELS[name]
    check("params", params, isinstance(params, model.params), f"a {model.params.__name__}")
    clean = np.array(labels)
    is_label_vector = clean.ndim == 1 and len(clean) > 0 and np.issubdtype(clean.dtype, np.integer)
    in_range = is_label_vector and bool(((clean >= 0) & (clean < num_classes)).all())
    check(
        "labels",
        f"{clean.dtype}{clean.shape}",
        in_range,
        f"one integer in [0, {num_classes}) per sample",
    )
    clean = clean.astype(np.int64)
    check(
        "seed",
        seed,
        isinstance(seed, (int, np.integer)) and 0 <= seed < 2**32,
        "an integer in [0, 2**32)",
    )
    check("parts", len(parts), len(parts) > 0, "the samples of at least one client")
    for client, part in enumerate(parts):
        inside = bool(((part >= 0) & (part < len(clean))).all())
        check("parts", f"client {client}", inside, f"sample indices in [0, {len(clean)})")

    noisy, level = model.function(clean, parts, num_classes, seed, params)
    return record(clean, noisy, level, parts, num_classes, model.convention)


def record(
    clean: np.ndarray,
    noisy: np.ndarray,
    level: np.ndarray,
    parts: list[np.ndarray],
    num_classes: int,
    convention: str,
) -> NoiseRecord:
    """What the noise came out to be, for the clients that hold the samples."""
    held = np.unique(np.concatenate(parts))
    flipped = noisy != clean
    return NoiseRecord(
        labels=noisy,
        flipped=flipped,
        client_level=level,
        client_rate=np.array([flipped[part].mean() if len(part) else 0.0 for part in parts]),
        transition=np.bincount(
            clean[held] * num_classes + noisy[held], minlength=num_classes**2
        ).reshape(num_classes, num_classes),
        convention=convention,
    )


def pool(
    drawn: NoiseRecord, clean: np.ndarray, parts: list[np.ndarray], num_classes: int
) -> NoiseRecord:
    """Noise drawn for one federation, seen by clients that pool it: a client's level is its realised rate."""
    level = np.array([drawn.flipped[part].mean() for part in parts])
    return record(
        clean,
        drawn.labels,
        level,
        parts,
        num_classes,
        f"{drawn.convention.rstrip('.')}; drawn for a federation and pooled.",
    )
