"""Partition and noise of FedCorr's official code, for 100 clients on CIFAR-10.

Each row has the digest of the partition and the realized noise, for two orders of a client's
samples: the order of a Python set (official code) and ascending order. The row IID, seed 13,
(0.4, 0.5) agrees with the output of the authors' notebook. PRINTED quotes five of its clients.
"""

import functools
import hashlib
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from noise import apply_noise
from noise.rho_tau import RhoTauParams
from partition import partition_labels
from partition.bernoulli_dirichlet import BernoulliDirichletParams
from partition.iid import IidParams

PARTITIONS: dict[str, tuple[str, Any]] = {"IID": ("iid", IidParams(form="official"))}
for name, p, alpha in (("P7_A10", 0.7, 10.0), ("P7_A1", 0.7, 1.0), ("P3_A10", 0.3, 10.0)):
    params = BernoulliDirichletParams(p=p, alpha=alpha, form="official")
    PARTITIONS[name] = ("bernoulli_dirichlet", params)


class Row(NamedTuple):
    partition: str
    seed: int
    rho: float
    tau: float
    partition_digest: str
    noisy_clients: int
    sum_of_levels: float  # sampled before the samples, so it depends on seed, rho and tau only
    changed: int
    digest: str
    changed_sorted: int
    digest_sorted: str


TABLE = """
IID     1 0.4 0.0 e58afea48f5b9e40 39 18.8592  8447 c0885979e70ce96d  8415 8e0a6817b3d0da6c
IID     1 0.4 0.5 e58afea48f5b9e40 39 28.9296 13047 a1bf0993e1037867 13020 eea6e92a6965b20e
IID     1 0.6 0.0 e58afea48f5b9e40 61 29.6247 13394 c2a2462e59ab9698 13418 5210344884b59a94
IID     1 0.6 0.5 e58afea48f5b9e40 61 45.3124 20405 fb2034ff8f1a828d 20455 571b07a0af5b9c24
IID     1 0.8 0.0 e58afea48f5b9e40 81 40.2052 18097 133625e79e40042f 18059 dd4861c06b8ae958
IID     1 0.8 0.5 e58afea48f5b9e40 81 60.6026 27264 83dcda0f85abbc51 27290 ea923df7a3028c38
IID    13 0.4 0.5 4c71f75f76d13616 39 27.1926 12192 82f6cf674f63f2a9 12161 956860dae5a90eed
IID    13 0.6 0.5 4c71f75f76d13616 61 45.2605 20303 b4d45055ef38e58f 20339 12749ffd01224473
P7_A10  1 0.6 0.5 54c9ad2f6826e6e9 61 45.3124 20774 56e98dc16f77b1b7 20764 29013096d886c981
P7_A10 13 0.6 0.5 bfd227d376270c67 61 45.2605 21122 b5b1e11c51ffd181 21180 3b8d9df06607e14f
P7_A1   1 0.6 0.5 d2fe1e8c6a5c0a20 61 45.3124 20282 24deccf9d22305e6 20284 505ac8395adb3993
P7_A1  13 0.6 0.5 4e31dcf1d01febf0 61 45.2605 19894 e2b7d4cc2ac140c9 19952 765f92b359bebae4
P3_A10  1 0.6 0.5 fc9c0dd6ded15db1 61 45.3124 20140 1aff9ce0d1c9f5bf 20245 29e298e1149c5bc5
P3_A10 13 0.6 0.5 c090bd864328edd5 61 45.2605 19377 ef9089706b542c37 19358 5057e58088e2d3ea
"""
CONVERTERS = Row.__annotations__.values()
ROWS = [
    Row(*(convert(text) for convert, text in zip(CONVERTERS, line.split(), strict=True)))
    for line in TABLE.strip().splitlines()
]
PRINTED = {
    0: (0.8484, 0.7540),
    2: (0.6389, 0.5820),
    3: (0.6168, 0.5520),
    4: (0.9228, 0.8120),
    98: (0.6479, 0.5920),
}


def digest(values: np.ndarray) -> str:
    return hashlib.sha256(values.astype("<i8").tobytes()).hexdigest()[:16]


@functools.cache
def cifar10_labels() -> np.ndarray:
    data_dir = Path(os.environ.get("FLN_DATA", "~/.cache/fln-data")).expanduser()
    path = data_dir / "cifar10" / "train_labels.npy"
    if not path.exists():
        pytest.skip(f"no {path}; run: python -m benchmarks.data fetch cifar10")
    return np.load(path).astype(np.int64)


@functools.cache
def official_partition(name: str, seed: int) -> list[np.ndarray]:
    labels = np.zeros(50000, dtype=np.int64) if name == "IID" else cifar10_labels()
    partitioner, params = PARTITIONS[name]
    return partition_labels(partitioner, labels, 100, seed, params)


def sort_each(client_indices: list[np.ndarray]) -> list[np.ndarray]:
    return [np.sort(indices) for indices in client_indices]


@pytest.mark.parametrize(
    "row", ROWS, ids=lambda row: f"{row.partition}-{row.seed}-{row.rho}-{row.tau}"
)
def test_official_scenario(row: Row) -> None:
    labels, client_indices = cifar10_labels(), official_partition(row.partition, row.seed)
    ascending = sort_each(client_indices)
    assert digest(np.concatenate(ascending)) == row.partition_digest
    params = RhoTauParams(rho=row.rho, tau=row.tau, form="official")
    record = apply_noise("rho_tau", labels, client_indices, 10, row.seed, params)
    assert np.count_nonzero(record.client_level) == row.noisy_clients
    assert record.client_level.sum() == pytest.approx(row.sum_of_levels, abs=5e-5)
    assert (record.flipped.sum(), digest(record.labels)) == (row.changed, row.digest)
    record = apply_noise("rho_tau", labels, ascending, 10, row.seed, params)
    assert (record.flipped.sum(), digest(record.labels)) == (row.changed_sorted, row.digest_sorted)


def test_levels_and_rates_of_the_authors_notebook() -> None:
    params = RhoTauParams(rho=0.4, tau=0.5, form="official")
    record = apply_noise("rho_tau", cifar10_labels(), official_partition("IID", 13), 10, 13, params)
    for client, (level, rate) in PRINTED.items():
        assert record.client_level[client] == pytest.approx(level, abs=5e-5)
        assert record.client_rate[client] == pytest.approx(rate, abs=5e-5)


@pytest.mark.parametrize(
    ("name", "seed", "first_sizes", "smallest", "largest"),
    [
        ("P7_A10", 1, [728, 672, 444, 482, 444], 255, 839),
        ("P7_A10", 13, [219, 632, 413, 481, 618], 219, 833),
        ("P7_A1", 1, [869, 855, 201, 324, 440], 89, 1107),
        ("P7_A1", 13, [101, 684, 686, 1049, 352], 101, 1094),
        ("P3_A10", 1, [54, 235, 755, 451, 651], 54, 1155),
        ("P3_A10", 13, [1135, 104, 463, 364, 204], 72, 1135),
    ],
)
def test_official_client_sizes(
    name: str, seed: int, first_sizes: list[int], smallest: int, largest: int
) -> None:
    sizes = [len(indices) for indices in official_partition(name, seed)]
    assert (sizes[:5], min(sizes), max(sizes)) == (first_sizes, smallest, largest)


# The following tests need no dataset: IID partitions and noise levels do not depend on labels.


@pytest.mark.parametrize(("seed", "expected"), [(1, "e58afea48f5b9e40"), (13, "4c71f75f76d13616")])
def test_official_iid_partition_without_data(seed: int, expected: str) -> None:
    assert digest(np.concatenate(sort_each(official_partition("IID", seed)))) == expected


def test_official_iid_smallest_indices() -> None:
    client_indices = sort_each(official_partition("IID", 1))
    assert client_indices[0][:8].tolist() == [85, 108, 121, 391, 461, 722, 766, 778]
    assert client_indices[99][:8].tolist() == [240, 345, 453, 469, 478, 912, 1139, 1157]


def test_official_levels_without_data() -> None:
    client_indices = np.array_split(np.arange(500), 100)
    params = RhoTauParams(rho=0.6, tau=0.5, form="official")
    labels = np.zeros(500, dtype=int)
    level = apply_noise("rho_tau", labels, client_indices, 10, 1, params).client_level
    assert level[:6] == pytest.approx(
        [0.663322, 0, 0.942971, 0.678635, 0.954268, 0.811680], abs=5e-7
    )


@pytest.mark.parametrize(
    ("rho", "expected"),
    [
        (0.4, [39, 29, 34, 40, 37, 39]),
        (0.6, [61, 71, 66, 60, 63, 61]),
        (0.8, [81, 87, 87, 80, 76, 80]),
    ],
)
def test_official_number_of_noisy_clients(rho: float, expected: list[int]) -> None:
    client_indices, labels = np.array_split(np.arange(100), 100), np.zeros(100, dtype=int)
    params = RhoTauParams(rho=rho, tau=0.5, form="official")
    levels = [
        apply_noise("rho_tau", labels, client_indices, 10, seed, params).client_level
        for seed in (1, 2, 3, 4, 5, 13)
    ]
    assert [np.count_nonzero(level) for level in levels] == expected


def test_official_non_iid_sample_order_without_data() -> None:
    """The digest of unsorted indices depends on the iteration order of Python sets."""
    partitioner, params = PARTITIONS["P7_A1"]
    client_indices = partition_labels(partitioner, np.arange(5000) % 10, 20, 7, params)
    assert digest(np.concatenate(client_indices)) == "1de05fa7fd13f924"
