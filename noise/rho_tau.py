"""Client-dependent noise of FedCorr (Xu et al., CVPR 2022, section 3.1).

A client is noisy with probability rho. The noise level mu_k of a noisy client is uniform in
[tau, 1]. Each of its labels is replaced with probability mu_k, independently, by a class drawn
uniformly, which may be the true class.

Forms:
- plain: random streams that are independent of the partition.
- official: the official code. A legacy generator is seeded with the partition's seed, and samples
  are processed in the order of the client indices.

Deviations:
1. The official code draws replacement labels from the classes 0 to 9 for every dataset, the paper
   from all classes. The default follows the paper; `classes=10` gives the behavior of the official
   code on CIFAR-100.
"""

from typing import Literal

import numpy as np

from methods.core.errors import invalid
from methods.core.params import Fraction, PositiveInt, parameters
from noise.base import NOISE_MODELS, NoiseInput, NoiseModel, Noisy


@parameters
class RhoTauParams:
    rho: Fraction  # system noise level, probability that a client is noisy
    tau: Fraction  # lower bound of the noise level of a noisy client
    classes: PositiveInt | None = None  # number of replacement classes; null: all
    form: Literal["plain", "official"] = "plain"  # implementation variant


def apply_rho_tau(data: NoiseInput, params: RhoTauParams) -> Noisy:
    """FedCorr: a client is noisy with probability rho, its level is uniform in [tau, 1]."""
    classes = data.num_classes if params.classes is None else params.classes
    if classes > data.num_classes:
        raise invalid("noise.classes", classes, f"null or at most {data.num_classes}")
    data.require_disjoint("noise=rho_tau")
    rng = np.random.RandomState(data.seed) if params.form == "official" else data.rng("rho_tau")
    integers = rng.randint if isinstance(rng, np.random.RandomState) else rng.integers
    is_noisy = rng.binomial(1, params.rho, data.num_clients)
    level = is_noisy * ((1 - params.tau) * rng.random(data.num_clients) + params.tau)
    given = data.labels.copy()
    for client in np.flatnonzero(level > 0):
        indices = data.client_indices[client]
        replaced = indices[rng.random(len(indices)) <= level[client]]
        given[replaced] = integers(0, classes, len(replaced))
    return given, level


CONVENTION = (
    "FedCorr: a noise level is the probability that a label is redrawn uniformly from all classes, "
    "so the fraction of wrong labels is about level * (1 - 1/C)."
)
NOISE_MODELS.add(NoiseModel("rho_tau", RhoTauParams, apply_rho_tau, CONVENTION))
