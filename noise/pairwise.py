"""Pairwise noise with exact counts, as in LSG: y becomes (y + direction) mod C.

LSG and FedLSR use the previous class (direction -1). Co-teaching (Han et al., NeurIPS 2018) uses
the next class.
"""

from typing import Literal

import numpy as np

from methods.core.params import Fraction, parameters
from noise.base import NOISE_MODELS, NoiseInput, NoiseModel, Noisy, sample_exact_fraction


@parameters
class PairwiseParams:
    epsilon: Fraction  # fraction of wrong labels
    direction: Literal[-1, 1] = -1  # offset of the wrong class


def apply_pairwise(data: NoiseInput, params: PairwiseParams) -> Noisy:
    """Exact fraction epsilon of each class moved to the adjacent class."""
    data.require_two_classes(params.epsilon)
    flipped = sample_exact_fraction(data.class_members(), params.epsilon, data.rng("pairwise"))
    given = data.labels.copy()
    given[flipped] = (data.labels[flipped] + params.direction) % data.num_classes
    return given, np.full(data.num_clients, params.epsilon)


CONVENTION = (
    "LSG: epsilon is the exact fraction of wrong labels in each class of the whole dataset. All "
    "wrong labels of a class are in the adjacent class (the previous one, or the next one if "
    "direction is 1)."
)
NOISE_MODELS.add(NoiseModel("pairwise", PairwiseParams, apply_pairwise, CONVENTION))
