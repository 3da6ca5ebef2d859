"""All samples on one client, as in the centralized rows of FedCorr's Table 2."""

import numpy as np

from methods.core.errors import invalid
from methods.core.params import PositiveInt, parameters
from partition.base import PARTITIONERS, Partitioner
from partition.iid import IidParams, partition_iid


@parameters
class CentralizedParams:
    noise_clients: PositiveInt = 100  # clients of the IID federation to which noise is applied


def partition(
    labels: np.ndarray, num_clients: int, seed: int, params: CentralizedParams
) -> list[np.ndarray]:
    """All samples on one client."""
    if num_clients != 1:
        raise invalid("federation.num_clients", num_clients, "1 for partition=centralized")
    return [np.arange(len(labels))]


def clients_for_noise(labels: np.ndarray, seed: int, params: CentralizedParams) -> list[np.ndarray]:
    """Clients of an IID federation. Their noisy samples are pooled, as in FedCorr."""
    if params.noise_clients > len(labels):
        expected = f"at most {len(labels)}, the number of samples"
        raise invalid("partition.noise_clients", params.noise_clients, expected)
    return partition_iid(labels, params.noise_clients, seed, IidParams())


PARTITIONERS.add(
    Partitioner("centralized", CentralizedParams, partition, clients_for_noise=clients_for_noise)
)
