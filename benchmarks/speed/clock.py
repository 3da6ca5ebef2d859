"""Interleaved timing: candidates are measured in turn, and ratios are computed per repetition."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Log = Callable[[str], None]
Candidates = Mapping[str, Callable[[], Any]]


def time_interleaved(
    candidates: Candidates, baseline: str, repeats: int, log: Log, warm_up: bool = True
) -> dict[str, dict[str, float]]:
    """Median seconds of each candidate, and median and quartiles of its ratio to the baseline."""
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    order = list(candidates)
    for repetition in range(0 if warm_up else 1, repeats + 1):
        log(f"repetition {repetition} of {repeats}" if repetition else "warm-up")
        for name in order:
            started = time.perf_counter()
            candidates[name]()
            if repetition:
                seconds[name].append(time.perf_counter() - started)
        # Rotate the order so that no candidate always follows the same one.
        order = order[1:] + order[:1]
    return {name: summarize(values, seconds[baseline]) for name, values in seconds.items()}


def summarize(seconds: list[float], baseline: list[float]) -> dict[str, float]:
    """Median time, and quartiles of the ratios to the baseline."""
    low, ratio, high = np.quantile(np.divide(seconds, baseline), (0.25, 0.5, 0.75))
    values = {"seconds": np.median(seconds), "ratio": ratio, "ratio_low": low, "ratio_high": high}
    return {key: round(float(value), 4) for key, value in values.items()}
