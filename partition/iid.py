"""IID partitions: every client's samples come from the same distribution.

plain       one random permutation cut into nearly equal pieces; every sample is used.
official    FedCorr's released code (Xu et al., CVPR 2022, section 3.1): clients draw in turn from what is left; the
            samples that remain when num_clients does not divide the data set belong to nobody.
stratified  LSG: each class is permuted and cut into nearly equal pieces, one per client, so that all clients have the
            same class counts up to one sample (lower ids get the extra ones).
"""

from dataclasses import dataclass

import numpy as np

from .base import Scheme, check, deal, generator

FORMS = ("plain", "official", "stratified")


@dataclass(frozen=True)
class IidParams:
    form: str = "plain"  # which of the three, see above

    def __post_init__(self) -> None:
        check("form", self.form, self.form in FORMS, f"one of {', '.join(FORMS)}")


def split(labels: np.ndarray, num_clients: int, seed: int, params: IidParams) -> list[np.ndarray]:
    if params.form == "official":
        return split_official(len(labels), num_clients, seed)
    rng = generator(seed, "iid")
    if params.form == "stratified":
        _, sizes = np.unique(labels, return_counts=True)
        share, extra = np.divmod(sizes[:, None], num_clients)
        return deal(labels, share + (np.arange(num_clients) < extra), rng)
    return np.array_split(rng.permutation(len(labels)), num_clients)


def split_official(num_samples: int, num_clients: int, seed: int) -> list[np.ndarray]:
    """The released draw order. Pool and clients are Python sets there; later draws depend on their iteration order."""
    rng = np.random.RandomState(seed)
    pool = list(range(num_samples))
    parts = []
    for _ in range(num_clients):
        chosen = set(rng.choice(pool, num_samples // num_clients, replace=False).tolist())
        pool = list(set(pool) - chosen)
        parts.append(np.array(list(chosen), dtype=np.int64))
    return parts


SCHEME = Scheme(
    name="iid",
    params=IidParams,
    function=split,
    one_line="even random split: by permutation, as FedCorr's code (left-overs dropped), or class by class as LSG",
    disjoint=True,
    covering=False,  # the official form drops up to num_clients - 1 samples
)
