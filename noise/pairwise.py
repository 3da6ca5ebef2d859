"""Pairwise flips with exact counts, as LSG makes them on the pooled data set: y becomes (y + direction) mod C.

LSG and FedLSR move to the class before (direction -1); Co-teaching (Han et al., NeurIPS 2018) moves to the class after.
"""

from dataclasses import dataclass

import numpy as np

from .base import NoiseModel, check, check_rate, generator, pick_exactly


@dataclass(frozen=True)
class PairwiseParams:
    epsilon: float  # share of wrong labels
    direction: int = -1  # step to the neighbour class

    def __post_init__(self) -> None:
        check_rate("epsilon", self.epsilon)
        is_step = type(self.direction) is int and self.direction in (-1, 1)
        check("direction", self.direction, is_step, "-1 or 1")


def draw(
    labels: np.ndarray, parts: list[np.ndarray], num_classes: int, seed: int, params: PairwiseParams
) -> tuple[np.ndarray, np.ndarray]:
    check(
        "epsilon",
        params.epsilon,
        num_classes > 1 or params.epsilon == 0,
        "0 where there is one class only",
    )
    groups = [np.flatnonzero(labels == label) for label in range(num_classes)]
    hit = pick_exactly(groups, params.epsilon, generator(seed, "pairwise"))
    result = labels.copy()
    result[hit] = (labels[hit] + params.direction) % num_classes
    return result, np.full(len(parts), float(params.epsilon))


MODEL = NoiseModel(
    name="pairwise",
    params=PairwiseParams,
    function=draw,
    one_line="an exact share epsilon of each class moved to its neighbour class",
    convention="LSG: epsilon is the exact share of wrong labels per class of the pooled data set, all of them in one "
    "neighbour class (the class before, unless direction is +1).",
)
