"""All samples on one client: the setting of the centralized rows in FedCorr's Table 2."""

from dataclasses import dataclass

import numpy as np

from .base import Scheme, check, is_integer
from .iid import IidParams
from .iid import split as split_iid


@dataclass(frozen=True)
class CentralizedParams:
    noise_clients: int = 100  # noise is drawn on an IID federation of this many clients and then pooled, as FedCorr's reference rows do

    def __post_init__(self) -> None:
        value = self.noise_clients
        check("noise_clients", value, is_integer(value) and value >= 1, "an integer of at least 1")


def split(
    labels: np.ndarray, num_clients: int, seed: int, params: CentralizedParams
) -> list[np.ndarray]:
    check("num_clients", num_clients, num_clients == 1, "1 for the centralized partition")
    return [np.arange(len(labels))]


def noise_parts(labels: np.ndarray, seed: int, params: CentralizedParams) -> list[np.ndarray]:
    most = len(labels)
    check(
        "noise_clients",
        params.noise_clients,
        params.noise_clients <= most,
        f"at most {most}, the samples there are",
    )
    return split_iid(labels, params.noise_clients, seed, IidParams())


SCHEME = Scheme(
    name="centralized",
    params=CentralizedParams,
    function=split,
    one_line="all samples on one client",
    disjoint=True,
    covering=True,
    noise_parts=noise_parts,
)
