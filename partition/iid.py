"""IID partitions: all clients sample from the same distribution.

Forms:
- plain: one random permutation, split into nearly equal parts. All samples are used.
- official: the official code of FedCorr (Xu et al., CVPR 2022, section 3.1). Clients sample in
  turn from the remaining samples. The remainder of samples / clients is not assigned to any client.
  Samples are not shuffled: a client has them in the order of the official code, nearly ascending.
- stratified: LSG. Each class is permuted and split into nearly equal parts, one per client. All
  clients have the same class counts up to one sample; clients with lower ids get the extra ones.
"""

from typing import Literal

import numpy as np

from methods.core.params import parameters
from partition.base import PARTITIONERS, Partitioner, assign_samples, make_rng


@parameters
class IidParams:
    form: Literal["plain", "official", "stratified"] = "plain"  # implementation variant


def partition_iid(
    labels: np.ndarray, num_clients: int, seed: int, params: IidParams
) -> list[np.ndarray]:
    """Equal random parts: permutation, official code of FedCorr, or per class (LSG)."""
    if params.form == "official":
        return _partition_official(len(labels), num_clients, seed)
    rng = make_rng(seed, "iid")
    if params.form == "stratified":
        _, class_sizes = np.unique(labels, return_counts=True)
        base, extra = np.divmod(class_sizes[:, None], num_clients)
        return assign_samples(labels, base + (np.arange(num_clients) < extra), rng)
    return np.array_split(rng.permutation(len(labels)), num_clients)


def _partition_official(num_samples: int, num_clients: int, seed: int) -> list[np.ndarray]:
    """Random draws of the official code. They depend on the iteration order of Python sets."""
    rng = np.random.RandomState(seed)
    pool = list(range(num_samples))
    client_indices = []
    for _ in range(num_clients):
        chosen = set(rng.choice(pool, num_samples // num_clients, replace=False).tolist())
        pool = list(set(pool) - chosen)
        client_indices.append(np.array(list(chosen), dtype=np.int64))
    return client_indices


# form=official drops up to num_clients - 1 samples.
PARTITIONERS.add(Partitioner("iid", IidParams, partition_iid, uses_all_samples=False))
