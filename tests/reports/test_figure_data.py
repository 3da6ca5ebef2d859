"""Data of the figures: extraction from run directories, aggregation, and selection of runs."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from figure_runs import FEDCORR, write_run

from benchmarks.records.readers import read_journal, read_scenario
from reports.figures import accuracy, over_settings, select
from reports.figures.extract import (
    DETECTION_COUNTS,
    curve_band,
    label_confusions,
    lid_iterations,
    mixture_densities,
    noise_estimate,
    row_percentages,
    stage_ends,
)
from reports.frame.load import load_runs, rows_of


def rows(runs: Path) -> list[dict[str, Any]]:
    return rows_of(load_runs([runs]).done)


def test_row_percentages():
    assert row_percentages([[3, 1], [0, 0]]).tolist() == [[75, 25], [0, 0]]


def test_lid_iterations_are_selected_and_thinned():
    journal = read_journal(FEDCORR)
    assert [entry["iteration"] for entry in lid_iterations(journal)] == [1, 2]
    many = [{"iteration": number, "cumulative_lid": []} for number in range(1, 11)]
    assert [entry["iteration"] for entry in lid_iterations(many, at_most=4)] == [1, 4, 7, 10]


def test_mixture_densities():
    """The density at the mean is w / sqrt(2 pi v), one standard deviation off exp(-1/2) of it."""
    fit = {"means": [2.0, 4.0], "variances": [1.0, 4.0], "weights": [0.25, 0.75]}
    low, high = mixture_densities(np.array([2.0, 3.0, 4.0]), fit)
    peak = 1 / math.sqrt(2 * math.pi)
    assert low[:2] == pytest.approx([0.25 * peak, 0.25 * peak * math.exp(-0.5)])
    assert high[[0, 2]] == pytest.approx([0.375 * peak * math.exp(-0.5), 0.375 * peak])
    flat = {"means": [1.0, 1.0], "variances": [0.0, 0.0], "weights": [1.0, 0.0]}
    assert mixture_densities(np.array([1.0, 2.0]), flat).tolist() == [[0, 0], [0, 0]]


def test_noise_estimate():
    """The last iteration predicts clients 1, 2 and 3 noisy; 3 is clean."""
    estimate = noise_estimate(read_journal(FEDCORR), read_scenario(FEDCORR))
    assert estimate.index.tolist() == [0, 3, 1, 2], "in order of true noise rate"
    assert estimate["given"].tolist() == pytest.approx([0, 0, 40, 70])
    assert estimate["estimated"].tolist() == pytest.approx([0, 40, 20, 50])
    assert estimate["after"].tolist() == pytest.approx([0, 20, 10, 40])
    assert estimate["noisy"].tolist() == [False, False, True, True]
    assert estimate["predicted"].tolist() == [False, True, True, True]
    counts = estimate[[*DETECTION_COUNTS]].to_numpy().tolist()
    assert counts == [[0, 0, 0, 0], [0, 2, 0, 3], [2, 0, 1, 7], [9, 1, 2, 8]]


def test_noise_estimate_without_corrected_labels():
    journal = [
        {key: value for key, value in entry.items() if not key.startswith(("label", "sample"))}
        for entry in read_journal(FEDCORR)
    ]
    estimate = noise_estimate(journal, read_scenario(FEDCORR))
    assert not {"after", *DETECTION_COUNTS} & set(estimate)


def test_label_confusions_use_the_last_entry_of_a_stage():
    """27 of 45 given labels are correct, 35 after pre-processing, 44 after finetuning."""
    confusions = label_confusions(read_journal(FEDCORR), read_scenario(FEDCORR))
    titles = ["given labels", "after preprocessing", "after finetuning"]
    assert [title for title, _ in confusions] == titles
    assert [int(np.trace(counts)) for _, counts in confusions] == [27, 35, 44]
    assert {int(counts.sum()) for _, counts in confusions} == {45}


def test_stage_ends():
    stages = {"stage": ["a", "a", "b"], "participations": [10, 20, 25]}
    assert stage_ends(pd.DataFrame(stages)) == [("a", 20), ("b", 25)]


def test_curve_band_uses_shared_evaluations():
    """At 10 the accuracies are 0.1 and 0.3: mean 20 %, standard deviation 10 sqrt(2) %."""
    first = pd.DataFrame({"participations": [10, 15, 30], "accuracy": [0.1, 0.9, 0.5]})
    second = pd.DataFrame({"participations": [10, 20, 30], "accuracy": [0.3, 0.9, 0.5]})
    both, single = curve_band([first, second]), curve_band([first])
    assert both.index.tolist() == [10, 30] and both["mean"].tolist() == pytest.approx([20, 50])
    assert both["std"].tolist() == pytest.approx([10 * math.sqrt(2), 0])
    assert single["std"].isna().all() and single["mean"].tolist() == pytest.approx([10, 90, 50])


def test_methods_with_few_settings_are_dropped():
    """c ran in one setting only. In the last setting, a and b have no seed in common."""
    results = [
        {"a": {1: 0.5, 2: 0.7}, "b": {2: 0.8}, "c": {2: 0.9}},
        {"a": {1: 0.5}, "b": {1: 0.4}},
        {"a": {1: 0.1}, "b": {2: 0.3}},
    ]
    settings = [{"a": [0.7], "b": [0.8]}, {"a": [0.5], "b": [0.4]}]
    assert over_settings.common_settings(results) == (["a", "b"], settings, ["c"])
    assert over_settings.common_settings([{"a": {1: 0.5}, "b": {1: 0.4}}])[1] == []


@pytest.mark.parametrize(
    ("ranks", "groups"),
    [([1, 2, 3], []), ([1, 1.7, 2.4], [(0, 1), (1, 2)]), ([1.5, 1.5, 3], [(0, 1)])],
)
def test_cliques_join_methods_without_significant_difference(ranks, groups):
    assert over_settings.cliques(ranks, 0.74) == groups


def test_variant_labels_name_unusual_parameters(tmp_path):
    write_run(tmp_path, "fedavg")
    for params in ((True, 0.5), (False, 0.5), (True, 0.9)):
        write_run(tmp_path, "fedcorr", **{"method.mixup": params[0], "method.pi": params[1]})
    labels = ["fedavg", "fedcorr", "fedcorr mixup=false", "fedcorr pi=0.9"]
    assert select.variants(rows(tmp_path)) == labels
    write_run(tmp_path, "fedavg", **{"train.lr": 0.1})
    without_majority = select.variants(rows(tmp_path))[:2]
    assert without_majority == ["fedavg lr=0.01", "fedavg lr=0.1"]


def test_best_match_prefers_the_setting_then_unablated_runs(tmp_path):
    cifar10 = {"dataset.name": "cifar10"}
    ablated, complete = {"method.finetuning": False}, {"method.finetuning": True}
    write_run(tmp_path, "fedcorr", **cifar10, **ablated, **{"noise.rho": 0.6})
    write_run(tmp_path, "fedcorr", **cifar10, **complete, **{"noise.rho": 0.8})
    assert select.best_match(rows(tmp_path))["run_id"] == "fedcorr-000"
    write_run(tmp_path, "fedcorr", seed=2, **cifar10, **complete, **{"noise.rho": 0.6})
    assert select.best_match(rows(tmp_path))["run_id"] == "fedcorr-002"


def test_combinations_need_a_method_alone_and_after_fedcorr(tmp_path):
    """median never ran alone, poc never after FedCorr; the ablated run is not used."""
    for final in ("feddyn", "median"):
        write_run(tmp_path, "fedcorr", **{"method.final_method": final, "method.mixup": True})
    write_run(tmp_path, "fedcorr", **{"method.final_method": "feddyn", "method.mixup": False})
    write_run(tmp_path, "feddyn")
    write_run(tmp_path, "poc")
    found = accuracy.combinations(rows(tmp_path))
    names = {key: [row["run_id"] for row in group] for key, group in found.items()}
    assert names == {("feddyn", False): ["fedcorr-000"], ("feddyn", True): ["feddyn-003"]}
