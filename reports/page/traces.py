"""What one run left on disk, small enough for a page: its curve, its scene, its confusion matrix."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from itertools import groupby, pairwise
from string import ascii_letters, digits
from typing import Any

import numpy as np
import pandas as pd

from reports.figures.extract import Scene, transition_shares

# Columns of curve.csv that are shown, and their decimals; scores are shares with four.
COUNTERS = {"round": 0, "participations": 0, "seconds": 1}
SCORES = ("clients/", "samples/", "labels/accuracy", "memorised/")
MEGABYTE = 1e6
FEW_CLASSES = (
    20  # a matrix of more is not drawn: too large for a file of many runs, too fine to be read
)
LEVELS = ascii_letters[26:] + ascii_letters[:26] + digits + "+-"  # 64 characters, A is none


def thinned(length: int, limit: int) -> list[int]:
    """Places to keep, with both ends. Steps are powers of two, so that curves of any two lengths share places."""
    step = 1
    while length > step * limit:
        step *= 2
    return sorted({*range(0, length, step), length - 1} if length else set())


def pack(values: Sequence[float | None], decimals: int) -> dict[str, Any]:
    """Whole numbers of the last decimal, in the shortest of three forms.

    v: the values; r: value, how often, value, how often, ...; d: first value, then steps as value, how often, ...
    """
    scaled = [
        None if value is None or not math.isfinite(value) else round(value * 10**decimals)
        for value in values
    ]
    forms: list[dict[str, Any]] = [{"v": scaled}, {"r": _lengths(scaled)}]
    whole = [value for value in scaled if value is not None]
    if whole and len(whole) == len(scaled):
        forms.append(
            {"d": [whole[0], *_lengths([after - before for before, after in pairwise(whole)])]}
        )
    return min(forms, key=lambda form: len(json.dumps(form))) | {"k": decimals}


def _lengths(values: Sequence[Any]) -> list[Any]:
    return [part for value, group in groupby(values) for part in (value, len(list(group)))]


def curve(frame: pd.DataFrame, limit: int) -> dict[str, Any]:
    """Accuracy, loss and scores by test, with the four measures of effort; at most about `limit` points."""
    frame = frame.iloc[thinned(len(frame), limit)]
    found: dict[str, Any] = {"accuracy": pack(frame["accuracy"].tolist(), 4)}
    for name, decimals in COUNTERS.items():
        if name in frame:
            found[name] = pack(frame[name].tolist(), decimals)
    if {"bytes_down", "bytes_up"} <= set(frame):
        found["megabytes"] = pack(
            ((frame["bytes_down"] + frame["bytes_up"]) / MEGABYTE).tolist(), 2
        )
    if "loss" in frame:
        found["loss"] = pack(frame["loss"].tolist(), 3)
    if "stage" in frame:
        found["stages"] = _lengths(frame["stage"].astype(str).tolist())
    scores = [name for name in frame if str(name).startswith(SCORES) and frame[name].notna().any()]
    if scores:
        found["scores"] = {name: pack(frame[name].tolist(), 4) for name in scores}
    return found


def scene(arrays: Scene) -> dict[str, Any]:
    """Who holds how much of which class, how much of it is wrong, and which labels become which."""
    counts = np.asarray(arrays["clean_counts"])
    clients, classes = counts.shape
    largest = int(counts.max(initial=0))
    levels = np.ceil(63 * counts / max(largest, 1)).astype(
        int
    )  # rounded up: what is there is never nothing
    return {
        "clients": clients,
        "classes": classes,
        "largest": largest,
        "counts": "".join(LEVELS[level] for level in levels.ravel()),
        "sizes": counts.sum(axis=1).tolist(),
        "wrong": np.round(100 * np.asarray(arrays["client_rate"]), 1).tolist(),
        "noisy": "".join("1" if level > 0 else "0" for level in arrays["client_level"]),
        "transition": np.round(transition_shares(arrays["transition"])).astype(int).tolist()
        if classes <= FEW_CLASSES
        else None,
    }


def confusion(counts: Any) -> dict[str, Any] | None:
    """The test's confusion matrix as counts; of many classes only the share of each that was recognised, in percent."""
    try:
        table = np.asarray(counts if counts is not None else [], dtype=float)
    except (TypeError, ValueError):
        return None
    if table.ndim != 2 or table.size == 0 or table.shape[0] != table.shape[1]:
        return None
    if len(table) <= FEW_CLASSES:
        return {"counts": table.astype(int).tolist()}
    return {"recall": np.round(np.diag(transition_shares(table)), 1).tolist()}
