"""Label noise between two classes: an external noise model."""

import numpy as np

from methods.core.errors import invalid
from methods.core.params import Fraction, NonNegativeInt, parameters
from noise.base import NOISE_MODELS, NoiseInput, NoiseModel, Noisy


@parameters
class ClassPairParams:
    epsilon: Fraction = 0.2  # probability that a label of the source class is wrong
    source: NonNegativeInt = 0
    target: NonNegativeInt = 1


def apply_class_pair(data: NoiseInput, params: ClassPairParams) -> Noisy:
    """Labels of one class moved to another with probability epsilon."""
    if max(params.source, params.target) >= data.num_classes:
        raise invalid("noise.target", params.target, f"classes from 0 to {data.num_classes - 1}")
    is_selected = data.rng("class_pair").random(len(data.labels)) < params.epsilon
    given = np.where(is_selected & (data.labels == params.source), params.target, data.labels)
    return given, np.full(data.num_clients, params.epsilon)


CONVENTION = "Example: epsilon is the probability of a wrong label in the source class."
NOISE_MODELS.add(NoiseModel("class_pair", ClassPairParams, apply_class_pair, CONVENTION))
