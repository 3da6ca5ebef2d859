"""Symmetric noise with exact counts: a selected sample gets one of the C - 1 other classes.

Scopes:
- global: LSG and FedLSR. Exactly int(n_c * epsilon) samples of each class of the dataset,
  independent of the partition.
- client: RoFL. Exactly int(n_k * epsilon) samples of each client, so all clients have one rate.
"""

from typing import Literal

import numpy as np

from methods.core.params import Fraction, parameters
from noise.base import NOISE_MODELS, NoiseInput, NoiseModel, Noisy, sample_exact_fraction


@parameters
class SymmetricParams:
    epsilon: Fraction  # fraction of wrong labels
    scope: Literal["global", "client"] = "global"  # where the fraction is exact


def apply_symmetric(data: NoiseInput, params: SymmetricParams) -> Noisy:
    """Exact fraction epsilon of labels moved to another class, uniformly."""
    data.require_two_classes(params.epsilon)
    rng = data.rng("symmetric")
    groups = data.class_members()
    if params.scope == "client":
        data.require_disjoint("noise.scope=client")
        groups = data.client_indices
    flipped = sample_exact_fraction(groups, params.epsilon, rng)
    given = data.labels.copy()
    if len(flipped):
        # One offset per sample of the dataset, so that a wrong label does not depend on epsilon.
        offsets = rng.integers(1, data.num_classes, len(data.labels))
        given[flipped] = (data.labels[flipped] + offsets[flipped]) % data.num_classes
    return given, np.full(data.num_clients, params.epsilon)


CONVENTION = (
    "LSG (scope global) and RoFL (scope client): epsilon is the exact fraction of wrong labels, "
    "per class of the whole dataset or per client. The true class is never drawn."
)
NOISE_MODELS.add(NoiseModel("symmetric", SymmetricParams, apply_symmetric, CONVENTION))
