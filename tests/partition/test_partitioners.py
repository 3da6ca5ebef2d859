"""Properties of every registered partitioner, and the distribution of each built-in one."""

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import valid_params

from methods.core.errors import UserError
from methods.core.params import build_params
from partition import PARTITIONERS, _shuffle_clients, clients_for_noise, partition_labels
from partition.base import sample_dirichlet
from partition.bernoulli_dirichlet import BernoulliDirichletParams
from partition.centralized import CentralizedParams
from partition.classes_per_client import ClassesPerClientParams
from partition.dirichlet import DirichletParams
from partition.iid import IidParams
from partition.shards import ShardsParams

properties = settings(derandomize=True, deadline=None, max_examples=60)

RANDOM_CASES = [
    pytest.param(name, params, id=f"{name}-{index}")
    for index, (name, params) in enumerate(
        [
            ("iid", IidParams()),
            ("iid", IidParams(form="official")),
            ("iid", IidParams(form="stratified")),
            ("bernoulli_dirichlet", BernoulliDirichletParams(p=0.5, alpha=1.0)),
            ("bernoulli_dirichlet", BernoulliDirichletParams(p=0.5, alpha=1.0, form="official")),
            ("classes_per_client", ClassesPerClientParams(classes=2)),
            ("classes_per_client", ClassesPerClientParams(classes=2, replace=True)),
            ("dirichlet", DirichletParams(alpha=0.5)),
            ("shards", ShardsParams()),
        ]
    )
]


def balanced(num_samples: int, num_classes: int = 10) -> np.ndarray:
    """Labels of classes of equal size, in random order."""
    return np.random.default_rng(0).permutation(np.arange(num_samples) % num_classes)


def same(first: list[np.ndarray], second: list[np.ndarray]) -> bool:
    return all(np.array_equal(one, other) for one, other in zip(first, second, strict=True))


def test_registered_partitioners_describe_themselves() -> None:
    builtin = {"bernoulli_dirichlet", "centralized", "classes_per_client", "dirichlet", "iid"}
    assert builtin | {"shards", "quantity_skew"} <= set(PARTITIONERS.names()), (
        "quantity_skew is in another package"
    )
    for partitioner in PARTITIONERS.all():
        assert partitioner.summary and "\n" not in partitioner.summary


@pytest.mark.parametrize("name", PARTITIONERS.names())
@properties
@given(
    data=st.data(),
    labels=st.lists(st.integers(0, 5), min_size=1, max_size=80).map(np.array),
    num_clients=st.integers(1, 12),
    seed=st.integers(0, 2**32 - 1),
)
def test_partition_properties_or_one_line_error(
    name: str, data: st.DataObject, labels: np.ndarray, num_clients: int, seed: int
) -> None:
    partitioner = PARTITIONERS.get(name)
    params = data.draw(valid_params(partitioner.params))
    num_clients = 1 if name == "centralized" else num_clients
    before = labels.copy()
    try:
        client_indices = partition_labels(name, labels, num_clients, seed, params)
    except UserError as error:
        assert re.match(r"invalid (partition|federation)\.|cannot partition with ", str(error))
        assert "\n" not in str(error)
        return
    assert np.array_equal(labels, before), "the labels are not changed"
    assert same(client_indices, partition_labels(name, labels, num_clients, seed, params))
    assert len(client_indices) == num_clients
    for indices in client_indices:
        assert indices.dtype == np.int64 and indices.ndim == 1 and len(indices) > 0
    joined = np.concatenate(client_indices)
    assert joined.min() >= 0 and joined.max() < len(labels)
    if partitioner.disjoint:
        assert len(np.unique(joined)) == len(joined)
    if partitioner.uses_all_samples:
        assert np.array_equal(np.unique(joined), np.arange(len(labels)))


@pytest.mark.parametrize(("name", "params"), RANDOM_CASES)
def test_partition_depends_on_the_seed_only(name: str, params: Any) -> None:
    labels, state = balanced(1000), str(np.random.get_state(legacy=False))
    first, again, *others = (
        partition_labels(name, labels, 10, seed, params) for seed in (1, 1, 2, 3, 4, 5)
    )
    assert same(first, again) and not any(same(first, other) for other in others)
    assert str(np.random.get_state(legacy=False)) == state, "the global generator is not used"


@pytest.mark.parametrize(
    ("cls", "values", "message"),
    [
        (IidParams, {"form": "random"}, "form='random': expected plain, official or stratified"),
        (BernoulliDirichletParams, {"p": 0, "alpha": 1}, "p=0: expected a number in (0, 1]"),
        (BernoulliDirichletParams, {"p": 1.1, "alpha": 1}, "p=1.1: expected a number in (0, 1]"),
        (BernoulliDirichletParams, {"p": True, "alpha": 1}, "p=true: expected a number in (0, 1]"),
        (BernoulliDirichletParams, {"p": 0.5, "alpha": 0}, "alpha=0: expected a number above 0"),
        (
            BernoulliDirichletParams,
            {"p": 0.5, "alpha": 1, "form": "x"},
            "form='x': expected plain or official",
        ),
        (ClassesPerClientParams, {"classes": 0}, "classes=0: expected an integer of at least 1"),
        (ClassesPerClientParams, {"replace": 1}, "replace=1: expected true or false"),
        (DirichletParams, {"alpha": float("nan")}, "alpha=nan: expected a number above 0"),
        (DirichletParams, {"alpha": float("inf")}, "alpha=inf: expected a number above 0"),
        (
            DirichletParams,
            {"alpha": 1, "min_size": 0},
            "min_size=0: expected an integer of at least 1",
        ),
        (
            CentralizedParams,
            {"noise_clients": 0},
            "noise_clients=0: expected an integer of at least 1",
        ),
        (
            ShardsParams,
            {"shards_per_client": 1.5},
            "shards_per_client=1.5: expected an integer of at least 1",
        ),
    ],
)
def test_invalid_parameters(cls: type, values: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as error:
        build_params(cls, values, "partition")
    assert str(error.value) == f"invalid partition.{message}"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("halves", balanced(10), 2, 0, IidParams()),
            "unknown partition halves: available: bernoulli_dirichlet, centralized, ",
        ),
        (
            ("iid", balanced(10), 11, 0, IidParams()),
            "invalid federation.num_clients=11: expected an integer in [1, 10], at least one ",
        ),
        (
            ("iid", balanced(10), 0, 0, IidParams()),
            "invalid federation.num_clients=0: expected an integer in [1, 10]",
        ),
        (
            ("iid", np.ones((5, 2), int), 2, 0, IidParams()),
            "invalid labels='int64(5, 2)': expected one non-negative integer per sample",
        ),
        (("iid", np.ones(5), 2, 0, IidParams()), "invalid labels='float64(5,)': expected one "),
        (
            ("centralized", balanced(10), 2, 0, CentralizedParams()),
            "invalid federation.num_clients=2: expected 1 for partition=centralized",
        ),
        (
            ("classes_per_client", balanced(100, 4), 2, 0, ClassesPerClientParams()),
            "invalid partition.classes=5: expected at most 4, the number of classes",
        ),
        (
            ("classes_per_client", balanced(100), 30, 0, ClassesPerClientParams()),
            "invalid partition.classes=5: expected at most 3, the samples per client",
        ),
        (
            ("classes_per_client", balanced(100), 1, 0, ClassesPerClientParams(classes=1)),
            "cannot partition with replace=false: a client needs 100 samples of a class with 10; ",
        ),
        (
            ("dirichlet", balanced(100), 10, 0, DirichletParams(alpha=1, min_size=11)),
            "invalid partition.min_size=11: expected at most 10, the samples per client",
        ),
        (
            ("shards", balanced(100), 10, 0, ShardsParams(11)),
            "invalid partition.shards_per_client=11: expected at most 10, the samples per client",
        ),
    ],
)
def test_invalid_arguments(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(UserError) as error:
        partition_labels(*arguments)
    assert str(error.value).startswith(message) and "\n" not in str(error.value)


@pytest.mark.parametrize("num_clients", [7, 10])
def test_iid_plain_is_even_and_complete(num_clients: int) -> None:
    client_indices = partition_labels("iid", balanced(103), num_clients, 3, IidParams())
    assert {len(indices) for indices in client_indices} <= {
        103 // num_clients,
        103 // num_clients + 1,
    }
    assert np.array_equal(np.sort(np.concatenate(client_indices)), np.arange(103))


def test_iid_official_drops_the_remainder() -> None:
    client_indices = partition_labels("iid", balanced(103), 10, 3, IidParams(form="official"))
    assert [len(indices) for indices in client_indices] == [10] * 10


def test_iid_stratified_gives_equal_class_counts() -> None:
    """Classes of 30 and 25 for 10 clients. Clients 0 to 4 get the extra samples."""
    labels = np.array([0] * 30 + [1] * 25)
    client_indices = partition_labels("iid", labels, 10, 3, IidParams(form="stratified"))
    assert [np.bincount(labels[indices]).tolist() for indices in client_indices] == [[3, 3]] * 5 + [
        [3, 2]
    ] * 5
    assert np.array_equal(np.sort(np.concatenate(client_indices)), np.arange(55))


def test_bernoulli_dirichlet_counts_are_multinomial() -> None:
    """For p = 1 and a huge alpha, q is uniform and the variance is n (1/K) (1 - 1/K)."""
    labels, num_clients = balanced(40000), 50
    client_indices = partition_labels(
        "bernoulli_dirichlet", labels, num_clients, 5, BernoulliDirichletParams(p=1, alpha=1e7)
    )
    counts = np.stack([np.bincount(labels[indices], minlength=10) for indices in client_indices])
    assert 0.8 < counts.var() / (4000 / num_clients * (1 - 1 / num_clients)) < 1.2


def test_bernoulli_dirichlet_fraction_of_owned_classes() -> None:
    """A fraction p of the client-class pairs is owned. Few of them have no samples."""
    labels = balanced(50000)
    client_indices = partition_labels(
        "bernoulli_dirichlet", labels, 50, 5, BernoulliDirichletParams(p=0.3, alpha=10)
    )
    owned = np.stack([np.bincount(labels[indices], minlength=10) > 0 for indices in client_indices])
    assert 0.24 < owned.mean() < 0.38


def test_bernoulli_dirichlet_plain_gives_every_class_an_owner() -> None:
    """With 4 clients and p = 0.2, a class has no owner with probability 0.41."""
    params = BernoulliDirichletParams(p=0.2, alpha=1.0)
    for seed in range(30):
        client_indices = partition_labels("bernoulli_dirichlet", balanced(400), 4, seed, params)
        assert np.array_equal(np.sort(np.concatenate(client_indices)), np.arange(400))
    with pytest.raises(
        UserError,
        match=r"form=official: class \d has no owner for seed \d+; set partition.form=plain",
    ):
        for seed in range(30):
            official = BernoulliDirichletParams(p=0.2, alpha=1.0, form="official")
            partition_labels("bernoulli_dirichlet", balanced(400), 4, seed, official)


@pytest.mark.parametrize("form", ["plain", "official"])
def test_bernoulli_dirichlet_redraws_are_bounded(form: str) -> None:
    with pytest.raises(
        UserError, match=r"partition\.p=1e-09: after 1000 draws a client has no class"
    ):
        partition_labels(
            "bernoulli_dirichlet",
            balanced(500),
            10,
            0,
            BernoulliDirichletParams(p=1e-9, alpha=1, form=form),
        )


def test_bernoulli_dirichlet_with_empty_clients_is_an_error() -> None:
    with pytest.raises(UserError, match="one of 100 clients has no samples in each of 1000 draws"):
        partition_labels(
            "bernoulli_dirichlet", balanced(100), 100, 0, BernoulliDirichletParams(p=0.3, alpha=1.0)
        )


def test_bernoulli_dirichlet_official_with_an_empty_client_is_an_error() -> None:
    params = BernoulliDirichletParams(p=0.5, alpha=0.1, form="official")
    with pytest.raises(
        UserError,
        match=r"^cannot partition with bernoulli_dirichlet: client \d+ of 40 has no samples",
    ):
        partition_labels("bernoulli_dirichlet", balanced(60, 4), 40, 0, params)


def test_classes_per_client_sizes_and_classes() -> None:
    """A client has n / K samples, less at most one per class. There are 252 choices of classes."""
    labels = balanced(30000)
    client_indices = partition_labels(
        "classes_per_client", labels, 100, 2, ClassesPerClientParams()
    )
    assert all(300 - 5 <= len(indices) <= 300 for indices in client_indices)
    assert all(len(np.unique(labels[indices])) <= 5 for indices in client_indices)
    assert len({tuple(np.unique(labels[indices])) for indices in client_indices}) > 30
    assert all(len(np.unique(indices)) == len(indices) for indices in client_indices)
    joined = np.concatenate(client_indices)
    assert len(np.unique(joined)) < len(joined), "clients overlap"


def test_classes_per_client_with_replacement_repeats_samples() -> None:
    client_indices = partition_labels(
        "classes_per_client", balanced(1000), 5, 2, ClassesPerClientParams(replace=True)
    )
    assert any(len(np.unique(indices)) < len(indices) for indices in client_indices)


@pytest.mark.parametrize("seed", [0, 1])
def test_dirichlet_min_size(seed: int) -> None:
    client_indices = partition_labels(
        "dirichlet", balanced(5000), 20, seed, DirichletParams(alpha=0.5, min_size=100)
    )
    assert min(map(len, client_indices)) >= 100


def test_dirichlet_skew_follows_alpha() -> None:
    """The largest class fraction of a client is near 1 for a small alpha, 1/10 for a large one."""
    labels = balanced(20000)

    def largest_fraction(alpha: float) -> float:
        client_indices = partition_labels("dirichlet", labels, 10, 1, DirichletParams(alpha=alpha))
        return float(
            np.mean(
                [np.bincount(labels[indices]).max() / len(indices) for indices in client_indices]
            )
        )

    assert largest_fraction(0.05) > 0.5 > 0.2 > largest_fraction(100)


def test_dirichlet_redraws_are_bounded() -> None:
    """A small alpha almost never gives 100 of 50000 samples to each of 100 clients."""
    with pytest.raises(
        UserError, match=r"^cannot partition with partition\.alpha=0\.05: a client has fewer than"
    ):
        partition_labels(
            "dirichlet", balanced(50000), 100, 1, DirichletParams(alpha=0.05, min_size=100)
        )


@pytest.mark.parametrize(("alpha", "size"), [(1e-300, 10), (1e308, 10), (1.7e308, 1)])
def test_extreme_alpha_is_an_error(alpha: float, size: int) -> None:
    with pytest.raises(
        UserError, match=r"^cannot partition with partition\.alpha=.* in floating p"
    ):
        sample_dirichlet(np.random.RandomState(0), alpha, size)


def test_shards_limit_the_classes_of_a_client() -> None:
    """Shards of 50 divide the classes of 100, so two shards have at most two classes."""
    labels = balanced(1000)
    client_indices = partition_labels("shards", labels, 10, 4, ShardsParams(shards_per_client=2))
    assert all(
        len(indices) == 100 and len(np.unique(labels[indices])) <= 2 for indices in client_indices
    )


def test_shards_depend_on_the_seed() -> None:
    """The samples of a shard differ, not only the assignment of shards to clients."""

    def shards(seed: int) -> set[frozenset[int]]:
        client_indices = partition_labels(
            "shards", balanced(1000), 20, seed, ShardsParams(shards_per_client=1)
        )
        return {frozenset(indices.tolist()) for indices in client_indices}

    assert shards(1).isdisjoint(shards(2))


def test_centralized_has_all_samples() -> None:
    (indices,) = partition_labels("centralized", balanced(20), 1, 0, CentralizedParams())
    assert np.array_equal(np.sort(indices), np.arange(20))


@pytest.mark.parametrize(("name", "params"), RANDOM_CASES)
def test_samples_of_a_client_are_shuffled_except_in_official_forms(name: str, params: Any) -> None:
    labels = np.sort(balanced(1000))
    drawn = PARTITIONERS.get(name).partition(labels, 10, 1, params)
    client_indices = partition_labels(name, labels, 10, 1, params)
    is_official = getattr(params, "form", None) == "official"
    assert same(drawn, client_indices) == is_official
    assert same([np.sort(part) for part in drawn], [np.sort(part) for part in client_indices])


def test_each_client_has_an_order_of_its_own() -> None:
    """The same ten samples in the order of each client."""
    orders = _shuffle_clients([np.arange(10)] * 50, 1, IidParams())
    assert len({tuple(order) for order in orders}) == 50
    assert same(orders[:20], _shuffle_clients([np.arange(10)] * 20, 1, IidParams()))


@pytest.mark.parametrize(("name", "params"), RANDOM_CASES)
def test_noise_is_applied_to_the_clients_that_train(name: str, params: Any) -> None:
    labels = balanced(1000)
    client_indices = partition_labels(name, labels, 10, 1, params)
    assert clients_for_noise(name, labels, client_indices, 1, params) is client_indices


def test_noise_of_the_centralized_partition_is_that_of_an_iid_federation() -> None:
    labels, params = balanced(103), CentralizedParams(noise_clients=7)
    client_indices = partition_labels("centralized", labels, 1, 5, params)
    federation = clients_for_noise("centralized", labels, client_indices, 5, params)
    assert same(federation, partition_labels("iid", labels, 7, 5, IidParams()))
    assert (
        len(clients_for_noise("centralized", labels, client_indices, 5, CentralizedParams())) == 100
    )
