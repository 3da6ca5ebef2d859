"""Label-sorted shards (McMahan et al., AISTATS 2017), also the non-IID setting of RoFL (Yang et al., 2022).

The samples, sorted by label, are cut into num_clients * shards_per_client nearly equal shards, which are handed out at
random. With two shards per client most clients see two classes.
"""

from dataclasses import dataclass

import numpy as np

from .base import Scheme, check, generator, is_integer


@dataclass(frozen=True)
class ShardsParams:
    shards_per_client: int = 2

    def __post_init__(self) -> None:
        value = self.shards_per_client
        check(
            "shards_per_client", value, is_integer(value) and value >= 1, "an integer of at least 1"
        )


def split(
    labels: np.ndarray, num_clients: int, seed: int, params: ShardsParams
) -> list[np.ndarray]:
    each, most = params.shards_per_client, len(labels) // num_clients
    check("shards_per_client", each, each <= most, f"at most {most}, the samples per client")
    rng = generator(seed, "shards")
    # Shuffled before the stable sort: which samples of a class share a shard depends on the seed.
    order = rng.permutation(len(labels))
    shards = np.array_split(order[np.argsort(labels[order], kind="stable")], num_clients * each)
    hands = rng.permutation(len(shards)).reshape(num_clients, each)
    return [np.concatenate([shards[shard] for shard in hand]) for hand in hands]


SCHEME = Scheme(
    name="shards",
    params=ShardsParams,
    function=split,
    one_line="samples sorted by label and cut into shards, a few shards per client",
    disjoint=True,
    covering=True,
)
