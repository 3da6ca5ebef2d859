"""Label noise: given the clean labels and the clients, the labels that clients see and a record of what was changed."""

from typing import Any

import numpy as np

from . import human, none, pairwise, rho_tau, symmetric
from .base import NoiseError, NoiseModel, NoiseRecord, check

__all__ = ["MODELS", "NoiseError", "NoiseModel", "NoiseRecord", "apply"]

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
    check("labels", f"{clean.dtype}{clean.shape}", in_range, f"one integer in [0, {num_classes}) per sample")
    clean = clean.astype(np.int64)
    check("seed", seed, isinstance(seed, (int, np.integer)) and 0 <= seed < 2**32, "an integer in [0, 2**32)")
    check("parts", len(parts), len(parts) > 0, "the samples of at least one client")
    held = np.zeros(len(clean), dtype=bool)
    for client, part in enumerate(parts):
        inside = bool(((part >= 0) & (part < len(clean))).all())
        check("parts", f"client {client}", inside, f"sample indices in [0, {len(clean)})")
        held[part] = True

    noisy, level = model.function(clean, parts, num_classes, seed, params)
    flipped = noisy != clean
    pairs = clean[held] * num_classes + noisy[held]
    return NoiseRecord(
        labels=noisy,
        flipped=flipped,
        client_level=level,
        client_rate=np.array([flipped[part].mean() if len(part) else 0.0 for part in parts]),
        transition=np.bincount(pairs, minlength=num_classes**2).reshape(num_classes, num_classes),
        convention=model.convention,
    )
