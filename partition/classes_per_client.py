"""A few random classes per client, the non-IID setting of FedLSR (Jiang et al., CIKM 2022) that LSG follows.

Each client, independently of the others, chooses its classes, draws a uniform weight for each, and takes that share of
its num_samples / num_clients samples from the whole pool of the class. Clients therefore overlap, and some samples are
used by nobody. Shares are cut down to whole samples, so a client can be short of a few.
`replace` draws with replacement inside a client, as LSG's released code does; FedLSR draws without.
"""

from dataclasses import dataclass

import numpy as np

from .base import PartitionError, Scheme, check, generator, is_integer


@dataclass(frozen=True)
class ClassesPerClientParams:
    classes: int = 5
    replace: bool = False  # may a client hold one sample several times

    def __post_init__(self) -> None:
        check(
            "classes",
            self.classes,
            is_integer(self.classes) and self.classes >= 1,
            "an integer of at least 1",
        )
        check("replace", self.replace, isinstance(self.replace, bool), "true or false")


def split(
    labels: np.ndarray, num_clients: int, seed: int, params: ClassesPerClientParams
) -> list[np.ndarray]:
    rng = generator(seed, "classes_per_client")
    pools = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    check(
        "classes",
        params.classes,
        params.classes <= len(pools),
        f"at most {len(pools)}, the classes of the data set",
    )
    local_size = len(labels) // num_clients
    # Cutting each share down loses less than one sample per class, so this many leave every client at least one.
    check(
        "classes",
        params.classes,
        params.classes <= local_size,
        f"at most {local_size}, the samples per client",
    )
    parts = []
    for _ in range(num_clients):
        chosen = rng.choice(len(pools), params.classes, replace=False)
        weights = rng.random(params.classes)
        counts = (local_size * weights / weights.sum()).astype(np.int64)
        pieces = []
        for label, count in zip(chosen, counts, strict=True):
            pool = pools[label]
            if count > len(pool) and not params.replace:
                raise PartitionError(
                    f"partition.replace=False: a client of {local_size} samples wants {count} of a class that has "
                    f"{len(pool)}; must be true, or more than {params.classes} classes or {num_clients} clients"
                )
            pieces.append(rng.choice(pool, count, replace=params.replace))
        parts.append(np.concatenate(pieces))
    return parts


SCHEME = Scheme(
    name="classes_per_client",
    params=ClassesPerClientParams,
    function=split,
    one_line="each client draws from a few random classes; clients overlap, as in FedLSR and LSG",
    disjoint=False,
    covering=False,
)
