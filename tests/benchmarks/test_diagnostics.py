"""Scores of what a method believes, on a scene small enough to count by hand."""

from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score, precision_score, recall_score, roc_auc_score

import noise
from benchmarks.executors.base import Executor
from benchmarks.federation.pool import ClientPool
from benchmarks.loop import diagnostics
from benchmarks.scenario.scenario import Scenario
from methods.core.contract import Diagnosis

# Ten samples on four clients; sample 9 belongs to nobody. Clients 1 and 3 are noisy: samples 3, 4, 8 (and 9) are wrong.
CLEAN = np.array([0, 1, 2, 0, 1, 2, 0, 1, 2, 0])
GIVEN = np.array([0, 1, 2, 1, 2, 2, 0, 1, 0, 1])
PARTS = [np.array([0, 1, 2]), np.array([3, 4, 5]), np.array([6]), np.array([7, 8])]


@pytest.fixture
def scenario() -> Scenario:
    record = noise.make_noise_record(
        CLEAN, GIVEN, np.array([0.0, 0.7, 0.0, 0.5]), PARTS, 3, "by hand"
    )
    return Scenario(PARTS, CLEAN, record, 3)


def fleet(changed: Mapping[int, list[Any]]) -> ClientPool:
    """Some clients have changed their labels; nobody is asked for anything, so nothing needs an executor."""
    labels = {k: torch.tensor(values) for k, values in changed.items()}
    return ClientPool(
        cast(Executor, None),
        PARTS,
        torch.from_numpy(GIVEN),
        torch.zeros,
        skip_nonfinite_updates=False,
        changed_labels=labels,
    )


def test_detection_of_clients(scenario: Scenario) -> None:
    """Held noisy: 0, 1, 3. Hits 2 of 3 found, 2 of 2 there are; F1 = 2 * 2 / (3 + 2)."""
    scores = diagnostics.client_scores(Diagnosis(noisy_clients=[0, 1, 3]), scenario)
    assert scores == {
        "clients/precision": pytest.approx(2 / 3),
        "clients/recall": 1.0,
        "clients/f1": pytest.approx(0.8),
    }
    truth, found = [0, 1, 0, 1], [1, 1, 0, 1]
    assert [*scores.values()] == pytest.approx(
        [score(truth, found) for score in (precision_score, recall_score, f1_score)]
    )


def test_nothing_found_and_nothing_to_find(scenario: Scenario) -> None:
    assert diagnostics.client_scores(Diagnosis(noisy_clients=[]), scenario) == {
        "clients/precision": 0.0,
        "clients/recall": 0.0,
        "clients/f1": 0.0,
    }
    nothing = np.zeros(3, dtype=bool)
    assert diagnostics.detection("x", nothing, nothing) == {"x/precision": 0.0}
    assert diagnostics.client_scores(Diagnosis(), scenario) == {}


def test_auroc_counts_ties_half(scenario: Scenario) -> None:
    """Noisy clients score 3 and 1, clean ones 1 and 0: of four pairs three are won and one is a tie, (3 + 0.5) / 4."""
    scores = diagnostics.client_scores(
        Diagnosis(client_scores=np.array([1.0, 3.0, 0.0, 1.0])), scenario
    )
    assert scores == {"clients/auroc": 0.875}
    rng = np.random.default_rng(0)
    values, truth = rng.integers(0, 5, 50).astype(float), rng.random(50) < 0.4
    assert diagnostics.auroc(values, truth) == pytest.approx(roc_auc_score(truth, values))
    assert diagnostics.auroc(np.ones(50), truth) == 0.5


def test_auroc_needs_both_kinds(scenario: Scenario) -> None:
    clean = Scenario(
        PARTS, CLEAN, noise.make_noise_record(CLEAN, CLEAN, np.zeros(4), PARTS, 3, "none"), 3
    )
    assert diagnostics.client_scores(Diagnosis(client_scores=np.arange(4)), clean) == {}


def test_error_of_the_noise_rates(scenario: Scenario) -> None:
    """True rates 0, 2/3, 0, 1/2 against 0, 1/3, 0.1, 1/2: mean of 0, 1/3, 0.1, 0."""
    scores = diagnostics.client_scores(
        Diagnosis(noise_rates=np.array([0, 1 / 3, 0.1, 0.5])), scenario
    )
    assert scores == {"clients/rate_error": pytest.approx((1 / 3 + 0.1) / 4)}


def test_detection_of_samples_is_over_the_judged_clients(scenario: Scenario) -> None:
    """Clients 1 and 2 are judged: found are samples 3 and 6, wrong are 3 and 4. One hit of two found, of two there are."""
    masks = {1: np.array([True, False, False]), 2: np.array([True])}
    assert diagnostics.sample_scores(masks, scenario) == {
        "samples/precision": 0.5,
        "samples/recall": 0.5,
        "samples/f1": 0.5,
    }
    assert (
        diagnostics.sample_scores({}, scenario) == diagnostics.sample_scores(None, scenario) == {}
    )


def test_correction_of_labels_is_over_all_clients(scenario: Scenario) -> None:
    """Nine samples, six right as given. Client 1: 3 and 4 repaired, 5 spoilt; client 3: 8 replaced by another wrong label. Then 7 are right."""
    labels = {1: np.array([0, 1, 0]), 3: np.array([1, 1])}
    scores = diagnostics.label_scores(labels, fleet({}), scenario)
    assert scores == {
        "labels/accuracy_before": 6 / 9,
        "labels/accuracy_after": 7 / 9,
        "labels/fixed": 2.0,
        "labels/harmed": 1.0,
    }


def test_working_labels_are_scored_when_the_method_names_none(scenario: Scenario) -> None:
    soft = [[0.9, 0.1, 0.0], [0.2, 0.5, 0.3], [0.0, 0.1, 0.9]]  # arg max 0, 1, 2: all true
    scores = diagnostics.label_scores(None, fleet({1: soft}), scenario)
    assert scores == {
        "labels/accuracy_before": 6 / 9,
        "labels/accuracy_after": 8 / 9,
        "labels/fixed": 2.0,
        "labels/harmed": 0.0,
    }
    assert diagnostics.label_scores(None, fleet({}), scenario) == {}
    assert diagnostics.label_scores({}, fleet({1: soft}), scenario) == {}, (
        "a method that names labels is scored on those alone"
    )


def test_audit_of_changed_labels(scenario: Scenario) -> None:
    """Client 1 held labels 0 2 2 (sample 4 wrong, true 0 1 2) and now holds 0 1 1; the mask found 4 and 5. Client 3 keeps 1 0, its 8 wrong."""
    audit = diagnostics.label_audit(
        fleet({1: [0, 1, 1]}),
        {1: torch.tensor([0, 2, 2])},
        {1: np.array([False, True, True])},
        scenario,
    )
    assert audit["label_confusion"].tolist() == [[3, 0, 0], [0, 3, 0], [1, 1, 1]]
    assert audit["label_noise"] == pytest.approx([0, 1 / 3, 0, 1 / 2])
    assert audit["sample_detection"] == [[1, 1, 1, 0, 1]]


def test_audit_judges_by_the_given_labels_where_none_changed_before(scenario: Scenario) -> None:
    """As given, samples 3 and 4 are wrong and 5 is right; the mask has 3 and 5."""
    audit = diagnostics.label_audit(
        fleet({1: [0, 2, 2]}), {}, {1: np.array([True, False, True])}, scenario
    )
    assert audit["sample_detection"] == [[1, 1, 1, 1, 0]]


def test_no_audit_without_a_change(scenario: Scenario) -> None:
    assert diagnostics.label_audit(fleet({}), {}, {1: np.zeros(3, dtype=bool)}, scenario) == {}
    assert diagnostics.label_audit(fleet({1: [1, 2, 2]}), {}, None, scenario) == {}, (
        "the labels as given"
    )
    assert (
        diagnostics.label_audit(fleet({1: [0, 1, 2]}), {1: torch.tensor([0, 1, 2])}, None, scenario)
        == {}
    )


def test_all_scores_together(scenario: Scenario) -> None:
    diagnosis = Diagnosis(
        noisy_clients=[1], noisy_samples={2: np.array([False])}, values={"cutoff": 0.25}
    )
    scores = diagnostics.score(diagnosis, fleet({}), scenario)
    assert scores == {
        "method/cutoff": 0.25,
        "clients/precision": 1.0,
        "clients/recall": 0.5,
        "clients/f1": pytest.approx(2 / 3),
        "samples/precision": 0.0,
    }
    assert all(type(value) is float for value in scores.values())


def test_samples_without_a_client_are_not_held() -> None:
    held = diagnostics.held(
        Scenario(
            PARTS, CLEAN, noise.make_noise_record(CLEAN, GIVEN, np.zeros(4), PARTS, 3, "by hand"), 3
        )
    )
    assert held.tolist() == [True] * 9 + [False]
