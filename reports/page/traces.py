"""Compressed data of one run: learning curve, scenario and confusion matrix."""

import json
import math
from collections.abc import Sequence
from itertools import groupby, pairwise
from string import ascii_lowercase, ascii_uppercase, digits
from typing import Any

import numpy as np
import pandas as pd

from reports.figures.extract import Scenario, row_percentages

# Columns of curve.csv and their decimals. Scores are fractions with four decimals.
DECIMALS = {"accuracy": 4, "round": 0, "participations": 0, "seconds": 1, "loss": 3}
SCORE_PREFIXES = ("clients/", "samples/", "labels/accuracy", "memorization/")
BYTES_PER_MEGABYTE = 1e6
# Larger matrices are omitted: too large for a file of many runs, too fine to be read.
MAX_MATRIX_CLASSES = 20
BASE64_DIGITS = ascii_uppercase + ascii_lowercase + digits + "+-"


def downsample_indices(length: int, limit: int) -> list[int]:
    """Indices to keep, including both ends.

    Steps are powers of two, so that curves of different lengths have indices in common.
    """
    step = 1
    while length > step * limit:
        step *= 2
    return sorted({*range(0, length, step), length - 1} if length else set())


def pack(values: Sequence[float | None], decimals: int) -> dict[str, Any]:
    """Encode numbers as integer multiples of 10**-decimals, in the shortest of three forms.

    v: values; r: run lengths (value, count, ...); d: first value and run lengths of differences.
    """
    scaled = [
        None if value is None or not math.isfinite(value) else round(value * 10**decimals)
        for value in values
    ]
    forms: list[dict[str, Any]] = [{"v": scaled}, {"r": _run_length_encode(scaled)}]
    known = [value for value in scaled if value is not None]
    if known and len(known) == len(scaled):
        differences = [after - before for before, after in pairwise(known)]
        forms.append({"d": [known[0], *_run_length_encode(differences)]})
    return min(forms, key=lambda form: len(json.dumps(form))) | {"k": decimals}


def _run_length_encode(values: Sequence[Any]) -> list[Any]:
    return [part for value, group in groupby(values) for part in (value, len(list(group)))]


def curve(frame: pd.DataFrame, limit: int) -> dict[str, Any]:
    """Accuracy, loss, cost and scores by evaluation; about `limit` points at most."""
    frame = frame.iloc[downsample_indices(len(frame), limit)]
    columns = {name: k for name, k in DECIMALS.items() if name in frame}
    found: dict[str, Any] = {name: pack(frame[name].tolist(), k) for name, k in columns.items()}
    if {"bytes_down", "bytes_up"} <= set(frame):
        traffic = (frame["bytes_down"] + frame["bytes_up"]) / BYTES_PER_MEGABYTE
        found["megabytes"] = pack(traffic.tolist(), 2)
    if "stage" in frame:
        found["stages"] = _run_length_encode(frame["stage"].astype(str).tolist())
    scores = [name for name in map(str, frame) if name.startswith(SCORE_PREFIXES)]
    known = [name for name in scores if frame[name].notna().any()]
    if known:
        found["scores"] = {name: pack(frame[name].tolist(), 4) for name in known}
    return found


def scenario(arrays: Scenario) -> dict[str, Any]:
    """Samples by client and class, noise rates by client, and the label transition matrix."""
    counts = np.asarray(arrays["clean_counts"])
    num_clients, num_classes = counts.shape
    largest = int(counts.max(initial=0))
    # Rounded up so that non-zero counts stay visible.
    levels = np.ceil(63 * counts / max(largest, 1)).astype(int)
    transition = np.round(row_percentages(arrays["transition"])).astype(int).tolist()
    return {
        "clients": num_clients,
        "classes": num_classes,
        "largest": largest,
        "counts": "".join(BASE64_DIGITS[level] for level in levels.ravel()),
        "sizes": counts.sum(axis=1).tolist(),
        "noise_rates": np.round(100 * np.asarray(arrays["client_rate"]), 1).tolist(),
        "noisy": "".join("1" if level > 0 else "0" for level in arrays["client_level"]),
        "transition": transition if num_classes <= MAX_MATRIX_CLASSES else None,
    }


def confusion(counts: Any) -> dict[str, Any] | None:
    """Counts of the confusion matrix; the recall of each class in percent if there are many."""
    try:
        table = np.asarray(counts if counts is not None else [], dtype=float)
    except (TypeError, ValueError):
        return None
    if table.ndim != 2 or table.size == 0 or table.shape[0] != table.shape[1]:
        return None
    if len(table) <= MAX_MATRIX_CLASSES:
        return {"counts": table.astype(int).tolist()}
    return {"recall": np.round(np.diag(row_percentages(table)), 1).tolist()}
