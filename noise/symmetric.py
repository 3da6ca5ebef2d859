"""Symmetric noise with exact counts: a selected sample gets one of the C - 1 other classes.

Scopes:
- global: LSG and FedLSR. Exactly int(n_c * epsilon) samples of each class of the dataset,
  independent of the partition.
- client: RoFL. Exactly int(n_k * epsilon) samples of each client, so all clients have one rate.
"""

from typing import Literal

import numpy as np

from methods.core.params import Fraction, parameters
from noise.base import (
    NOISE_MODELS,
    NoiseModel,
    class_members,
    make_rng,
    require_disjoint,
    require_two_classes,
    sample_exact_fraction,
)


@parameters
class SymmetricParams:
    epsilon: Fraction  # fraction of wrong labels
    scope: Literal["global", "client"] = "global"  # where the fraction is exact


def apply_symmetric(
    labels: np.ndarray,
    client_indices: list[np.ndarray],
    num_classes: int,
    seed: int,
    params: SymmetricParams,
) -> tuple[np.ndarray, np.ndarray]:
    require_two_classes(params.epsilon, num_classes)
    rng = make_rng(seed, "symmetric")
    groups = class_members(labels, num_classes)
    if params.scope == "client":
        require_disjoint("noise.scope=client", client_indices)
        groups = client_indices
    flipped = sample_exact_fraction(groups, params.epsilon, rng)
    given = labels.copy()
    if len(flipped):
        # One offset per sample of the dataset, so that a wrong label does not depend on epsilon.
        offsets = rng.integers(1, num_classes, len(labels))
        given[flipped] = (labels[flipped] + offsets[flipped]) % num_classes
    return given, np.full(len(client_indices), params.epsilon)


NOISE_MODELS.add(
    NoiseModel(
        name="symmetric",
        params=SymmetricParams,
        apply=apply_symmetric,
        summary="exact fraction epsilon of labels moved to another class, uniformly",
        convention="LSG (scope global) and RoFL (scope client): epsilon is the exact fraction of "
        "wrong labels, per class of the whole dataset or per client. The true class is never "
        "drawn.",
    )
)
