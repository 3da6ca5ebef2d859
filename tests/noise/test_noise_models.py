"""What every noise model promises, and the law of each one of them."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import noise
from noise import NoiseError, NoiseRecord
from noise.none import NoneParams
from noise.pairwise import PairwiseParams
from noise.rho_tau import RhoTauParams
from noise.symmetric import SymmetricParams

properties = settings(derandomize=True, deadline=None, max_examples=60)
rates = st.floats(0, 1)
label_arrays = st.lists(st.integers(0, 4), min_size=1, max_size=80).map(np.array)

CASES: list[tuple[str, Any]] = [
    ("rho_tau", RhoTauParams(rho=0.6, tau=0.5)),
    ("rho_tau", RhoTauParams(rho=0.6, tau=0.5, form="official")),
    ("symmetric", SymmetricParams(epsilon=0.4)),
    ("symmetric", SymmetricParams(epsilon=0.4, scope="client")),
    ("pairwise", PairwiseParams(epsilon=0.4)),
    ("none", NoneParams()),
]
IDS = [f"{name}-{index}" for index, (name, _) in enumerate(CASES)]
CHANGING, CHANGING_IDS = CASES[:-1], IDS[:-1]


def spread(num_samples: int, num_clients: int, seed: int = 0) -> list[np.ndarray]:
    return np.array_split(np.random.default_rng(seed).permutation(num_samples), num_clients)


def draw(
    name: str,
    params: Any,
    labels: np.ndarray,
    num_clients: int = 4,
    num_classes: int = 5,
    seed: int = 0,
) -> NoiseRecord:
    return noise.apply(name, labels, spread(len(labels), num_clients), num_classes, seed, params)


def test_every_model_but_the_file_is_covered_by_a_case_here() -> None:
    assert {name for name, _ in CASES} | {"human"} == set(noise.MODELS)
    for name, model in noise.MODELS.items():
        assert model.name == name and model.one_line and model.convention.endswith(".")


@pytest.mark.parametrize(("name", "params"), CASES, ids=IDS)
@properties
@given(labels=label_arrays, num_clients=st.integers(1, 12), seed=st.integers(0, 2**32 - 1))
def test_the_record_agrees_with_itself(
    name: str, params: Any, labels: np.ndarray, num_clients: int, seed: int
) -> None:
    """More clients than samples leaves empty clients here; their rate is 0, not nan."""
    before, parts = labels.copy(), spread(len(labels), num_clients)
    parts[0] = parts[0][1:]  # one sample belongs to nobody
    record = noise.apply(name, labels, parts, 5, seed, params)
    assert np.array_equal(labels, before), "the given labels stay as they are"
    assert record.labels.dtype == np.int64 and record.labels.shape == labels.shape
    assert record.labels.min() >= 0 and record.labels.max() < 5
    assert np.array_equal(record.flipped, record.labels != labels)
    assert record.client_level.shape == record.client_rate.shape == (num_clients,)
    assert ((record.client_level >= 0) & (record.client_level <= 1)).all()
    for part, rate in zip(parts, record.client_rate, strict=True):
        assert rate == (record.flipped[part].mean() if len(part) else 0.0)
    held = np.concatenate(parts)
    assert np.array_equal(record.transition.sum(axis=1), np.bincount(labels[held], minlength=5))
    assert np.array_equal(
        record.transition.sum(axis=0), np.bincount(record.labels[held], minlength=5)
    )
    assert record.transition.sum() - np.trace(record.transition) == record.flipped[held].sum()
    assert record.convention == noise.MODELS[name].convention


@pytest.mark.parametrize(("name", "params"), CHANGING, ids=CHANGING_IDS)
def test_the_seed_decides_everything(name: str, params: Any) -> None:
    labels, state = np.arange(1000) % 5, str(np.random.get_state(legacy=False))
    first, again, other = (
        draw(name, params, labels, num_clients=20, seed=seed) for seed in (1, 1, 2)
    )
    assert np.array_equal(first.labels, again.labels)
    assert not np.array_equal(first.labels, other.labels)
    assert first.flipped.any()
    assert str(np.random.get_state(legacy=False)) == state, "the global generator is left alone"


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("rho_tau", RhoTauParams(rho=0, tau=0.5)),
        ("rho_tau", RhoTauParams(rho=0, tau=0.5, form="official")),
        ("symmetric", SymmetricParams(epsilon=0)),
        ("symmetric", SymmetricParams(epsilon=0, scope="client")),
        ("pairwise", PairwiseParams(epsilon=0)),
        ("none", NoneParams()),
    ],
)
@properties
@given(labels=label_arrays, seed=st.integers(0, 2**32 - 1))
def test_a_level_of_zero_changes_nothing(
    name: str, params: Any, labels: np.ndarray, seed: int
) -> None:
    record = draw(name, params, labels, seed=seed)
    assert np.array_equal(record.labels, labels)
    assert (
        not record.flipped.any() and not record.client_level.any() and not record.client_rate.any()
    )
    assert np.array_equal(record.transition, np.diag(np.bincount(labels, minlength=5)))


@properties
@given(labels=label_arrays, epsilon=rates, seed=st.integers(0, 1000))
def test_symmetric_global_hits_exact_counts_and_never_keeps_the_class(
    labels: np.ndarray, epsilon: float, seed: int
) -> None:
    record = draw("symmetric", SymmetricParams(epsilon=epsilon), labels, seed=seed)
    for label in range(5):
        members = labels == label
        assert record.flipped[members].sum() == int(members.sum() * epsilon)


@pytest.mark.parametrize("model", [SymmetricParams, PairwiseParams])
@pytest.mark.parametrize(("epsilon", "wrong"), [(0.3, 17995), (0.7, 41995)])
def test_wrong_labels_on_the_class_sizes_of_mnist(model: type, epsilon: float, wrong: int) -> None:
    """Each class is cut down to whole samples, so 0.3 of 60000 is five short of 18000."""
    sizes = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    name = "symmetric" if model is SymmetricParams else "pairwise"
    record = draw(name, model(epsilon=epsilon), np.repeat(np.arange(10), sizes), num_classes=10)
    assert record.flipped.sum() == wrong


@properties
@given(labels=label_arrays, epsilon=rates, seed=st.integers(0, 1000))
def test_symmetric_client_hits_exact_counts_per_client(
    labels: np.ndarray, epsilon: float, seed: int
) -> None:
    record = draw("symmetric", SymmetricParams(epsilon=epsilon, scope="client"), labels, seed=seed)
    for part in spread(len(labels), 4):
        assert record.flipped[part].sum() == int(len(part) * epsilon)


def test_symmetric_spreads_over_the_other_classes_evenly() -> None:
    """8000 of 10000 samples per class go to 4 other classes: 2000 each, standard deviation 39."""
    record = draw("symmetric", SymmetricParams(epsilon=0.8), np.arange(50000) % 5)
    assert np.array_equal(np.diag(record.transition), [2000] * 5)
    others = record.transition[~np.eye(5, dtype=bool)]
    assert np.abs(others - 2000).max() < 200


@properties
@given(labels=label_arrays, low=rates, high=rates, seed=st.integers(0, 1000))
def test_a_larger_epsilon_only_adds_wrong_labels(
    labels: np.ndarray, low: float, high: float, seed: int
) -> None:
    low, high = sorted((low, high))
    few, many = (
        draw("symmetric", SymmetricParams(epsilon=rate), labels, seed=seed) for rate in (low, high)
    )
    assert np.array_equal(few.labels[few.flipped], many.labels[few.flipped])


@pytest.mark.parametrize(
    ("name", "params"), [("symmetric", SymmetricParams(0.4)), ("pairwise", PairwiseParams(0.4))]
)
def test_noise_of_the_pooled_set_does_not_depend_on_the_partition(name: str, params: Any) -> None:
    labels = np.arange(1000) % 5
    overlapping = [np.arange(600), np.arange(400, 1000), np.array([3, 3, 3])]
    for parts in (spread(1000, 10), spread(1000, 7, seed=1), overlapping):
        other = noise.apply(name, labels, parts, 5, 3, params)
        assert np.array_equal(
            other.labels, noise.apply(name, labels, [np.arange(1000)], 5, 3, params).labels
        )


def test_a_sample_of_two_clients_is_counted_once_in_the_transition() -> None:
    record = noise.apply(
        "none", np.array([0, 1, 1]), [np.array([0, 1]), np.array([1, 1])], 2, 0, NoneParams()
    )
    assert record.transition.tolist() == [[1, 0], [0, 1]]


def test_clients_do_not_share_one_pattern_of_flips() -> None:
    """Five clients with the same sequence of labels: a generator restarted for each would flip the same places."""
    labels, parts = np.tile(np.arange(200) % 5, 5), np.array_split(np.arange(1000), 5)
    record = noise.apply(
        "symmetric", labels, parts, 5, 0, SymmetricParams(epsilon=0.4, scope="client")
    )
    assert len({record.flipped[part].tobytes() for part in parts}) == 5
    assert record.client_rate.tolist() == [0.4] * 5


@pytest.mark.parametrize(("direction", "moved"), [(-1, [4, 0, 1, 2, 3]), (1, [1, 2, 3, 4, 0])])
@properties
@given(labels=label_arrays, epsilon=rates, seed=st.integers(0, 1000))
def test_pairwise_moves_exact_counts_to_one_neighbour(
    direction: int, moved: list[int], labels: np.ndarray, epsilon: float, seed: int
) -> None:
    record = draw(
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
def test_rho_tau_law(form: str) -> None:
    """400 clients of 200 samples: share of noisy clients rho, mean level (1 + tau) / 2, wrong labels level * 4/5."""
    labels = np.arange(80000) % 5
    record = draw(
        "rho_tau", RhoTauParams(rho=0.6, tau=0.5, form=form), labels, num_clients=400, seed=8
    )
    noisy = record.client_level > 0
    assert noisy.mean() == pytest.approx(0.6, abs=0.08)
    assert record.client_level[noisy].min() >= 0.5
    assert record.client_level[noisy].mean() == pytest.approx(0.75, abs=0.03)
    assert not record.client_rate[~noisy].any()
    error = record.client_rate[noisy] - 0.8 * record.client_level[noisy]
    assert abs(error.mean()) < 0.01
    # Independent hits: a rate of 0.6 has standard deviation sqrt(0.6 * 0.4 / 200) = 0.035; fixed counts have less.
    assert 0.025 < error.std() < 0.045


def test_rho_tau_may_draw_the_true_class() -> None:
    """Level 1 everywhere: all labels redrawn, one in five of them comes out right; fewer classes, fewer targets."""
    labels = np.arange(50000) % 5
    record = draw("rho_tau", RhoTauParams(rho=1, tau=1), labels)
    assert record.client_level.tolist() == [1] * 4
    assert record.flipped.mean() == pytest.approx(0.8, abs=0.01)
    assert np.abs(record.transition - 2000).max() < 200


def test_rho_tau_classes_limits_the_replacement_labels() -> None:
    """On 100 classes the released code draws from 10 only."""
    labels = np.arange(20000) % 100
    few = draw("rho_tau", RhoTauParams(rho=1, tau=1, classes=10), labels, num_classes=100)
    every = draw("rho_tau", RhoTauParams(rho=1, tau=1), labels, num_classes=100)
    assert set(np.unique(few.labels)) == set(range(10))
    assert set(np.unique(every.labels)) == set(range(100))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RhoTauParams(rho=1.2, tau=0), "noise.rho=1.2: must be a number in [0, 1]"),
        (
            lambda: RhoTauParams(rho=float("nan"), tau=0),
            "noise.rho=nan: must be a number in [0, 1]",
        ),
        (lambda: RhoTauParams(rho=True, tau=0), "noise.rho=True: must be a number in [0, 1]"),
        (lambda: RhoTauParams(rho="a", tau=0), "noise.rho='a': must be a number in [0, 1]"),  # type: ignore[arg-type]
        (lambda: RhoTauParams(rho=0.4, tau=-0.1), "noise.tau=-0.1: must be a number in [0, 1]"),
        (
            lambda: RhoTauParams(rho=0.4, tau=0, classes=0),
            "noise.classes=0: must be null or an integer of at least 1",
        ),
        (
            lambda: RhoTauParams(rho=0.4, tau=0, form="x"),
            "noise.form='x': must be one of plain, official",
        ),
        (lambda: SymmetricParams(epsilon=40), "noise.epsilon=40: must be a number in [0, 1]"),
        (
            lambda: SymmetricParams(epsilon=0.4, scope="x"),
            "noise.scope='x': must be one of global, client",
        ),
        (lambda: PairwiseParams(epsilon=-1), "noise.epsilon=-1: must be a number in [0, 1]"),
        (lambda: PairwiseParams(epsilon=0.4, direction=2), "noise.direction=2: must be -1 or 1"),
        (
            lambda: draw("salt", NoneParams(), np.zeros(9, int)),
            "noise.name='salt': must be one of rho_tau, symmetric",
        ),
        (lambda: draw("none", SymmetricParams(0.1), np.zeros(9, int)), "must be a NoneParams"),
        (
            lambda: draw("none", NoneParams(), np.full(9, 5)),
            "noise.labels='int64(9,)': must be one integer in [0, 5)",
        ),
        (lambda: draw("none", NoneParams(), np.zeros(9)), "noise.labels='float64(9,)'"),
        (lambda: draw("none", NoneParams(), np.zeros(9, int), seed=-1), "noise.seed=-1"),
        (lambda: noise.apply("none", np.zeros(9, int), [], 5, 0, NoneParams()), "noise.parts=0"),
        (
            lambda: noise.apply("none", np.zeros(9, int), [np.array([9])], 5, 0, NoneParams()),
            "noise.parts='client 0': must be sample indices in [0, 9)",
        ),
        (
            lambda: draw("rho_tau", RhoTauParams(rho=0.4, tau=0, classes=10), np.zeros(9, int)),
            "noise.classes=10: must be null or at most 5",
        ),
        (
            lambda: noise.apply(
                "rho_tau",
                np.zeros(9, int),
                [np.arange(5), np.arange(3, 9)],
                5,
                0,
                RhoTauParams(1, 1),
            ),
            "noise.name='rho_tau': must be combined with disjoint clients (2 samples are held more than once)",
        ),
        (
            lambda: noise.apply(
                "symmetric",
                np.zeros(9, int),
                [np.zeros(2, int)],
                5,
                0,
                SymmetricParams(1, "client"),
            ),
            "noise.scope='client': must be combined with disjoint clients (1 samples are held more than once)",
        ),
        (
            lambda: draw("symmetric", SymmetricParams(0.4), np.zeros(9, int), num_classes=1),
            "noise.epsilon=0.4: must be 0 where there is one class only",
        ),
        (
            lambda: draw("pairwise", PairwiseParams(0.4), np.zeros(9, int), num_classes=1),
            "noise.epsilon=0.4: must be 0 where there is one class only",
        ),
    ],
)
def test_errors_name_key_value_and_what_is_legal(make: Any, message: str) -> None:
    with pytest.raises(NoiseError) as caught:
        make()
    assert message in str(caught.value) and "\n" not in str(caught.value)
