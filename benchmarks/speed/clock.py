"""Fair timing on a noisy machine: candidates take turns, and only ratios within one turn are compared."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np


def take_turns(
    candidates: Mapping[str, Callable[[], Any]],
    baseline: str,
    repeats: int,
    tell: Callable[[str], None],
    warm_up: bool = True,
) -> dict[str, dict[str, float]]:
    """Seconds and ratio to the baseline for each candidate: medians and quartiles over the turns. One turn more, to warm up, is not counted."""
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    order = list(candidates)
    for turn in range(0 if warm_up else 1, repeats + 1):
        tell(f"turn {turn} of {repeats}" if turn else "warms up")
        for name in order:
            started = time.perf_counter()
            candidates[name]()
            seconds[name].append(time.perf_counter() - started)
        order = order[1:] + order[:1]  # nobody always follows the same one
    counted = {name: np.array(values[1 if warm_up else 0 :]) for name, values in seconds.items()}
    return {name: summary(values, counted[baseline]) for name, values in counted.items()}


def summary(seconds: np.ndarray, baseline: np.ndarray) -> dict[str, float]:
    low, ratio, high = np.quantile(seconds / baseline, (0.25, 0.5, 0.75))
    rounded = {
        "seconds": float(np.median(seconds)),
        "ratio": float(ratio),
        "ratio_low": float(low),
        "ratio_high": float(high),
    }
    return {key: round(value, 4) for key, value in rounded.items()}
