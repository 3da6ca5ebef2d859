"""Tests of the served models against a plain loop, and when they take place."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from benchmarks import models
from benchmarks.executors.processes import ProcessExecutor
from benchmarks.loop import diagnostics, evaluation
from benchmarks.loop.runner import Run
from methods.core.flat_model import FlatModel


def plain_loop(
    run: Run, serving: Mapping[str, Tensor], images: Any, labels: np.ndarray
) -> tuple[float, float, np.ndarray]:
    """Accuracy, loss and predictions, one image at a time, from the mean of the networks' probabilities."""
    nets = [
        FlatModel(models.build("digits_cnn", 10, run.dataset.shape)).load(vector).eval()
        for vector in serving.values()
    ]
    right, loss, tops = 0, 0.0, []
    with torch.no_grad():
        for position, label in enumerate(labels):
            x = run.dataset.views(images.fetch(torch.tensor([position])), "plain", None)
            mean = torch.stack([net(x).softmax(1) for net in nets]).mean(0)[0]
            tops.append(int(mean.argmax()))
            right += tops[-1] == label
            loss -= float(mean[label].log()) / len(labels)
    return right / len(labels), loss, np.array(tops)


@pytest.fixture
def trained(open_run: Callable[..., Run]) -> Run:
    """A little trained, so that predictions differ between images."""
    run = open_run("train.lr=0.1", "noise=none")
    for run.round in range(3):
        ctx = run.context("train")
        run.method.aggregate(
            run.fleet.ask(
                range(8), run.method.local_update, run.method.payload, ctx, participation=True
            ),
            ctx,
        )
    return run


def test_equals_a_plain_loop(trained: Run) -> None:
    accuracy, loss, top = plain_loop(
        trained, trained.method.serving(), trained.dataset.test, trained.dataset.test_labels
    )
    result = evaluation.test(trained.executor, trained.method, trained.dataset)
    assert result.accuracy == accuracy and len(np.unique(top)) > 5
    assert result.loss == pytest.approx(loss, abs=1e-5)
    assert np.array_equal(result.top, top)


def test_two_networks_are_averaged(
    open_run: Callable[..., Run], trained: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = {"a": trained.method.models["model"], "b": trained.fleet.initial_weights(1)}
    monkeypatch.setattr(trained.method, "serving", lambda: both)
    accuracy, loss, _ = plain_loop(trained, both, trained.dataset.test, trained.dataset.test_labels)
    result = evaluation.test(trained.executor, trained.method, trained.dataset)
    assert result.accuracy == accuracy and result.loss == pytest.approx(loss, abs=1e-5)


def test_workers_share_the_test_without_changing_it(trained: Run) -> None:
    """1437 samples are three batches of 500: two workers get two and one."""
    index = torch.arange(len(trained.dataset.train))
    top, log_likelihood = evaluation.predict(trained.executor, trained.method, "train", index)
    pool = ProcessExecutor(trained.executor._workshop, 2)  # type: ignore[attr-defined]
    try:
        spread_top, spread = evaluation.predict(pool, trained.method, "train", index)
    finally:
        pool.close()
    assert np.array_equal(top, spread_top) and torch.equal(log_likelihood, spread)


def test_memorisation_is_measured_on_wrong_labels_only(open_run: Callable[..., Run]) -> None:
    """Against a plain loop over all wrong labels; a limit takes a fixed choice of them; without wrong labels there is nothing to say."""
    run = open_run("noise.rho=1.0")
    wrong = np.flatnonzero(run.scenario.noise.flipped)
    _, _, top = plain_loop(run, run.method.serving(), run.dataset.train, run.dataset.train_labels)
    expected = {
        "memorised/wrong": float((top[wrong] == run.scenario.noise.labels[wrong]).mean()),
        "memorised/true": float((top[wrong] == run.dataset.train_labels[wrong]).mean()),
    }
    assert (
        diagnostics.memorisation(run.executor, run.method, run.scenario, seed=1, limit=10**6)
        == expected
    )
    some = diagnostics.memorisation(run.executor, run.method, run.scenario, seed=1, limit=50)
    assert some == diagnostics.memorisation(
        run.executor, run.method, run.scenario, seed=1, limit=50
    )
    assert some["memorised/wrong"] in [number / 50 for number in range(51)]
    assert diagnostics.memorisation(run.executor, run.method, run.scenario, seed=1, limit=0) == {}
    clean = open_run("noise=none")
    assert (
        diagnostics.memorisation(clean.executor, clean.method, clean.scenario, seed=1, limit=50)
        == {}
    )


@pytest.mark.parametrize(
    ("every", "rounds"), [(1, [1, 2, 3, 4, 5, 6, 7, 8]), (3, [3, 6, 8]), (8, [8]), (100, [8])]
)
def test_every_so_many_rounds_and_at_the_end(
    every: int, rounds: list[int], run_small: Callable[..., dict[str, Any]]
) -> None:
    record = run_small(f"evaluate.every={every}")
    lines = (record["folder"] / "curve.csv").read_text().splitlines()
    assert [int(line.split(",")[0]) for line in lines[1:]] == rounds
    assert [int(line.split(",")[2]) for line in lines[1:]] == [4 * round for round in rounds]
    assert record["summary"]["best_round"] in rounds and record["rounds"] == 8


def test_rounds_of_one_visit_count_by_visits_and_a_stage_ends_with_a_test(
    run_small: Callable[..., dict[str, Any]],
) -> None:
    """FedCorr visits one client per round in its first stage: a test after every four of them, and one at the end of each stage."""
    record = run_small("method=fedcorr", "method.iterations=1", "budget.participations=24")
    rows = [
        line.split(",")[:3]
        for line in (record["folder"] / "curve.csv").read_text().splitlines()[1:]
    ]
    first = [(int(row[0]), int(row[2])) for row in rows if row[1] == "preprocessing"]
    assert first == [(4, 4), (8, 8)]
    assert {row[1] for row in rows} == {"preprocessing", "finetuning", "training"}


def test_summary_is_of_the_curve(run_small: Callable[..., dict[str, Any]]) -> None:
    record = run_small("budget.participations=48", "train.lr=0.1", "noise=none")
    header, *lines = (record["folder"] / "curve.csv").read_text().splitlines()
    column = header.split(",").index("accuracy")
    accuracies = [float(line.split(",")[column]) for line in lines]
    assert len(accuracies) == 12 and max(accuracies) > 0.3
    summary = record["summary"]
    assert summary["best"] == max(accuracies) and summary["best_round"] == 1 + accuracies.index(
        max(accuracies)
    )
    assert summary["final"] == accuracies[-1] and summary["last10"] == pytest.approx(
        sum(accuracies[2:]) / 10
    )
    confusion = np.array(record["confusion"])
    assert confusion.sum() == 360 and confusion.trace() / 360 == pytest.approx(accuracies[-1])
