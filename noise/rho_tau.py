"""FedCorr's noise model (Xu et al., CVPR 2022, section 3.1): clients differ in their level.

A client is noisy with probability rho; its level mu_k is then uniform in [tau, 1]. Each of its samples is hit with
probability mu_k, independently, and a hit label is replaced by a uniform draw that may be the true class again.

plain     own random streams, independent of the partition.
official  the released code: legacy generator restarted with the partition's seed, samples in the order of the parts.

Deviation: the released code draws replacement labels among the classes 0 to 9 on every data set, the paper among all.
The default is the paper's; `classes=10` gives the released behaviour on CIFAR-100.
"""

from dataclasses import dataclass

import numpy as np

from .base import NoiseModel, check, check_disjoint, check_rate, generator

FORMS = ("plain", "official")


@dataclass(frozen=True)
class RhoTauParams:
    rho: float  # system noise level: probability that a client is noisy
    tau: float  # lower bound of a noisy client's level
    classes: int | None = (
        None  # replacement labels are drawn from 0 .. classes - 1; None: all classes of the data set
    )
    form: str = "plain"

    def __post_init__(self) -> None:
        check_rate("rho", self.rho)
        check_rate("tau", self.tau)
        is_count = self.classes is None or (type(self.classes) is int and self.classes >= 1)
        check("classes", self.classes, is_count, "null or an integer of at least 1")
        check("form", self.form, self.form in FORMS, f"one of {', '.join(FORMS)}")


def draw(
    labels: np.ndarray, parts: list[np.ndarray], num_classes: int, seed: int, params: RhoTauParams
) -> tuple[np.ndarray, np.ndarray]:
    classes = num_classes if params.classes is None else params.classes
    check(
        "classes",
        params.classes,
        classes <= num_classes,
        f"null or at most {num_classes}, as the data set has",
    )
    check_disjoint("name", "rho_tau", parts, len(labels))
    rng = np.random.RandomState(seed) if params.form == "official" else generator(seed, "rho_tau")
    noisy = rng.binomial(1, params.rho, len(parts))
    level = noisy * ((1 - params.tau) * rng.random(len(parts)) + params.tau)
    result = labels.copy()
    for client in np.flatnonzero(level > 0):
        hit = parts[client][rng.random(len(parts[client])) <= level[client]]
        integers = rng.randint if isinstance(rng, np.random.RandomState) else rng.integers
        result[hit] = integers(0, classes, len(hit))
    return result, level


MODEL = NoiseModel(
    name="rho_tau",
    params=RhoTauParams,
    function=draw,
    one_line="FedCorr's: a client is noisy with probability rho, its level uniform between tau and 1",
    convention="FedCorr: a level is the chance that a label is redrawn uniformly, the true class included, so the "
    "share of wrong labels is about level * (1 - 1/C).",
)
