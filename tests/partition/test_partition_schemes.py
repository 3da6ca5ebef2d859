"""Properties that every partition scheme promises, and what each one of them is about."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import partition
from partition import PartitionError
from partition.bernoulli_dirichlet import BernoulliDirichletParams
from partition.centralized import CentralizedParams
from partition.classes_per_client import ClassesPerClientParams
from partition.dirichlet import DirichletParams
from partition.iid import IidParams
from partition.shards import ShardsParams

properties = settings(derandomize=True, deadline=None, max_examples=60)

CASES: list[tuple[str, Any]] = [
    ("iid", IidParams()),
    ("iid", IidParams(form="official")),
    ("iid", IidParams(form="stratified")),
    ("bernoulli_dirichlet", BernoulliDirichletParams(p=0.5, alpha=1.0)),
    ("bernoulli_dirichlet", BernoulliDirichletParams(p=0.5, alpha=1.0, form="official")),
    ("classes_per_client", ClassesPerClientParams(classes=2)),
    ("classes_per_client", ClassesPerClientParams(classes=2, replace=True)),
    ("dirichlet", DirichletParams(alpha=0.5)),
    ("shards", ShardsParams()),
    ("centralized", CentralizedParams()),
]
IDS = [f"{name}-{index}" for index, (name, _) in enumerate(CASES)]
RANDOM_CASES, RANDOM_IDS = CASES[:-1], IDS[:-1]


def clients_of(name: str, num_clients: int) -> int:
    return 1 if name == "centralized" else num_clients


def balanced(num_samples: int, num_classes: int = 10) -> np.ndarray:
    return np.random.default_rng(0).permutation(np.arange(num_samples) % num_classes)


def same(first: list[np.ndarray], second: list[np.ndarray]) -> bool:
    return all(np.array_equal(one, other) for one, other in zip(first, second, strict=True))


def test_every_scheme_is_covered_by_a_case_here() -> None:
    assert {name for name, _ in CASES} == set(partition.SCHEMES)
    for name, scheme in partition.SCHEMES.items():
        assert scheme.name == name and scheme.one_line and "\n" not in scheme.one_line


@pytest.mark.parametrize(("name", "params"), CASES, ids=IDS)
@properties
@given(
    labels=st.lists(st.integers(0, 5), min_size=1, max_size=80).map(np.array),
    num_clients=st.integers(1, 12),
    seed=st.integers(0, 2**32 - 1),
)
def test_keeps_its_promises_or_says_in_one_line_why_not(
    name: str, params: Any, labels: np.ndarray, num_clients: int, seed: int
) -> None:
    scheme, num_clients = partition.SCHEMES[name], clients_of(name, num_clients)
    before = labels.copy()
    try:
        parts = partition.make(name, labels, num_clients, seed, params)
    except PartitionError as error:
        assert (
            str(error).startswith(("partition.", "federation.num_clients="))
            and "must be" in str(error)
            and "\n" not in str(error)
        )
        return
    assert np.array_equal(labels, before)
    assert len(parts) == num_clients
    assert all(part.dtype == np.int64 and part.ndim == 1 and len(part) > 0 for part in parts)
    joined = np.concatenate(parts)
    assert joined.min() >= 0 and joined.max() < len(labels)
    if scheme.disjoint:
        assert len(np.unique(joined)) == len(joined)
    if scheme.covering:
        assert np.array_equal(np.unique(joined), np.arange(len(labels)))


@pytest.mark.parametrize(("name", "params"), CASES, ids=IDS)
def test_ordinary_sizes_need_no_error(name: str, params: Any) -> None:
    for seed in range(5):
        parts = partition.make(name, balanced(1000), clients_of(name, 10), seed, params)
        assert min(map(len, parts)) > 0


@pytest.mark.parametrize(("name", "params"), RANDOM_CASES, ids=RANDOM_IDS)
def test_the_seed_decides_everything(name: str, params: Any) -> None:
    labels = balanced(1000)
    first = partition.make(name, labels, 10, 1, params)
    assert same(first, partition.make(name, labels, 10, 1, params))
    assert not same(first, partition.make(name, labels, 10, 2, params))


@pytest.mark.parametrize(("name", "params"), RANDOM_CASES, ids=RANDOM_IDS)
def test_the_global_generator_is_left_alone(name: str, params: Any) -> None:
    before = str(np.random.get_state(legacy=False))
    partition.make(name, balanced(1000), 10, 1, params)
    assert str(np.random.get_state(legacy=False)) == before


@pytest.mark.parametrize(("name", "params"), CASES, ids=IDS)
def test_more_clients_than_samples_is_an_error(name: str, params: Any) -> None:
    with pytest.raises(
        PartitionError, match=r"federation\.num_clients=11: must be an integer in \[1, 10\]"
    ):
        partition.make(name, balanced(10), 11, 0, params)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: IidParams(form="random"),
            "partition.form='random': must be one of plain, official, stratified",
        ),
        (
            lambda: BernoulliDirichletParams(p=0, alpha=1),
            "partition.p=0: must be a number in (0, 1]",
        ),
        (
            lambda: BernoulliDirichletParams(p=1.1, alpha=1),
            "partition.p=1.1: must be a number in (0, 1]",
        ),
        (
            lambda: BernoulliDirichletParams(p=True, alpha=1),
            "partition.p=True: must be a number in (0, 1]",
        ),
        (
            lambda: BernoulliDirichletParams(p=0.5, alpha=0),
            "partition.alpha=0: must be a finite number above 0",
        ),
        (
            lambda: BernoulliDirichletParams(p=0.5, alpha=1, form="x"),
            "partition.form='x': must be one of plain, official",
        ),
        (
            lambda: ClassesPerClientParams(classes=0),
            "partition.classes=0: must be an integer of at least 1",
        ),
        (lambda: ClassesPerClientParams(replace=1), "partition.replace=1: must be true or false"),  # type: ignore[arg-type]
        (
            lambda: DirichletParams(alpha=float("nan")),
            "partition.alpha=nan: must be a finite number above 0",
        ),
        (
            lambda: DirichletParams(alpha=float("inf")),
            "partition.alpha=inf: must be a finite number above 0",
        ),
        (
            lambda: DirichletParams(alpha=1, min_size=0),
            "partition.min_size=0: must be an integer of at least 1",
        ),
        (
            lambda: CentralizedParams(noise_clients=0),
            "partition.noise_clients=0: must be an integer of at least 1",
        ),
        (lambda: ShardsParams(1.5), "partition.shards_per_client=1.5: must be an integer"),  # type: ignore[arg-type]
        (
            lambda: partition.make("halves", balanced(10), 2, 0, IidParams()),
            "partition.name='halves': must be one of iid, bernoulli_dirichlet, classes_per_client, dirichlet, shards",
        ),
        (lambda: partition.make("iid", balanced(10), 2, 0, ShardsParams()), "must be a IidParams"),
        (
            lambda: partition.make("iid", balanced(10), 0, 0, IidParams()),
            "federation.num_clients=0",
        ),
        (lambda: partition.make("iid", balanced(10), 2, -1, IidParams()), "partition.seed=-1"),
        (
            lambda: partition.make("iid", np.ones((5, 2), int), 2, 0, IidParams()),
            "partition.labels='int64(5, 2)'",
        ),
        (
            lambda: partition.make("iid", np.ones(5), 2, 0, IidParams()),
            "partition.labels='float64(5,)'",
        ),
        (
            lambda: partition.make("centralized", balanced(10), 2, 0, CentralizedParams()),
            "federation.num_clients=2: must be 1",
        ),
        (
            lambda: partition.make(
                "classes_per_client", balanced(100, 4), 2, 0, ClassesPerClientParams()
            ),
            "partition.classes=5: must be at most 4",
        ),
        (
            lambda: partition.make(
                "classes_per_client", balanced(100), 30, 0, ClassesPerClientParams()
            ),
            "partition.classes=5: must be at most 3, the samples per client",
        ),
        (
            lambda: partition.make(
                "classes_per_client", balanced(100), 1, 0, ClassesPerClientParams(classes=1)
            ),
            "partition.replace=False: a client of 100 samples wants 100 of a class that has 10",
        ),
        (
            lambda: partition.make(
                "dirichlet", balanced(100), 10, 0, DirichletParams(alpha=1, min_size=11)
            ),
            "partition.min_size=11: must be at most 10",
        ),
        (
            lambda: partition.make("shards", balanced(100), 10, 0, ShardsParams(11)),
            "partition.shards_per_client=11: must be at most 10",
        ),
    ],
)
def test_errors_name_key_value_and_what_is_legal(make: Any, message: str) -> None:
    with pytest.raises(PartitionError) as caught:
        make()
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("num_clients", [7, 10])
def test_iid_plain_is_even_and_complete(num_clients: int) -> None:
    parts = partition.make("iid", balanced(103), num_clients, 3, IidParams())
    assert {len(part) for part in parts} <= {103 // num_clients, 103 // num_clients + 1}
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(103))


def test_iid_official_drops_the_left_over_samples() -> None:
    parts = partition.make("iid", balanced(103), 10, 3, IidParams(form="official"))
    assert [len(part) for part in parts] == [10] * 10


def test_iid_stratified_gives_every_client_the_same_classes() -> None:
    """Classes of 30 and 25 over 10 clients: 3 each of the first, 2 or 3 of the second with the extras on ids 0 to 4."""
    labels = np.array([0] * 30 + [1] * 25)
    parts = partition.make("iid", labels, 10, 3, IidParams(form="stratified"))
    assert [np.bincount(labels[part]).tolist() for part in parts] == [[3, 3]] * 5 + [[3, 2]] * 5
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(55))


def test_bernoulli_dirichlet_counts_are_multinomial() -> None:
    """With p = 1 and alpha huge, q is uniform: counts vary as n (1/K) (1 - 1/K); equal cuts would not."""
    labels, num_clients = balanced(40000), 50
    parts = partition.make(
        "bernoulli_dirichlet", labels, num_clients, 5, BernoulliDirichletParams(p=1, alpha=1e7)
    )
    counts = np.stack([np.bincount(labels[part], minlength=10) for part in parts])
    assert 0.8 < counts.var() / (4000 / num_clients * (1 - 1 / num_clients)) < 1.2


def test_bernoulli_dirichlet_leaves_out_the_classes_not_owned() -> None:
    """About p of the client-class pairs are owned; with 200 samples per owner hardly any owned pair is empty."""
    labels = balanced(50000)
    parts = partition.make(
        "bernoulli_dirichlet", labels, 50, 5, BernoulliDirichletParams(p=0.3, alpha=10)
    )
    held = np.stack([np.bincount(labels[part], minlength=10) > 0 for part in parts])
    assert 0.24 < held.mean() < 0.38


def test_bernoulli_dirichlet_plain_gives_every_class_an_owner() -> None:
    """4 clients at p = 0.2 leave a class without owner with chance 0.41; the released code stops there."""
    params = BernoulliDirichletParams(p=0.2, alpha=1.0)
    for seed in range(30):
        parts = partition.make("bernoulli_dirichlet", balanced(400), 4, seed, params)
        assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(400))
    with pytest.raises(
        PartitionError,
        match=r"no client may hold class \d and the released code stops; must be 'plain'",
    ):
        for seed in range(30):
            official = BernoulliDirichletParams(p=0.2, alpha=1.0, form="official")
            partition.make("bernoulli_dirichlet", balanced(400), 4, seed, official)


@pytest.mark.parametrize("form", ["plain", "official"])
def test_bernoulli_dirichlet_never_hangs(form: str) -> None:
    with pytest.raises(
        PartitionError, match=r"partition\.p=1e-09: 1000 draws left one of 10 clients"
    ):
        partition.make(
            "bernoulli_dirichlet",
            balanced(500),
            10,
            0,
            BernoulliDirichletParams(p=1e-9, alpha=1, form=form),
        )


def test_bernoulli_dirichlet_says_when_clients_stay_empty() -> None:
    with pytest.raises(PartitionError, match="one of 100 clients was empty in each of 1000 draws"):
        partition.make(
            "bernoulli_dirichlet", balanced(100), 100, 0, BernoulliDirichletParams(p=0.3, alpha=1.0)
        )


def test_bernoulli_dirichlet_official_reports_an_empty_client() -> None:
    params = BernoulliDirichletParams(p=0.5, alpha=0.1, form="official")
    with pytest.raises(
        PartitionError,
        match=r"client \d+ gets no sample from .* and seed 0; must be fewer clients than 40",
    ):
        partition.make("bernoulli_dirichlet", balanced(60, 4), 40, 0, params)


def test_classes_per_client_draws_few_classes_and_almost_full_clients() -> None:
    """Sizes are n / K less at most one sample per class; of 252 possible choices, 100 clients make more than 30."""
    labels = balanced(30000)
    parts = partition.make("classes_per_client", labels, 100, 2, ClassesPerClientParams())
    assert all(300 - 5 <= len(part) <= 300 for part in parts)
    assert all(len(np.unique(labels[part])) <= 5 for part in parts)
    assert len({tuple(np.unique(labels[part])) for part in parts}) > 30
    assert all(len(np.unique(part)) == len(part) for part in parts)
    joined = np.concatenate(parts)
    assert len(np.unique(joined)) < len(joined), "clients draw from the whole pool and overlap"


def test_classes_per_client_with_replacement_repeats_samples() -> None:
    parts = partition.make(
        "classes_per_client", balanced(1000), 5, 2, ClassesPerClientParams(replace=True)
    )
    assert any(len(np.unique(part)) < len(part) for part in parts)


@pytest.mark.parametrize("seed", [0, 1])
def test_dirichlet_keeps_the_smallest_size(seed: int) -> None:
    parts = partition.make(
        "dirichlet", balanced(5000), 20, seed, DirichletParams(alpha=0.5, min_size=100)
    )
    assert min(map(len, parts)) >= 100


def test_dirichlet_skew_follows_alpha() -> None:
    """The largest class share of a client is near 1 for a small alpha and near 1/10 for a large one."""
    labels = balanced(20000)

    def top_share(alpha: float) -> float:
        parts = partition.make("dirichlet", labels, 10, 1, DirichletParams(alpha=alpha))
        return float(np.mean([np.bincount(labels[part]).max() / len(part) for part in parts]))

    assert top_share(0.05) > 0.5 > 0.2 > top_share(100)


def test_dirichlet_gives_up_where_no_draw_can_do() -> None:
    """Small alpha and a smallest size of 100 for 100 clients is hopeless on 50000 samples: an error, not a hang."""
    with pytest.raises(
        PartitionError, match=r"partition\.alpha=0\.05, partition\.min_size=100: none of 1000 draws"
    ):
        partition.make(
            "dirichlet", balanced(50000), 100, 1, DirichletParams(alpha=0.05, min_size=100)
        )


def test_shards_limit_the_classes_of_a_client() -> None:
    """Shards of 50 never straddle the classes of 100, so two shards hold at most two classes."""
    labels = balanced(1000)
    parts = partition.make("shards", labels, 10, 4, ShardsParams(shards_per_client=2))
    assert all(len(part) == 100 and len(np.unique(labels[part])) <= 2 for part in parts)


def test_shards_of_another_seed_hold_other_samples() -> None:
    """One shard per client: the shards themselves differ, not only who gets them."""

    def shards(seed: int) -> set[frozenset[int]]:
        parts = partition.make(
            "shards", balanced(1000), 20, seed, ShardsParams(shards_per_client=1)
        )
        return {frozenset(part.tolist()) for part in parts}

    assert shards(1).isdisjoint(shards(2))


def test_centralized_holds_everything_in_order() -> None:
    (part,) = partition.make("centralized", balanced(20), 1, 0, CentralizedParams())
    assert np.array_equal(part, np.arange(20))


@pytest.mark.parametrize(("name", "params"), RANDOM_CASES, ids=RANDOM_IDS)
def test_noise_is_drawn_for_the_clients_that_train(name: str, params: Any) -> None:
    labels = balanced(1000)
    parts = partition.make(name, labels, 10, 1, params)
    assert partition.noise_parts(name, labels, parts, 1, params) is parts


def test_noise_of_the_centralized_partition_is_drawn_for_an_iid_federation() -> None:
    labels, params = balanced(103), CentralizedParams(noise_clients=7)
    parts = partition.make("centralized", labels, 1, 5, params)
    federation = partition.noise_parts("centralized", labels, parts, 5, params)
    assert same(federation, partition.make("iid", labels, 7, 5, IidParams()))
    assert len(partition.noise_parts("centralized", labels, parts, 5, CentralizedParams())) == 100
