"""Data of the figures, from the files of run directories. Fractions become percentages."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

Array = NDArray[Any]
Scenario = Mapping[str, Array]
JournalEntry = Mapping[str, Any]
DETECTION_COUNTS = ("true positives", "false positives", "false negatives", "true negatives")


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
    names = ("means", "variances", "weights")
    means, variances, weights = (np.asarray(mixture[name])[:, None] for name in names)
    deviations = np.where(variances > 0, np.sqrt(variances), np.inf)
    return np.asarray(weights * stats.norm.pdf(x, means, deviations))


def noise_estimate(journal: Sequence[JournalEntry], scenario: Scenario) -> pd.DataFrame:
    """FedCorr's estimate after the last pre-processing iteration, by client, lowest rate first.

    Noise rates in percent are `given`, `estimated` and, if recorded, `after` the pre-processing.
    `noisy` and `predicted` are true for noisy clients. DETECTION_COUNTS are numbers of samples, if
    recorded; 0 for clients that are predicted clean.
    """
    iterations = lid_iterations(journal)
    last = iterations[-1]
    table = pd.DataFrame({"given": 100 * scenario["client_rate"]})
    table["estimated"] = 100 * np.asarray(last["noise_levels"])
    # An iteration that changed no label does not repeat the noise rates.
    for rates in [entry["label_noise"] for entry in iterations if "label_noise" in entry]:
        table["after"] = 100 * np.asarray(rates)
    table["noisy"] = scenario["client_level"] > 0
    table["predicted"] = table.index.isin(last["noisy"])
    if detection := last.get("sample_detection"):
        clients = pd.DataFrame(detection, columns=["client", *DETECTION_COUNTS])
        table = table.join(clients.set_index("client")).fillna(0)
    return table.sort_values("given", kind="stable")


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
    if "stage" not in curve:
        return []
    ends = curve.groupby("stage", sort=False)["participations"].last()
    return [(str(stage), int(end)) for stage, end in ends.items()]


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
