"""Results over settings and seeds: interquartile mean, probability of improvement, profiles.

Agarwal et al., Deep Reinforcement Learning at the Edge of the Statistical Precipice, NeurIPS 2021.
The scores of a method are one array per setting with one number per seed. Further leading axes,
such as bootstrap resamples, are allowed. Tests over several comparisons are corrected by Holm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from reports.frame.statistics import SIGNIFICANCE_LEVEL, mean, sign_flip_test

Array = NDArray[Any]
Scores = Sequence[ArrayLike]
Key = TypeVar("Key")


def interquartile_mean(scores: Scores) -> Array:
    """Mean of all scores without the lowest and highest quarter."""
    return np.asarray(stats.trim_mean(np.concatenate(scores, axis=-1), 0.25, axis=-1))


def improvement_probability(scores: Scores, others: Scores) -> Array:
    """Probability that a score exceeds one of another method in its setting. Ties count 1/2."""
    pairs = [
        np.sign(np.asarray(x)[..., :, None] - np.asarray(y)[..., None, :])
        for x, y in zip(scores, others, strict=True)
    ]
    return np.asarray((1 + np.mean([signs.mean(axis=(-2, -1)) for signs in pairs], axis=0)) / 2)


def performance_profile(scores: Scores, thresholds: ArrayLike) -> Array:
    """Fraction of scores above each threshold, on the first axis."""
    values = np.concatenate(scores, axis=-1)
    return np.stack([(values > threshold).mean(axis=-1) for threshold in np.asarray(thresholds)])


def stratified_interval(
    statistic: Callable[..., Array], *methods: Scores, resamples: int = 2000, seed: int = 0
) -> tuple[Array, Array] | None:
    """95 % bootstrap interval. Seeds are resampled within each setting and method.

    `statistic` takes the scores of each method. None if a setting has a single seed.
    """
    samples = [np.asarray(seeds, dtype=float) for scores in methods for seeds in scores]
    if min(map(len, samples)) < 2:
        return None
    size = len(samples) // len(methods)

    def of_samples(*data: Array, axis: int) -> Array:
        return statistic(*(data[start : start + size] for start in range(0, len(data), size)))

    interval = stats.bootstrap(
        samples,
        of_samples,
        n_resamples=resamples,
        confidence_level=1 - SIGNIFICANCE_LEVEL,
        method="percentile",
        vectorized=True,
        rng=seed,
    ).confidence_interval
    return np.asarray(interval.low), np.asarray(interval.high)


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values corrected for the number of tests (Holm, Scand. J. Statistics 6, 1979)."""
    values = np.asarray(p_values, dtype=float)
    order = np.argsort(values)
    factors = np.arange(len(values), 0, -1)
    corrected = np.empty_like(values)
    corrected[order] = np.minimum(1, np.maximum.accumulate(factors * values[order]))
    return [float(p) for p in corrected]


def corrected_tests(differences: Mapping[Key, Sequence[float]]) -> dict[Key, float]:
    """Holm-corrected p-values of sign-flip tests. Comparisons without pairs are left out."""
    tested = {key: sign_flip_test(values) for key, values in differences.items() if values}
    return dict(zip(tested, holm([*tested.values()]), strict=True))


def supported_best(
    groups: Iterable[Mapping[Key, Mapping[Any, float]]], higher_is_better: bool = True
) -> set[Key]:
    """The best entries that differ significantly from all others of their group.

    A group maps methods to results by seed, or by any other key that identifies a pair. The p-value
    of a group is the largest of the sign-flip tests of the best against each other method. It is
    corrected for the number of groups. A single pair has p-value 1.
    """
    sign = 1 if higher_is_better else -1
    best: list[Key] = []
    p_values: list[float] = []
    for group in groups:
        if len(group) > 1:
            means = {key: sign * mean([*results.values()]) for key, results in group.items()}
            best.append(max(means, key=means.__getitem__))
            rivals = [results for key, results in group.items() if key != best[-1]]
            p_values.append(max(_p_better(group[best[-1]], other, sign) for other in rivals))
    corrected = zip(best, holm(p_values), strict=True)
    return {key for key, p in corrected if p <= SIGNIFICANCE_LEVEL}


def _p_better(results: Mapping[Any, float], others: Mapping[Any, float], sign: int) -> float:
    """p-value of the paired differences; 1 if they do not favor the first method."""
    differences = [sign * (results[key] - others[key]) for key in results.keys() & others.keys()]
    return sign_flip_test(sorted(differences)) if sum(differences) > 0 else 1.0
