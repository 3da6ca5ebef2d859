"""Samples held out for validation, and the selection of a round by them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from benchmarks import data
from benchmarks.config.schema import RunConfig
from benchmarks.loop.results import summarize_accuracy
from benchmarks.loop.runner import Run
from benchmarks.records.readers import read_curve
from benchmarks.scenario.scenario import Scenario, build_scenario, hold_out
from noise import NoiseRecord

Configure = Callable[..., RunConfig]


@pytest.mark.parametrize("partition", ["partition=iid", "partition.form=official"])
def test_each_client_loses_a_share_of_its_samples(
    partition: str, configure: Configure, digits: data.Dataset
) -> None:
    whole = build_scenario(configure(partition), digits)
    scenario = build_scenario(configure(partition, "evaluate.validation=0.1"), digits)
    held_out = set(scenario.held_out)
    assert len(held_out) == len(scenario.held_out) == 144, "8 clients with 179 or 180 samples"
    for before, after in zip(whole.client_indices, scenario.client_indices, strict=True):
        assert len(before) - len(after) == 18
        assert list(after) == [index for index in before if index not in held_out]
    assert np.array_equal(scenario.noise.labels, whole.noise.labels)
    assert np.array_equal(scenario.noise.client_level, whole.noise.client_level)
    rates = [scenario.noise.flipped[indices].mean() for indices in scenario.client_indices]
    assert scenario.noise.client_rate.tolist() == rates
    assert scenario.noise.transition.sum() == whole.client_sizes.sum() - 144
    assert scenario.hash != whole.hash


def test_samples_are_drawn_by_seed_and_not_by_noise(
    configure: Configure, digits: data.Dataset
) -> None:
    def held_out(*overrides: str) -> list[int]:
        config = configure("evaluate.validation=0.1", *overrides)
        return list(build_scenario(config, digits).held_out)

    assert held_out() == held_out("noise.rho=1.0") != held_out("seed=2")


def test_small_clients() -> None:
    """One sample is held out at least, and one is kept."""
    parts = [np.array([3]), np.array([5, 4]), np.array([0, 1, 2])]
    clean = np.array([0, 1, 0, 1, 0, 1])
    record = NoiseRecord(clean, clean, np.zeros(3), parts, 2, "none")
    scenario = Scenario(parts, clean, record, 2)
    few, most = hold_out(scenario, 0.01, 1), hold_out(scenario, 0.99, 1)
    assert few.client_sizes.tolist() == [1, 1, 2] and len(few.held_out) == 2
    assert most.client_sizes.tolist() == [1, 1, 1] and len(most.held_out) == 3
    assert hold_out(scenario, 0.0, 1) is scenario


def test_id_without_validation_is_that_of_earlier_runs(configure: Configure) -> None:
    without, with_validation = configure(), configure("evaluate.validation=0.1")
    assert "validation" not in without.hashed_config()["evaluate"]
    assert with_validation.hashed_config()["evaluate"]["validation"] == 0.1


def test_held_out_accuracy_is_that_of_given_labels(open_run: Callable[..., Run]) -> None:
    """Models that predict the given label of every held-out sample have accuracy 1."""
    run = open_run("evaluate.validation=0.1", "noise=symmetric", "noise.epsilon=0.4")
    run.run_round("train")
    predicted = run.curve[-1]["validation_accuracy"]
    assert 0 <= predicted <= 1 and (predicted * 144) % 1 == pytest.approx(0, abs=1e-9)
    run.scenario.noise.labels[run.scenario.held_out] = 10  # a class that is never predicted
    run.run_round("train")
    assert run.curve[-1]["validation_accuracy"] == 0


def test_round_is_selected_by_held_out_accuracy(
    run_small: Callable[..., dict[str, Any]],
) -> None:
    record = run_small("evaluate.validation=0.2", "budget.participations=48", "train.lr=0.1")
    curve = read_curve(record["run_dir"])
    assert curve["validation_accuracy"].nunique() > 3
    best = curve.loc[curve["validation_accuracy"].idxmax()]
    summary = record["summary"]
    assert (summary["selected"], summary["selected_round"]) == (best["accuracy"], best["round"])
    assert summary["selected"] <= summary["best"]
    assert max(record["scenario"]["client_sizes"]) == 144


def test_first_of_equal_rounds_is_selected() -> None:
    curve = [
        {"round": 5 * i, "accuracy": accuracy, "validation_accuracy": held_out}
        for i, (accuracy, held_out) in enumerate([(0.1, 0.2), (0.3, 0.4), (0.5, 0.4), (0.9, 0.3)])
    ]
    summary = summarize_accuracy(curve)
    assert summary is not None and (summary.selected, summary.selected_round) == (0.3, 5)
    assert (summary.best, summary.best_round) == (0.9, 15)
