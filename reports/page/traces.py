"""Data of one run for the page: learning curve, scenario and confusion matrix."""

import math
from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np
import pandas as pd

from reports.figures.extract import Scenario, row_percentages

# Columns of a curve and their decimals. Scores are fractions with four decimals.
DECIMALS = {"accuracy": 4, "round": 0, "participations": 0, "seconds": 1, "loss": 3, "megabytes": 2}
SCORE_PREFIXES = ("clients/", "samples/", "labels/accuracy", "memorization/")
BYTES_PER_MEGABYTE = 1e6
# Larger matrices are omitted: too large for a file of many runs, too fine to be read.
MAX_MATRIX_CLASSES = 20


def downsample_indices(length: int, limit: int) -> list[int]:
    """Indices to keep, including both ends.

    Steps are powers of two, so that curves of different lengths have indices in common.
    """
    step = 1
    while length > step * limit:
        step *= 2
    return sorted({*range(0, length, step), length - 1} if length else set())


def curve(frame: pd.DataFrame, limit: int) -> dict[str, Any]:
    """Accuracy, loss, cost and scores by evaluation; about `limit` points at most."""
    frame = frame.iloc[downsample_indices(len(frame), limit)]
    if {"bytes_down", "bytes_up"} <= set(frame):
        traffic = (frame["bytes_down"] + frame["bytes_up"]) / BYTES_PER_MEGABYTE
        frame = frame.assign(megabytes=traffic)
    columns = {name: k for name, k in DECIMALS.items() if name in frame}
    found: dict[str, Any] = {name: _rounded(frame[name], k) for name, k in columns.items()}
    scores = [name for name in map(str, frame) if name.startswith(SCORE_PREFIXES)]
    known = [name for name in scores if frame[name].notna().any()]
    found["scores"] = {name: _rounded(frame[name], 4) for name in known}
    if "stage" in frame:
        stages = groupby(frame["stage"].astype(str))
        found["stages"] = [(name, len(list(evaluations))) for name, evaluations in stages]
    return found


def _rounded(values: "pd.Series[float]", decimals: int) -> list[float | None]:
    return [round(value, decimals) if math.isfinite(value) else None for value in values.tolist()]


def scenario(arrays: Scenario) -> dict[str, Any]:
    """Samples by client and class, noise rates by client, and the label transition matrix."""
    counts = np.asarray(arrays["clean_counts"])
    transition = np.round(row_percentages(arrays["transition"])).astype(int).tolist()
    return {
        "counts": counts.tolist(),
        "noise_rates": np.round(100 * np.asarray(arrays["client_rate"]), 1).tolist(),
        "num_noisy": int((np.asarray(arrays["client_level"]) > 0).sum()),
        "transition": transition if counts.shape[1] <= MAX_MATRIX_CLASSES else None,
    }


def confusion(counts: Sequence[Sequence[int]]) -> dict[str, Any] | None:
    """Counts of the confusion matrix; the recall of each class in percent if there are many.

    None if there are no counts, or if they are not a square matrix.
    """
    try:
        table = np.asarray(counts, dtype=float)
    except ValueError:  # rows of different lengths
        return None
    if table.ndim != 2 or table.shape[0] != table.shape[1]:
        return None
    if len(table) <= MAX_MATRIX_CLASSES:
        return {"counts": table.astype(int).tolist()}
    return {"recall": np.round(np.diag(row_percentages(table)), 1).tolist()}
