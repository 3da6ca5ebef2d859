"""Symmetric flips with exact counts: a chosen sample gets one of the C - 1 other classes, uniformly.

global  LSG and FedLSR: exactly int(n_c * epsilon) samples of each class of the pooled data set, whatever the partition.
client  RoFL: exactly int(n_k * epsilon) samples of each client, so that all clients have the same rate.
"""

from dataclasses import dataclass

import numpy as np

from .base import NoiseModel, check, check_disjoint, check_rate, generator, pick_exactly

SCOPES = ("global", "client")


@dataclass(frozen=True)
class SymmetricParams:
    epsilon: float  # share of wrong labels
    scope: str = "global"  # where the share is exact

    def __post_init__(self) -> None:
        check_rate("epsilon", self.epsilon)
        check("scope", self.scope, self.scope in SCOPES, f"one of {', '.join(SCOPES)}")


def draw(
    labels: np.ndarray,
    parts: list[np.ndarray],
    num_classes: int,
    seed: int,
    params: SymmetricParams,
) -> tuple[np.ndarray, np.ndarray]:
    check(
        "epsilon",
        params.epsilon,
        num_classes > 1 or params.epsilon == 0,
        "0 where there is one class only",
    )
    rng = generator(seed, "symmetric")
    if params.scope == "client":
        check_disjoint("scope", params.scope, parts, len(labels))
        groups = parts
    else:
        groups = [np.flatnonzero(labels == label) for label in range(num_classes)]
    hit = pick_exactly(groups, params.epsilon, rng)
    result = labels.copy()
    if len(hit):
        # One shift per sample of the data set, hit or not: a sample's wrong label does not depend on epsilon.
        shift = rng.integers(1, num_classes, len(labels))
        result[hit] = (labels[hit] + shift[hit]) % num_classes
    return result, np.full(len(parts), float(params.epsilon))


MODEL = NoiseModel(
    name="symmetric",
    params=SymmetricParams,
    function=draw,
    one_line="an exact share epsilon of labels moved to another class, uniformly",
    convention="LSG (scope global) and RoFL (scope client): epsilon is the exact share of wrong labels, per class of "
    "the pooled data set or per client; the true class is never drawn.",
)
