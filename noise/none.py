"""No label noise."""

import numpy as np

from methods.core.params import NoParams
from noise.base import NOISE_MODELS, NoiseModel


def apply_none(
    labels: np.ndarray,
    client_indices: list[np.ndarray],
    num_classes: int,
    seed: int,
    params: NoParams,
) -> tuple[np.ndarray, np.ndarray]:
    return labels.copy(), np.zeros(len(client_indices))


NOISE_MODELS.add(
    NoiseModel(
        name="none",
        params=NoParams,
        apply=apply_none,
        summary="clean labels",
        convention="No label is changed.",
    )
)
