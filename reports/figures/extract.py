"""Data of the figures, from the files of run directories. Fractions become percentages."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from reports.frame.statistics import Ranking, mean, ranking

Array = NDArray[Any]
Scenario = Mapping[str, Array]
JournalEntry = Mapping[str, Any]
DETECTION_COUNTS = ("true positives", "false positives", "false negatives", "true negatives")


def sort_by_size(counts: Array) -> Array:
    """Rows of (clients, classes) sample counts, smallest client first."""
    return counts[np.argsort(counts.sum(axis=1), kind="stable")]


def row_percentages(counts: Array | Sequence[Sequence[int]]) -> Array:
    """Each count as a percentage of its row; zeros for an empty row."""
    table = np.asarray(counts, dtype=float)
    percentages: Array = 100 * table / np.maximum(table.sum(axis=1, keepdims=True), 1)
    return percentages


def lid_iterations(
    journal: Sequence[JournalEntry], at_most: int | None = None
) -> list[JournalEntry]:
    """Entries of FedCorr's pre-processing iterations, thinned evenly to `at_most`."""
    found = [entry for entry in journal if "cumulative_lid" in entry]
    if at_most is None or len(found) <= at_most:
        return found
    return [found[round(step)] for step in np.linspace(0, len(found) - 1, at_most)]


def mixture_densities(x: Array, mixture: Mapping[str, Any]) -> Array:
    """(2, len(x)) weighted densities of both components; 0 for a component without variance."""
    densities = []
    for center, variance, weight in zip(
        mixture["means"], mixture["variances"], mixture["weights"], strict=True
    ):
        scale = weight / math.sqrt(2 * math.pi * variance) if variance > 0 else 0.0
        densities.append(scale * np.exp(-((x - center) ** 2) / (2 * variance or 1.0)))
    return np.stack(densities)


@dataclass(frozen=True)
class NoiseEstimate:
    """FedCorr's noise estimate. Arrays are percentages per client, sorted by true noise rate."""

    clients: Array
    before: Array  # noise rate of the given labels
    estimated: Array
    after: Array | None  # noise rate after the last pre-processing iteration, if recorded
    detection: Mapping[int, Sequence[int]]  # client -> DETECTION_COUNTS of its samples
    true_positives: int  # noisy clients that are predicted noisy
    num_noisy: int
    false_positives: int  # clean clients that are predicted noisy


def noise_estimate(journal: Sequence[JournalEntry], scenario: Scenario) -> NoiseEstimate:
    """Estimate after the last pre-processing iteration. The journal must have an iteration."""
    iterations = lid_iterations(journal)
    last, is_noisy = iterations[-1], scenario["client_level"] > 0
    order = np.argsort(scenario["client_rate"], kind="stable")
    # An iteration that changed no label does not repeat the noise rates.
    rates = [entry["label_noise"] for entry in iterations if "label_noise" in entry]
    predicted = np.zeros(len(is_noisy), dtype=bool)
    predicted[list(last["noisy"])] = True
    return NoiseEstimate(
        clients=order,
        before=100 * scenario["client_rate"][order],
        estimated=100 * np.asarray(last["noise_levels"])[order],
        after=100 * np.asarray(rates[-1])[order] if rates else None,
        detection={row[0]: row[1:] for row in last.get("sample_detection", ())},
        true_positives=int((predicted & is_noisy).sum()),
        num_noisy=int(is_noisy.sum()),
        false_positives=int((predicted & ~is_noisy).sum()),
    )


def label_confusions(
    journal: Sequence[JournalEntry], scenario: Scenario
) -> list[tuple[str, Array]]:
    """Counts (true class, label) of the given labels and after each stage that changed labels."""
    stages = {
        entry["stage"]: entry["label_confusion"] for entry in journal if "label_confusion" in entry
    }
    corrected = [(f"after {stage}", np.asarray(counts)) for stage, counts in stages.items()]
    return [("given labels", scenario["transition"]), *corrected]


def stage_ends(curve: pd.DataFrame) -> list[tuple[str, int]]:
    """Stages in the order of the run, each with the participations at its end."""
    ends: dict[str, int] = {}
    for stage, participations in zip(curve.get("stage", ()), curve["participations"], strict=False):
        ends[str(stage)] = int(participations)
    return list(ends.items())


def curve_band(curves: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Mean and sample standard deviation of the accuracy in percent, by participations.

    Only evaluations that all curves have are used. The deviation of one curve is NaN.
    """
    series = [curve.groupby("participations")["accuracy"].last() for curve in curves]
    table = 100 * pd.concat(series, axis=1, join="inner").sort_index()
    return table.agg(["mean", "std"], axis=1)


def mean_std_by_x(points: Iterable[tuple[float, float]]) -> pd.DataFrame:
    """Mean and sample standard deviation of y by ascending x; NaN deviation for one value."""
    table = pd.DataFrame(points, columns=["x", "y"])
    return table.groupby("x")["y"].agg(["mean", "std"])


@dataclass(frozen=True)
class Ranks:
    """Methods by average rank, best first."""

    methods: tuple[str, ...]
    ranks: tuple[float, ...]
    ranking: Ranking
    dropped: tuple[str, ...]  # methods with too few settings in common with the others

    @property
    def cliques(self) -> list[tuple[int, int]]:
        """First and last index of the largest groups of methods without significant difference."""
        difference = self.ranking.critical_difference or 0.0
        groups: list[tuple[int, int]] = []
        for first, rank in enumerate(self.ranks):
            last = max(k for k, other in enumerate(self.ranks) if other - rank <= difference)
            if last > first and (not groups or last > groups[-1][1]):
                groups.append((first, last))
        return groups


Results = Mapping[Any, Mapping[str, Sequence[float]]]  # setting -> method -> accuracy by seed


def common_settings(
    results: Results,
) -> tuple[list[str], list[Mapping[str, Sequence[float]]], list[str]]:
    """Methods, the settings in which all of them ran, and dropped methods.

    While fewer than two settings are complete, the method with the fewest settings is dropped.
    No settings are returned if no two methods have two settings in common.
    """
    counts = Counter(name for setting in results.values() for name in setting)
    methods, dropped = sorted(counts), list[str]()
    while len(methods) >= 2:
        complete = [setting for setting in results.values() if set(methods) <= set(setting)]
        if len(complete) >= 2:
            return methods, complete, dropped
        dropped.append(min(methods, key=lambda name: (counts[name], name)))
        methods.remove(dropped[-1])
    return methods, [], dropped


def rank_methods(results: Results) -> Ranks | None:
    """Rank the methods over their common settings; None if there are none."""
    methods, settings, dropped = common_settings(results)
    if not settings:
        return None
    found = ranking([[mean(setting[name]) for name in methods] for setting in settings])
    ranks, names = zip(*sorted(zip(found.ranks, methods, strict=True)), strict=True)
    return Ranks(names, ranks, found, tuple(dropped))
