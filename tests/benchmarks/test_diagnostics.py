"""Metrics of a noise diagnosis, on a scenario that is small enough to count by hand."""

from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score, precision_score, recall_score, roc_auc_score

import noise
from benchmarks.federation.pool import ClientPool
from benchmarks.federation.tasks import Executor
from benchmarks.loop import diagnostics
from benchmarks.loop.evaluation import sample_probe
from benchmarks.scenario.scenario import Scenario
from methods.core.contract import Diagnosis

# Ten samples, four clients. Sample 9 has no client. Clients 1 and 3 are noisy: samples 3, 4, 8
# (and 9) are mislabeled.
CLEAN = np.array([0, 1, 2, 0, 1, 2, 0, 1, 2, 0])
GIVEN = np.array([0, 1, 2, 1, 2, 2, 0, 1, 0, 1])
INDICES = [np.array([0, 1, 2]), np.array([3, 4, 5]), np.array([6]), np.array([7, 8])]


def make_scenario(given: np.ndarray, levels: list[float]) -> Scenario:
    record = noise.NoiseRecord(CLEAN, given, np.array(levels), INDICES, 3, "test")
    return Scenario(INDICES, CLEAN, record, 3)


@pytest.fixture
def scenario() -> Scenario:
    return make_scenario(GIVEN, [0.0, 0.7, 0.0, 0.5])


def make_pool(relabeled: Mapping[int, list[Any]]) -> ClientPool:
    """A pool without an executor, in which some clients have changed their labels."""
    return ClientPool(
        cast(Executor, None),
        INDICES,
        torch.from_numpy(GIVEN),
        torch.zeros,
        skip_nonfinite_updates=False,
        relabeled={k: torch.tensor(values) for k, values in relabeled.items()},
    )


def test_client_detection(scenario: Scenario) -> None:
    """Predicted 0, 1, 3; true 1, 3. Precision 2 / 3, recall 2 / 2, F1 2 * 2 / (3 + 2)."""
    metrics = diagnostics.client_metrics(Diagnosis(noisy_clients=[0, 1, 3]), scenario)
    assert metrics == {
        "clients/precision": pytest.approx(2 / 3),
        "clients/recall": 1.0,
        "clients/f1": pytest.approx(0.8),
    }
    truth, predicted = [0, 1, 0, 1], [1, 1, 0, 1]
    functions = (precision_score, recall_score, f1_score)
    assert [*metrics.values()] == [function(truth, predicted) for function in functions]


def test_detection_without_predicted_or_true_positives(scenario: Scenario) -> None:
    assert diagnostics.client_metrics(Diagnosis(noisy_clients=[]), scenario) == {
        "clients/precision": 0.0,
        "clients/recall": 0.0,
        "clients/f1": 0.0,
    }
    none = np.zeros(3, dtype=bool)
    assert diagnostics.detection_metrics("x", none, none) == {"x/precision": 0.0}
    assert diagnostics.detection_metrics("x", ~none, none) == {"x/precision": 0.0}
    assert diagnostics.client_metrics(Diagnosis(), scenario) == {}


def test_auroc_counts_ties_half(scenario: Scenario) -> None:
    """Noisy clients score 3 and 1, clean clients 1 and 0. Of four pairs three are won, one tied."""
    scores = np.array([1.0, 3.0, 0.0, 1.0])
    metrics = diagnostics.client_metrics(Diagnosis(client_scores=scores), scenario)
    assert metrics == {"clients/auroc": 0.875}
    rng = np.random.default_rng(0)
    values, truth = rng.integers(0, 5, 50).astype(float), rng.random(50) < 0.4
    assert diagnostics.auroc(values, truth) == pytest.approx(roc_auc_score(truth, values))
    assert diagnostics.auroc(np.ones(50), truth) == 0.5


def test_auroc_needs_noisy_and_clean_clients() -> None:
    clean = make_scenario(CLEAN, [0.0] * 4)
    assert diagnostics.client_metrics(Diagnosis(client_scores=np.arange(4)), clean) == {}


def test_noise_rate_error(scenario: Scenario) -> None:
    """True rates 0, 2/3, 0, 1/2 and estimates 0, 1/3, 0.1, 1/2: mean of 0, 1/3, 0.1, 0."""
    diagnosis = Diagnosis(noise_rates=np.array([0, 1 / 3, 0.1, 0.5]))
    metrics = diagnostics.client_metrics(diagnosis, scenario)
    assert metrics == {"clients/rate_error": pytest.approx((1 / 3 + 0.1) / 4)}


def test_sample_detection_covers_clients_with_a_mask(scenario: Scenario) -> None:
    """Clients 1 and 2: predicted are samples 3 and 6, mislabeled are 3 and 4."""
    masks = {1: np.array([True, False, False]), 2: np.array([True])}
    assert diagnostics.sample_metrics(masks, scenario) == {
        "samples/precision": 0.5,
        "samples/recall": 0.5,
        "samples/f1": 0.5,
    }
    assert diagnostics.sample_metrics({}, scenario) == {}
    assert diagnostics.sample_metrics(None, scenario) == {}


def test_label_accuracy_covers_all_clients(scenario: Scenario) -> None:
    """Nine samples, six given labels are clean.

    Client 1 fixes samples 3 and 4 and harms 5. Client 3 replaces the wrong label of 8 by another.
    """
    labels = {1: np.array([0, 1, 0]), 3: np.array([1, 1])}
    assert diagnostics.label_metrics(labels, make_pool({}), scenario) == {
        "labels/accuracy_before": 6 / 9,
        "labels/accuracy_after": 7 / 9,
        "labels/fixed": 2.0,
        "labels/harmed": 1.0,
    }


def test_current_labels_are_used_without_labels_in_the_diagnosis(scenario: Scenario) -> None:
    soft = [[0.9, 0.1, 0.0], [0.2, 0.5, 0.3], [0.0, 0.1, 0.9]]  # argmax 0, 1, 2: all clean
    assert diagnostics.label_metrics(None, make_pool({1: soft}), scenario) == {
        "labels/accuracy_before": 6 / 9,
        "labels/accuracy_after": 8 / 9,
        "labels/fixed": 2.0,
        "labels/harmed": 0.0,
    }
    assert diagnostics.label_metrics(None, make_pool({}), scenario) == {}
    assert diagnostics.label_metrics({}, make_pool({1: soft}), scenario) == {}


def test_report_of_changed_labels(scenario: Scenario) -> None:
    """Client 1 had labels 0 2 2 (clean 0 1 2) and has 0 1 1; its mask has samples 4 and 5."""
    report = diagnostics.label_change_report(
        make_pool({1: [0, 1, 1]}),
        {1: torch.tensor([0, 2, 2])},
        {1: np.array([False, True, True])},
        scenario,
    )
    assert report["label_confusion"].tolist() == [[3, 0, 0], [0, 3, 0], [1, 1, 1]]
    assert report["label_noise"] == pytest.approx([0, 1 / 3, 0, 1 / 2])
    assert report["sample_detection"] == [[1, 1, 1, 0, 1]]


def test_first_report_compares_masks_with_given_labels(scenario: Scenario) -> None:
    """Given labels of samples 3 and 4 are wrong; the mask has 3 and 5."""
    report = diagnostics.label_change_report(
        make_pool({1: [0, 2, 2]}), {}, {1: np.array([True, False, True])}, scenario
    )
    assert report["sample_detection"] == [[1, 1, 1, 1, 0]]


@pytest.mark.parametrize(
    ("relabeled", "earlier"),
    [({}, {}), ({1: [1, 2, 2]}, {}), ({1: [0, 1, 2]}, {1: torch.tensor([0, 1, 2])})],
    ids=["no labels", "given labels", "earlier labels"],
)
def test_report_is_empty_without_a_change(
    relabeled: dict[int, Any], earlier: dict[int, torch.Tensor], scenario: Scenario
) -> None:
    masks = {1: np.zeros(3, dtype=bool)}
    assert diagnostics.label_change_report(make_pool(relabeled), earlier, masks, scenario) == {}


def test_all_metrics_are_floats(scenario: Scenario) -> None:
    diagnosis = Diagnosis(
        noisy_clients=[1], noisy_samples={2: np.array([False])}, values={"cutoff": 0.25}
    )
    metrics = diagnostics.diagnosis_metrics(diagnosis, make_pool({}), scenario)
    assert metrics == {
        "method/cutoff": 0.25,
        "clients/precision": 1.0,
        "clients/recall": 0.5,
        "clients/f1": pytest.approx(2 / 3),
        "samples/precision": 0.0,
    }
    assert all(type(value) is float for value in metrics.values())


def test_memorization_counts_given_and_true_labels(scenario: Scenario) -> None:
    """Samples 3, 4 and 8 have the given labels 1, 2, 0 and the true labels 0, 1, 2."""
    metrics = diagnostics.memorization_metrics(np.array([1, 1, 0]), np.array([3, 4, 8]), scenario)
    assert metrics == {"memorization/wrong": 2 / 3, "memorization/true": 1 / 3}
    nothing = np.array([], dtype=np.int64)
    assert diagnostics.memorization_metrics(nothing, nothing, scenario) == {}


def test_probe_has_samples_of_clients_only(scenario: Scenario) -> None:
    mislabeled, correct, _ = sample_probe(scenario, 1, 100)
    assert sorted(mislabeled) == [3, 4, 8] and sorted(correct) == [0, 1, 2, 5, 6, 7]
