"""Label-sorted shards (McMahan et al., AISTATS 2017), also in RoFL (Yang et al., 2022).

The samples are sorted by label and split into num_clients * shards_per_client nearly equal shards.
Each client gets random shards. With two shards per client, most clients have two classes.
"""

import numpy as np

from methods.core.errors import invalid
from methods.core.params import PositiveInt, parameters
from partition.base import PARTITIONERS, Partitioner, make_rng


@parameters
class ShardsParams:
    shards_per_client: PositiveInt = 2  # number of shards of a client


def partition(
    labels: np.ndarray, num_clients: int, seed: int, params: ShardsParams
) -> list[np.ndarray]:
    """Samples sorted by label and split into shards, some shards per client."""
    per_client, limit = params.shards_per_client, len(labels) // num_clients
    if per_client > limit:
        expected = f"at most {limit}, the samples per client"
        raise invalid("partition.shards_per_client", per_client, expected)
    rng = make_rng(seed, "shards")
    # Shuffle before the stable sort, so that the samples of a shard depend on the seed.
    order = rng.permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    shards = np.array_split(order, num_clients * per_client)
    assignment = rng.permutation(len(shards)).reshape(num_clients, per_client)
    return [np.concatenate([shards[shard] for shard in row]) for row in assignment]


PARTITIONERS.add(Partitioner("shards", ShardsParams, partition))
