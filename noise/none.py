"""No label noise."""

import numpy as np

from methods.core.params import NoParams
from noise.base import NOISE_MODELS, NoiseInput, NoiseModel, Noisy


def apply_none(data: NoiseInput, params: NoParams) -> Noisy:
    """Clean labels."""
    return data.labels.copy(), np.zeros(data.num_clients)


NOISE_MODELS.add(NoiseModel("none", NoParams, apply_none, "No label is changed."))
