"""All samples on one client: the setting of the centralized rows in FedCorr's Table 2."""

from dataclasses import dataclass

import numpy as np

from .base import Scheme, check


@dataclass(frozen=True)
class CentralizedParams:
    """Nothing to choose."""


def split(labels: np.ndarray, num_clients: int, seed: int, params: CentralizedParams) -> list[np.ndarray]:
    check("num_clients", num_clients, num_clients == 1, "1 for the centralized partition")
    return [np.arange(len(labels))]


SCHEME = Scheme(
    name="centralized",
    params=CentralizedParams,
    function=split,
    one_line="all samples on one client",
    disjoint=True,
    covering=True,
)
