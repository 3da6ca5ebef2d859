"""A few random classes per client, as in FedLSR (Jiang et al., CIKM 2022) and LSG.

Each client independently chooses its classes and a uniform random weight for each. It takes that
fraction of its num_samples / num_clients samples from all samples of the class. Clients therefore
overlap, and some samples are not used. Counts are rounded down, so a client can have slightly
fewer samples.
"""

import numpy as np

from methods.core.errors import UserError, invalid
from methods.core.params import PositiveInt, parameters
from partition.base import PARTITIONERS, Partitioner, make_rng


@parameters
class ClassesPerClientParams:
    classes: PositiveInt = 5  # number of classes of a client
    replace: bool = False  # sample with replacement within a client (LSG's official code)


def partition(
    labels: np.ndarray, num_clients: int, seed: int, params: ClassesPerClientParams
) -> list[np.ndarray]:
    """A few random classes per client; clients overlap (FedLSR, LSG)."""
    rng = make_rng(seed, "classes_per_client")
    pools = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    local_size = len(labels) // num_clients
    # Rounding down loses less than one sample per class, so every client has at least one sample.
    for limit, what in ((len(pools), "number of classes"), (local_size, "samples per client")):
        if params.classes > limit:
            raise invalid("partition.classes", params.classes, f"at most {limit}, the {what}")
    client_indices = []
    for _ in range(num_clients):
        chosen = rng.choice(len(pools), params.classes, replace=False)
        weights = rng.random(params.classes)
        counts = (local_size * weights / weights.sum()).astype(np.int64)
        indices = []
        for label, count in zip(chosen, counts, strict=True):
            pool = pools[label]
            if count > len(pool) and not params.replace:
                raise UserError(
                    f"cannot partition with replace=false: a client needs {count} samples of a "
                    f"class with {len(pool)}; set partition.replace=true or increase "
                    "partition.classes or federation.num_clients"
                )
            indices.append(rng.choice(pool, count, replace=params.replace))
        client_indices.append(np.concatenate(indices))
    return client_indices


PARTITIONERS.add(
    Partitioner(
        "classes_per_client",
        ClassesPerClientParams,
        partition,
        disjoint=False,
        uses_all_samples=False,
    )
)
