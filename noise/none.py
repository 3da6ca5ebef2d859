"""No noise: every label as the data set gives it."""

from dataclasses import dataclass

import numpy as np

from .base import NoiseModel


@dataclass(frozen=True)
class NoneParams:
    """Nothing to choose."""


def draw(
    labels: np.ndarray, parts: list[np.ndarray], num_classes: int, seed: int, params: NoneParams
) -> tuple[np.ndarray, np.ndarray]:
    return labels.copy(), np.zeros(len(parts))


MODEL = NoiseModel(
    name="none",
    params=NoneParams,
    function=draw,
    one_line="labels as the data set gives them",
    convention="No label is changed.",
)
