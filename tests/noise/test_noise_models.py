"""Properties of every registered noise model, and the distribution of each built-in one."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import valid_params

from methods.core.errors import UserError
from methods.core.params import NoParams, build_params
from noise import NOISE_MODELS, NoiseRecord, apply_noise
from noise.pairwise import PairwiseParams
from noise.rho_tau import RhoTauParams
from noise.symmetric import SymmetricParams

properties = settings(derandomize=True, deadline=None, max_examples=60)
rates = st.floats(0, 1)
label_arrays = st.lists(st.integers(0, 4), min_size=1, max_size=80).map(np.array)

EVERY_MODEL = [name for name in NOISE_MODELS.names() if name != "human"]  # human needs a file
RANDOM_CASES = [
    pytest.param("rho_tau", RhoTauParams(rho=0.6, tau=0.5), id="rho_tau"),
    pytest.param("rho_tau", RhoTauParams(rho=0.6, tau=0.5, form="official"), id="official"),
    pytest.param("symmetric", SymmetricParams(epsilon=0.4), id="symmetric"),
    pytest.param("symmetric", SymmetricParams(epsilon=0.4, scope="client"), id="symmetric-client"),
    pytest.param("pairwise", PairwiseParams(epsilon=0.4), id="pairwise"),
]


def split_evenly(num_samples: int, num_clients: int, seed: int = 0) -> list[np.ndarray]:
    return np.array_split(np.random.default_rng(seed).permutation(num_samples), num_clients)


def make_record(
    name: str,
    params: Any,
    labels: np.ndarray,
    num_clients: int = 4,
    num_classes: int = 5,
    seed: int = 0,
) -> NoiseRecord:
    client_indices = split_evenly(len(labels), num_clients)
    return apply_noise(name, labels, client_indices, num_classes, seed, params)


def test_registered_models_describe_themselves() -> None:
    assert {"class_pair", "human", "none", "pairwise", "rho_tau", "symmetric"} <= set(
        NOISE_MODELS.names()
    ), "class_pair is in another package"
    for model in NOISE_MODELS.all():
        assert model.summary and "\n" not in model.summary and model.convention.endswith(".")


@pytest.mark.parametrize("name", EVERY_MODEL)
@properties
@given(
    data=st.data(),
    labels=label_arrays,
    num_clients=st.integers(1, 12),
    seed=st.integers(0, 2**32 - 1),
)
def test_record_is_consistent_for_all_valid_parameters(
    name: str, data: st.DataObject, labels: np.ndarray, num_clients: int, seed: int
) -> None:
    """Some clients are empty if there are more clients than samples. Their rate is 0, not NaN."""
    params = data.draw(valid_params(NOISE_MODELS.get(name).params))
    before, client_indices = labels.copy(), split_evenly(len(labels), num_clients)
    client_indices[0] = client_indices[0][1:]  # one sample belongs to no client
    try:
        record = apply_noise(name, labels, client_indices, 5, seed, params)
    except UserError as error:
        assert str(error).startswith(("invalid noise.", "cannot ")) and "\n" not in str(error)
        return
    assert np.array_equal(labels, before), "the clean labels are not changed"
    again = apply_noise(name, labels, client_indices, 5, seed, params)
    assert np.array_equal(record.labels, again.labels), "the noise depends on the seed only"
    assert record.labels.dtype == np.int64 and record.labels.shape == labels.shape
    assert record.labels.min() >= 0 and record.labels.max() < 5
    assert np.array_equal(record.flipped, record.labels != labels)
    assert record.client_level.shape == record.client_rate.shape == (num_clients,)
    assert ((record.client_level >= 0) & (record.client_level <= 1)).all()
    for indices, rate in zip(client_indices, record.client_rate, strict=True):
        assert rate == (record.flipped[indices].mean() if len(indices) else 0.0)
    used = np.concatenate(client_indices)
    assert np.array_equal(record.transition.sum(axis=1), np.bincount(labels[used], minlength=5))
    assert np.array_equal(
        record.transition.sum(axis=0), np.bincount(record.labels[used], minlength=5)
    )
    assert record.transition.sum() - np.trace(record.transition) == record.flipped[used].sum()
    assert record.convention == NOISE_MODELS.get(name).convention


@pytest.mark.parametrize(("name", "params"), RANDOM_CASES)
def test_noise_depends_on_the_seed_only(name: str, params: Any) -> None:
    labels, state = np.arange(1000) % 5, str(np.random.get_state(legacy=False))
    first, again, other = (
        make_record(name, params, labels, num_clients=20, seed=seed) for seed in (1, 1, 2)
    )
    assert np.array_equal(first.labels, again.labels)
    assert not np.array_equal(first.labels, other.labels)
    assert first.flipped.any()
    assert str(np.random.get_state(legacy=False)) == state, "the global generator is not used"


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("rho_tau", RhoTauParams(rho=0, tau=0.5)),
        ("rho_tau", RhoTauParams(rho=0, tau=0.5, form="official")),
        ("symmetric", SymmetricParams(epsilon=0)),
        ("symmetric", SymmetricParams(epsilon=0, scope="client")),
        ("pairwise", PairwiseParams(epsilon=0)),
        ("none", NoParams()),
    ],
)
@properties
@given(labels=label_arrays, seed=st.integers(0, 2**32 - 1))
def test_level_zero_changes_no_label(name: str, params: Any, labels: np.ndarray, seed: int) -> None:
    record = make_record(name, params, labels, seed=seed)
    assert np.array_equal(record.labels, labels)
    assert (
        not record.flipped.any() and not record.client_level.any() and not record.client_rate.any()
    )
    assert np.array_equal(record.transition, np.diag(np.bincount(labels, minlength=5)))


@properties
@given(labels=label_arrays, epsilon=rates, seed=st.integers(0, 1000))
def test_symmetric_global_changes_exact_counts_per_class(
    labels: np.ndarray, epsilon: float, seed: int
) -> None:
    record = make_record("symmetric", SymmetricParams(epsilon=epsilon), labels, seed=seed)
    for label in range(5):
        members = labels == label
        assert record.flipped[members].sum() == int(members.sum() * epsilon)


@pytest.mark.parametrize("model", [SymmetricParams, PairwiseParams])
@pytest.mark.parametrize(("epsilon", "wrong"), [(0.3, 17995), (0.7, 41995)])
def test_wrong_labels_for_the_class_sizes_of_mnist(model: type, epsilon: float, wrong: int) -> None:
    """Counts are rounded down per class, so 0.3 of 60000 gives five less than 18000."""
    sizes = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    name = "symmetric" if model is SymmetricParams else "pairwise"
    record = make_record(
        name, model(epsilon=epsilon), np.repeat(np.arange(10), sizes), num_classes=10
    )
    assert record.flipped.sum() == wrong


@properties
@given(labels=label_arrays, epsilon=rates, seed=st.integers(0, 1000))
def test_symmetric_client_changes_exact_counts_per_client(
    labels: np.ndarray, epsilon: float, seed: int
) -> None:
    record = make_record(
        "symmetric", SymmetricParams(epsilon=epsilon, scope="client"), labels, seed=seed
    )
    for indices in split_evenly(len(labels), 4):
        assert record.flipped[indices].sum() == int(len(indices) * epsilon)


def test_symmetric_is_uniform_over_the_other_classes() -> None:
    """8000 of 10000 samples per class move to 4 classes: 2000 each, standard deviation 39."""
    record = make_record("symmetric", SymmetricParams(epsilon=0.8), np.arange(50000) % 5)
    assert np.array_equal(np.diag(record.transition), [2000] * 5)
    others = record.transition[~np.eye(5, dtype=bool)]
    assert np.abs(others - 2000).max() < 200


@properties
@given(labels=label_arrays, low=rates, high=rates, seed=st.integers(0, 1000))
def test_larger_epsilon_adds_wrong_labels_only(
    labels: np.ndarray, low: float, high: float, seed: int
) -> None:
    low, high = sorted((low, high))
    few, many = (
        make_record("symmetric", SymmetricParams(epsilon=rate), labels, seed=seed)
        for rate in (low, high)
    )
    assert np.array_equal(few.labels[few.flipped], many.labels[few.flipped])


@pytest.mark.parametrize(
    ("name", "params"), [("symmetric", SymmetricParams(0.4)), ("pairwise", PairwiseParams(0.4))]
)
def test_global_noise_is_independent_of_the_partition(name: str, params: Any) -> None:
    labels = np.arange(1000) % 5
    overlapping = [np.arange(600), np.arange(400, 1000), np.array([3, 3, 3])]
    for client_indices in (split_evenly(1000, 10), split_evenly(1000, 7, seed=1), overlapping):
        other = apply_noise(name, labels, client_indices, 5, 3, params)
        assert np.array_equal(
            other.labels, apply_noise(name, labels, [np.arange(1000)], 5, 3, params).labels
        )


def test_transition_counts_a_shared_sample_once() -> None:
    record = apply_noise(
        "none", np.array([0, 1, 1]), [np.array([0, 1]), np.array([1, 1])], 2, 0, NoParams()
    )
    assert record.transition.tolist() == [[1, 0], [0, 1]]


def test_clients_have_different_wrong_samples() -> None:
    """Five clients with equal labels: one generator per client would select equal positions."""
    labels = np.tile(np.arange(200) % 5, 5)
    client_indices = np.array_split(np.arange(1000), 5)
    record = apply_noise(
        "symmetric", labels, client_indices, 5, 0, SymmetricParams(epsilon=0.4, scope="client")
    )
    assert len({record.flipped[indices].tobytes() for indices in client_indices}) == 5
    assert record.client_rate.tolist() == [0.4] * 5


@pytest.mark.parametrize(("direction", "moved"), [(-1, [4, 0, 1, 2, 3]), (1, [1, 2, 3, 4, 0])])
@properties
@given(labels=label_arrays, epsilon=rates, seed=st.integers(0, 1000))
def test_pairwise_moves_exact_counts_to_the_adjacent_class(
    direction: int, moved: list[int], labels: np.ndarray, epsilon: float, seed: int
) -> None:
    record = make_record(
        "pairwise", PairwiseParams(epsilon=epsilon, direction=direction), labels, seed=seed
    )
    for label in range(5):
        members = labels == label
        count = int(members.sum() * epsilon)
        assert (
            np.count_nonzero(record.labels[members] == moved[label])
            == record.flipped[members].sum()
            == count
        )


@pytest.mark.parametrize("form", ["plain", "official"])
def test_rho_tau_distribution(form: str) -> None:
    """400 clients of 200 samples: fraction rho is noisy, the mean level is (1 + tau) / 2, and the
    fraction of wrong labels is level * 4/5."""
    labels = np.arange(80000) % 5
    record = make_record(
        "rho_tau", RhoTauParams(rho=0.6, tau=0.5, form=form), labels, num_clients=400, seed=8
    )
    noisy = record.client_level > 0
    assert noisy.mean() == pytest.approx(0.6, abs=0.08)
    assert record.client_level[noisy].min() >= 0.5
    assert record.client_level[noisy].mean() == pytest.approx(0.75, abs=0.03)
    assert not record.client_rate[~noisy].any()
    error = record.client_rate[noisy] - 0.8 * record.client_level[noisy]
    assert abs(error.mean()) < 0.01
    # Independent draws: a rate of 0.6 has standard deviation sqrt(0.6 * 0.4 / 200) = 0.035.
    assert 0.025 < error.std() < 0.045


def test_rho_tau_can_draw_the_true_class() -> None:
    """All labels are redrawn at level 1, and one in five is correct."""
    labels = np.arange(50000) % 5
    record = make_record("rho_tau", RhoTauParams(rho=1, tau=1), labels)
    assert record.client_level.tolist() == [1] * 4
    assert record.flipped.mean() == pytest.approx(0.8, abs=0.01)
    assert np.abs(record.transition - 2000).max() < 200


def test_rho_tau_classes_limits_the_replacement_labels() -> None:
    """The official code draws from 10 classes for a dataset with 100."""
    labels = np.arange(20000) % 100
    few = make_record("rho_tau", RhoTauParams(rho=1, tau=1, classes=10), labels, num_classes=100)
    every = make_record("rho_tau", RhoTauParams(rho=1, tau=1), labels, num_classes=100)
    assert set(np.unique(few.labels)) == set(range(10))
    assert set(np.unique(every.labels)) == set(range(100))


@pytest.mark.parametrize(
    ("cls", "values", "message"),
    [
        (RhoTauParams, {"rho": 1.2, "tau": 0}, "noise.rho=1.2: expected a number in [0, 1]"),
        (RhoTauParams, {"rho": float("nan"), "tau": 0}, "noise.rho=nan: expected a number in"),
        (RhoTauParams, {"rho": True, "tau": 0}, "noise.rho=true: expected a number in [0, 1]"),
        (RhoTauParams, {"rho": "a", "tau": 0}, "noise.rho='a': expected a number in [0, 1]"),
        (RhoTauParams, {"rho": 0, "tau": -0.1}, "noise.tau=-0.1: expected a number in [0, 1]"),
        (
            RhoTauParams,
            {"rho": 0, "tau": 0, "classes": 0},
            "noise.classes=0: expected an integer of at least 1 or null",
        ),
        (
            RhoTauParams,
            {"rho": 0, "tau": 0, "form": "x"},
            "noise.form='x': expected plain or official",
        ),
        (SymmetricParams, {"epsilon": 40}, "noise.epsilon=40: expected a number in [0, 1]"),
        (
            SymmetricParams,
            {"epsilon": 0.4, "scope": "x"},
            "noise.scope='x': expected global or client",
        ),
        (PairwiseParams, {"epsilon": -1}, "noise.epsilon=-1: expected a number in [0, 1]"),
        (
            PairwiseParams,
            {"epsilon": 0.4, "direction": 2},
            "noise.direction=2: expected -1 or 1",
        ),
    ],
)
def test_invalid_parameters(cls: type, values: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as error:
        build_params(cls, values, "noise")
    assert str(error.value).startswith(f"invalid {message}")


def zeros(num_classes: int = 5) -> tuple[Any, ...]:
    """Arguments of `apply_noise` for nine samples of class 0 and one client."""
    return np.zeros(9, int), split_evenly(9, 1), num_classes, 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: apply_noise("salt", *zeros(), NoParams()),
            "unknown noise model salt: available: class_pair, human, none, pairwise, rho_tau",
        ),
        (
            lambda: apply_noise("none", np.zeros(9, int), [np.array([9])], 5, 0, NoParams()),
            "invalid client_indices='9 to 9': expected 0 to 8",
        ),
        (
            lambda: apply_noise("rho_tau", *zeros(), RhoTauParams(rho=0.4, tau=0, classes=10)),
            "invalid noise.classes=10: expected null or at most 5",
        ),
        (
            lambda: apply_noise(
                "rho_tau",
                np.zeros(9, int),
                [np.arange(5), np.arange(3, 9)],
                5,
                0,
                RhoTauParams(1, 1),
            ),
            "cannot apply noise=rho_tau: the partition assigns samples more than once (2 "
            "repetitions); choose a partition with disjoint clients",
        ),
        (
            lambda: apply_noise(
                "symmetric",
                np.zeros(9, int),
                [np.zeros(2, int)],
                5,
                0,
                SymmetricParams(1, "client"),
            ),
            "cannot apply noise.scope=client: the partition assigns samples more than once (1 "
            "repetitions); choose a partition with disjoint clients",
        ),
        (
            lambda: apply_noise("symmetric", *zeros(num_classes=1), SymmetricParams(0.4)),
            "invalid noise.epsilon=0.4: expected 0 for a dataset with one class",
        ),
        (
            lambda: apply_noise("pairwise", *zeros(num_classes=1), PairwiseParams(0.4)),
            "invalid noise.epsilon=0.4: expected 0 for a dataset with one class",
        ),
    ],
)
def test_invalid_arguments(call: Callable[[], NoiseRecord], message: str) -> None:
    with pytest.raises(UserError) as error:
        call()
    assert str(error.value).startswith(message)
