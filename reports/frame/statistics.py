"""What a handful of seeds can say: pure functions on numbers, exact where enumeration is possible.

Comparisons are paired: two methods that ran under one seed and in one scene share partition, noise, initial weights and
cohorts, so their difference is freed of what these contribute. Over many cells methods are compared by average ranks
(Demsar, Statistical Comparisons of Classifiers over Multiple Data Sets, JMLR 7, 2006, section 3.2.2).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

SIGNIFICANCE_LEVEL = 0.05
MAX_EXACT_PAIRS = 20  # pairs up to which all sign flips are tried: a million
TOLERANCE = 1e-12


def mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def sample_std(values: Sequence[float]) -> float | None:
    """Standard deviation with n - 1; None for a single value, which has none."""
    if len(values) < 2:
        return None
    centre = mean(values)
    return math.sqrt(math.fsum((value - centre) ** 2 for value in values) / (len(values) - 1))


def bootstrap_interval(
    values: Sequence[float],
    level: float = 1 - SIGNIFICANCE_LEVEL,
    resamples: int = 10_000,
    seed: int = 0,
) -> tuple[float, float] | None:
    """Percentile interval of the mean over resamples with replacement; None for a single value."""
    if len(values) < 2:
        return None
    data = np.asarray(values, dtype=float)
    drawn = np.random.default_rng(seed).integers(len(data), size=(resamples, len(data)))
    low, high = np.quantile(data[drawn].mean(axis=1), [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


@dataclass(frozen=True)
class PairedValue:
    """One run's number and the world it was made in."""

    value: float
    scene: str  # hash of partition and noise


@dataclass(frozen=True)
class Pairs:
    """Differences by seed, and why a seed gave none."""

    differences: Mapping[int, float]
    unpaired: tuple[str, ...]


def pair(ours: Mapping[int, PairedValue], baseline: Mapping[int, PairedValue]) -> Pairs:
    """Ours minus baseline for every seed that both ran in the same scene."""
    differences, unpaired = {}, []
    for seed in sorted(ours.keys() | baseline.keys()):
        if seed not in ours or seed not in baseline:
            unpaired.append(f"seed {seed} has no run{' of the baseline' if seed in ours else ''}")
        elif ours[seed].scene != baseline[seed].scene:
            unpaired.append(
                f"seed {seed} has two scenes, {ours[seed].scene} and {baseline[seed].scene}"
            )
        else:
            differences[seed] = ours[seed].value - baseline[seed].value
    return Pairs(differences, tuple(unpaired))


def sign_test(differences: Sequence[float]) -> float:
    """Exact two-sided p that so uneven a split of signs comes from a fair coin; ties are left out."""
    signs = [difference > 0 for difference in differences if difference != 0]
    fewer = min(sum(signs), len(signs) - sum(signs))
    tail = sum(math.comb(len(signs), k) for k in range(fewer + 1)) / 2 ** len(signs)
    return min(1.0, 2 * tail)


def sign_flip_test(differences: Sequence[float], seed: int = 0, flips: int = 100_000) -> float:
    """Two-sided p of the mean under all flips of the differences' signs; sampled flips beyond MAX_EXACT_PAIRS pairs."""
    data = np.asarray(differences, dtype=float)
    if len(data) == 0:
        return 1.0
    observed = abs(data.sum()) - TOLERANCE * np.abs(data).sum()
    if len(data) <= MAX_EXACT_PAIRS:
        sums = np.zeros(1)
        for difference in data:
            sums = np.concatenate([sums + difference, sums - difference])
        return float((np.abs(sums) >= observed).mean())
    signs = np.random.default_rng(seed).choice([-1.0, 1.0], size=(flips, len(data)))
    return float((1 + (np.abs(signs @ data) >= observed).sum()) / (1 + flips))


def smallest_p(pairs: int) -> float:
    """The least p that both exact tests can give: all signs agree, or all disagree, 2 of 2^n cases."""
    return min(1.0, 2 / 2**pairs)


def pairs_needed(level: float = SIGNIFICANCE_LEVEL) -> int:
    """The least number of pairs with which a p of `level` can be reached."""
    return math.ceil(math.log2(2 / level))


def describe_test(differences: Sequence[float], level: float = SIGNIFICANCE_LEVEL) -> str:
    """What the sign-flip test says, in words."""
    count = len(differences)
    if count == 0:
        return "nothing to compare: no seed is paired"
    least = smallest_p(count)
    if least > level:
        pairs = "1 pair" if count == 1 else f"{count} pairs"
        return f"too few seeds to tell: {pairs} cannot give a p below {least:.2g}, {pairs_needed(level)} are needed"
    p = sign_flip_test(differences)
    if p > level:
        return f"no difference shown (p = {p:.2g}, {count} pairs)"
    return f"{'higher' if mean(differences) > 0 else 'lower'} than the baseline (p = {p:.2g}, {count} pairs)"


@dataclass(frozen=True)
class Ranking:
    """Average ranks over cells, 1 is best, with Friedman's test and Nemenyi's critical difference."""

    ranks: tuple[float, ...]  # one per method
    cells: int
    chi_square: float | None  # None: fewer than two cells or methods, or all tied
    p: float | None
    critical_difference: float | None


def ranking(
    table: Sequence[Sequence[float]],
    higher_is_better: bool = True,
    level: float = SIGNIFICANCE_LEVEL,
) -> Ranking:
    """`table` has one line per cell, one number per method, none missing."""
    values = np.asarray(table, dtype=float)
    cells, methods = values.shape
    ranks = stats.rankdata(-values if higher_is_better else values, axis=1)
    average = ranks.mean(axis=0)
    # Friedman's statistic in the form that allows for ties: between methods over what the ranks vary in all.
    spread = ((ranks - (methods + 1) / 2) ** 2).sum()
    if cells < 2 or methods < 2 or spread == 0:
        return Ranking(tuple(average.tolist()), cells, None, None, None)
    between = cells * ((average - (methods + 1) / 2) ** 2).sum()
    chi_square = float(cells * (methods - 1) * between / spread)
    p = float(stats.chi2.sf(chi_square, methods - 1))
    return Ranking(
        tuple(average.tolist()), cells, chi_square, p, critical_difference(methods, cells, level)
    )


def critical_difference(methods: int, cells: int, level: float = SIGNIFICANCE_LEVEL) -> float:
    """Nemenyi: average ranks further apart than this differ at `level`."""
    q = stats.studentized_range.ppf(1 - level, methods, np.inf) / math.sqrt(2)
    return float(q * math.sqrt(methods * (methods + 1) / (6 * cells)))
