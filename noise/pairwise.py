"""Pairwise noise with exact counts, as in LSG: y becomes (y + direction) mod C.

LSG and FedLSR use the previous class (direction -1). Co-teaching (Han et al., NeurIPS 2018) uses
the next class.
"""

from typing import Literal

import numpy as np

from methods.core.params import Fraction, parameters
from noise.base import (
    NOISE_MODELS,
    NoiseModel,
    class_members,
    make_rng,
    require_two_classes,
    sample_exact_fraction,
)


@parameters
class PairwiseParams:
    epsilon: Fraction  # fraction of wrong labels
    direction: Literal[-1, 1] = -1  # offset of the wrong class


def apply_pairwise(
    labels: np.ndarray,
    client_indices: list[np.ndarray],
    num_classes: int,
    seed: int,
    params: PairwiseParams,
) -> tuple[np.ndarray, np.ndarray]:
    require_two_classes(params.epsilon, num_classes)
    rng = make_rng(seed, "pairwise")
    flipped = sample_exact_fraction(class_members(labels, num_classes), params.epsilon, rng)
    given = labels.copy()
    given[flipped] = (labels[flipped] + params.direction) % num_classes
    return given, np.full(len(client_indices), params.epsilon)


NOISE_MODELS.add(
    NoiseModel(
        name="pairwise",
        params=PairwiseParams,
        apply=apply_pairwise,
        summary="exact fraction epsilon of each class moved to the adjacent class",
        convention="LSG: epsilon is the exact fraction of wrong labels in each class of the whole "
        "dataset. All wrong labels of a class are in the adjacent class (the previous one, or the "
        "next one if direction is 1).",
    )
)
