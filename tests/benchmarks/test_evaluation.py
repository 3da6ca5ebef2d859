"""Evaluation against a simple loop, and the evaluation interval."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from benchmarks import models
from benchmarks.executors.processes import ProcessExecutor
from benchmarks.loop.evaluation import Probe, evaluate, predict, sample_probe
from benchmarks.loop.runner import Run
from benchmarks.records.readers import read_curve
from methods.core.flat_model import FlatModel

NOTHING = np.array([], dtype=np.int64)
NO_PROBE = Probe(NOTHING, NOTHING, NOTHING)


def simple_evaluation(
    run: Run, vectors: Mapping[str, Tensor], images: Any, labels: np.ndarray
) -> tuple[float, float, np.ndarray]:
    """Accuracy, loss and predictions, one image at a time, with the mean of the probabilities."""
    flat_models = [
        FlatModel(models.build("digits_cnn", 10, run.dataset.shape)).load(vector).eval()
        for vector in vectors.values()
    ]
    loss, predicted = 0.0, []
    with torch.no_grad():
        for position, label in enumerate(labels):
            x = run.dataset.views(images.fetch(torch.tensor([position])), "plain", None)
            mean = torch.stack([model(x).softmax(1) for model in flat_models]).mean(0)[0]
            predicted.append(int(mean.argmax()))
            loss -= float(mean[label].log()) / len(labels)
    accuracy = float((np.array(predicted) == labels).mean())
    return accuracy, loss, np.array(predicted)


@pytest.fixture
def trained(open_run: Callable[..., Run]) -> Run:
    """Trained for three rounds, so that predictions differ between images."""
    run = open_run("train.lr=0.1", "noise=none")
    method = run.method
    for run.round in range(3):
        ctx = run.context("train")
        method.aggregate(run.pool.run_task(range(8), method.local_update, method.payload, ctx), ctx)
    return run


def test_evaluation_equals_a_simple_loop(trained: Run) -> None:
    labels = trained.dataset.test_labels
    accuracy, loss, predicted = simple_evaluation(
        trained, trained.method.eval_models(), trained.dataset.test, labels
    )
    result = evaluate(trained.executor, trained.method, trained.dataset, NO_PROBE, 1)
    assert result.accuracy == accuracy and len(np.unique(predicted)) > 5
    assert result.loss == pytest.approx(loss, abs=1e-5)
    confusion = np.zeros((10, 10), dtype=int)
    np.add.at(confusion, (labels, predicted), 1)
    assert np.array_equal(result.confusion, confusion)


def test_predictions_of_two_models_are_averaged(
    trained: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = {"a": trained.method.state.models["model"], "b": trained.pool.initial_weights(1)}
    monkeypatch.setattr(trained.method, "eval_models", lambda: both)
    accuracy, loss, _ = simple_evaluation(
        trained, both, trained.dataset.test, trained.dataset.test_labels
    )
    result = evaluate(trained.executor, trained.method, trained.dataset, NO_PROBE, 1)
    assert result.accuracy == accuracy and result.loss == pytest.approx(loss, abs=1e-5)


def test_predictions_are_in_the_order_of_the_indices_and_independent_of_the_workers(
    trained: Run,
) -> None:
    """1797 images of both splits are four batches of 500: two workers get two each."""
    index = torch.arange(len(trained.dataset.test) + len(trained.dataset.train)).flip(0)
    predicted, log_likelihood = predict(
        trained.executor, trained.method, index, np.random.default_rng(1)
    )
    vectors, dataset = trained.method.eval_models(), trained.dataset
    parts = ((dataset.test, dataset.test_labels), (dataset.train, dataset.train_labels))
    expected = [simple_evaluation(trained, vectors, *part)[2] for part in parts]
    assert np.array_equal(predicted[::-1], np.concatenate(expected))
    executor = ProcessExecutor([trained.executor.context] * 2)  # type: ignore[attr-defined]
    try:
        parallel = predict(executor, trained.method, index, np.random.default_rng(1))
    finally:
        executor.close()
    assert np.array_equal(predicted, parallel[0]) and torch.equal(log_likelihood, parallel[1])


def test_memorization_is_measured_on_mislabeled_samples(open_run: Callable[..., Run]) -> None:
    run = open_run("noise.rho=1.0")
    clean = run.dataset.train_labels
    _, _, predicted = simple_evaluation(run, run.method.eval_models(), run.dataset.train, clean)
    probe = sample_probe(run.scenario, 1, 50)
    result = evaluate(run.executor, run.method, run.dataset, probe, 1)
    assert np.array_equal(result.predicted_mislabeled, predicted[probe.mislabeled])
    without = evaluate(run.executor, run.method, run.dataset, NO_PROBE, 1)
    assert result.accuracy == without.accuracy
    assert result.loss == pytest.approx(without.loss, abs=1e-5)


def test_probe_has_the_noise_rate_of_all_samples(open_run: Callable[..., Run]) -> None:
    """Of 1437 samples, 572 are mislabeled: 4 of 10 in each class, rounded down."""
    scenario = open_run("noise=symmetric", "noise.epsilon=0.4").scenario
    flipped = scenario.noise.flipped
    mislabeled, correct, _ = sample_probe(scenario, 1, 50)
    assert len(mislabeled) == 50 and flipped[mislabeled].all() and not flipped[correct].any()
    assert len(correct) == round(50 * (~flipped).sum() / flipped.sum())
    assert len(np.unique(np.concatenate([mislabeled, correct]))) == 50 + len(correct)
    again, other = sample_probe(scenario, 1, 50), sample_probe(scenario, 2, 50)
    assert np.array_equal(again.mislabeled, mislabeled)
    assert not np.array_equal(other.mislabeled, mislabeled)
    everything = sample_probe(scenario, 1, 10**6)
    assert len(everything.mislabeled) + len(everything.correct) == 1437
    assert [len(part) for part in sample_probe(scenario, 1, 0)] == [0, 0, 0]


def test_probe_is_limited_for_low_noise_rates(open_run: Callable[..., Run]) -> None:
    scenario = open_run("noise=symmetric", "noise.epsilon=0.02").scenario
    assert [len(part) for part in sample_probe(scenario, 1, 5)] == [5, 45, 0]
    clean = open_run("noise=none").scenario
    assert [len(part) for part in sample_probe(clean, 1, 5)] == [0, 0, 0]


@pytest.mark.parametrize(
    ("every", "rounds"), [(1, [1, 2, 3, 4, 5, 6, 7, 8]), (3, [3, 6, 8]), (8, [8]), (100, [8])]
)
def test_evaluation_interval(
    every: int, rounds: list[int], run_small: Callable[..., dict[str, Any]]
) -> None:
    record = run_small(f"evaluate.every={every}")
    curve = read_curve(record["run_dir"])
    assert list(curve["round"]) == rounds
    assert list(curve["participations"]) == [4 * round for round in rounds]
    assert record["summary"]["best_round"] in rounds and record["rounds"] == 8


def test_interval_counts_participations_and_stages_end_with_an_evaluation(
    run_small: Callable[..., dict[str, Any]],
) -> None:
    """A round of FedCorr's first stage is one participation; a normal round has four."""
    record = run_small("method=fedcorr", "method.iterations=1", "budget.participations=24")
    curve = read_curve(record["run_dir"])
    first = curve[curve["stage"] == "preprocessing"]
    assert list(first["round"]) == list(first["participations"]) == [4, 8]
    assert set(curve["stage"]) == {"preprocessing", "finetuning", "training"}


def test_summary_is_computed_from_the_curve(run_small: Callable[..., dict[str, Any]]) -> None:
    record = run_small("budget.participations=48", "train.lr=0.1", "noise=none")
    accuracies = list(read_curve(record["run_dir"])["accuracy"])
    assert len(accuracies) == 12 and max(accuracies) > 0.3
    assert record["summary"] == {
        "best": max(accuracies),
        "best_round": 1 + accuracies.index(max(accuracies)),
        "last10": pytest.approx(sum(accuracies[2:]) / 10),
        "final": accuracies[-1],
    }
    confusion = np.array(record["confusion"])
    assert confusion.sum() == 360 and confusion.trace() / 360 == pytest.approx(accuracies[-1])
