"""Statistics for few seeds, paired comparisons, and results over settings.

Comparisons are paired. Two methods that ran with the same seed in the same scenario share the
partition, the noise, the initial weights and the cohorts, so that these cancel in the difference.
Tests are exact where enumeration is feasible, and corrected by Holm for several comparisons.

Over many settings, methods are compared by average ranks (Demsar, Statistical Comparisons of
Classifiers over Multiple Data Sets, JMLR 7, 2006, section 3.2.2) and by interquartile means,
probabilities of improvement and profiles (Agarwal et al., Deep Reinforcement Learning at the Edge
of the Statistical Precipice, NeurIPS 2021). There, the scores of a method are one array per setting
with one number per seed. Further leading axes, such as bootstrap resamples, are allowed.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

SIGNIFICANCE_LEVEL = 0.05
MAX_EXACT_PAIRS = 20  # up to this number of pairs, all 2^n sign flips are enumerated
SAMPLED_FLIPS = 100_000  # for more pairs
TOLERANCE = 1e-12

Array = NDArray[Any]
Scores = Sequence[ArrayLike]
BySeed = Mapping[tuple[int, str], float]  # metric of each run, by seed and scenario hash
Key = TypeVar("Key")


def common_seeds(results: Mapping[Key, Mapping[int, float]]) -> dict[Key, list[float]]:
    """The values of the seeds that all methods have, in order of the seed; empty without any.

    Results of different seeds are not comparable, because a seed also selects the scenario.
    """
    seeds = sorted(set.intersection(*map(set, results.values())))
    return {key: [values[seed] for seed in seeds] for key, values in results.items() if seeds}


def sample_std(values: Sequence[float]) -> float | None:
    """Standard deviation with n - 1; None for a single value."""
    return stdev(values) if len(values) > 1 else None


def bootstrap_interval(
    values: Sequence[float], resamples: int = 10_000, **options: Any
) -> tuple[Array, ...]:
    """Percentile bootstrap interval of the mean; empty for a single value."""
    return stratified_interval(
        lambda scores: scores[0].mean(axis=-1), [values], resamples=resamples, **options
    )


def stratified_interval(
    statistic: Callable[..., Array],
    *methods: Scores,
    confidence: float = 1 - SIGNIFICANCE_LEVEL,
    resamples: int = 2000,
    seed: int = 0,
) -> tuple[Array, ...]:
    """Ends of a percentile bootstrap interval. Seeds are resampled within each setting and method.

    `statistic` takes the scores of each method. Empty if a setting has a single seed.
    """
    samples = [np.asarray(seeds, dtype=float) for scores in methods for seeds in scores]
    if min(map(len, samples)) < 2:
        return ()
    size = len(samples) // len(methods)

    def of_samples(*data: Array, axis: int) -> Array:
        return statistic(*(data[start : start + size] for start in range(0, len(data), size)))

    interval = stats.bootstrap(
        samples,
        of_samples,
        n_resamples=resamples,
        confidence_level=confidence,
        method="percentile",
        vectorized=True,
        rng=seed,
    ).confidence_interval
    return np.asarray(interval.low), np.asarray(interval.high)


@dataclass(frozen=True)
class Pairs:
    """Differences by seed, and the reason for each seed without one."""

    differences: Mapping[int, float]
    unpaired: tuple[str, ...]


def pair(values: BySeed, baseline: BySeed) -> Pairs:
    """Value minus baseline for every seed that both ran in the same scenario."""
    shared = sorted(values.keys() & baseline.keys())
    differences = {seed: values[seed, hash] - baseline[seed, hash] for seed, hash in shared}
    own, others = dict(values.keys()), dict(baseline.keys())  # seed -> scenario hash
    unpaired = []
    for seed in sorted((own.keys() | others.keys()) - differences.keys()):
        reason = "has no run" + " of the baseline" * (seed in own)
        if seed in own and seed in others:
            reason = f"has two scenarios, {own[seed]} and {others[seed]}"
        unpaired.append(f"seed {seed} {reason}")
    return Pairs(differences, tuple(unpaired))


def sign_test(differences: Sequence[float]) -> float:
    """Two-sided p-value of the exact sign test. Ties are dropped."""
    signs = [difference > 0 for difference in differences if difference != 0]
    return float(stats.binomtest(sum(signs), len(signs)).pvalue) if signs else 1.0


def sign_flip_test(differences: Sequence[float]) -> float:
    """Two-sided p-value of the mean under random sign flips of the differences.

    Exact up to MAX_EXACT_PAIRS pairs, sampled with a fixed seed beyond. The p-values are those of
    scipy.stats.permutation_test, which takes 5.9 s instead of 0.01 s for 20 pairs and rejects a
    single pair.
    """
    data = np.asarray(differences, dtype=float)
    if len(data) == 0:
        return 1.0
    observed = abs(data.sum()) - TOLERANCE * np.abs(data).sum()
    if len(data) <= MAX_EXACT_PAIRS:
        sums = np.zeros(1)
        for difference in data:
            sums = np.concatenate([sums + difference, sums - difference])
        return float((np.abs(sums) >= observed).mean())
    signs = np.random.default_rng(0).choice([-1.0, 1.0], size=(SAMPLED_FLIPS, len(data)))
    return float((1 + (np.abs(signs @ data) >= observed).sum()) / (1 + SAMPLED_FLIPS))


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values corrected for the number of tests (Holm, Scand. J. Statistics 6, 1979)."""
    values = np.asarray(p_values, dtype=float)
    order = np.argsort(values)
    factors = np.arange(len(values), 0, -1)
    corrected = np.empty_like(values)
    corrected[order] = np.minimum(1, np.maximum.accumulate(factors * values[order]))
    return [float(p) for p in corrected]


def corrected_tests(paired: Mapping[Key, Pairs]) -> dict[Key, tuple[float, str]]:
    """Holm-corrected p-values of sign-flip tests, and their results in words.

    Comparisons without pairs do not count.
    """
    differences = {key: [*pairs.differences.values()] for key, pairs in paired.items()}
    tested = {key: sign_flip_test(values) for key, values in differences.items() if values}
    corrected = dict(zip(tested, holm([*tested.values()]), strict=True))
    results = dict.fromkeys(paired, (1.0, "no paired seeds"))
    for key, p in corrected.items():
        results[key] = p, _describe_test(differences[key], p, len(corrected))
    return results


def _describe_test(differences: Sequence[float], p: float, comparisons: int) -> str:
    """Result in words. The smallest p-value of n pairs is 2 / 2^n: all signs agree."""
    count, level = len(differences), SIGNIFICANCE_LEVEL / comparisons
    if p <= SIGNIFICANCE_LEVEL:
        direction = "higher" if fmean(differences) > 0 else "lower"
        return f"{direction} than the baseline (p = {p:.2g}, {count} pairs)"
    needed = math.ceil(math.log2(2 / level))
    if count < needed:
        return f"not enough seeds: {count} of at least {needed}"
    return f"no significant difference (p = {p:.2g}, {count} pairs)"


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
            means = {key: sign * fmean([*results.values()]) for key, results in group.items()}
            best.append(max(means, key=means.__getitem__))
            rivals = [results for key, results in group.items() if key != best[-1]]
            p_values.append(max(_p_better(group[best[-1]], other, sign) for other in rivals))
    corrected = zip(best, holm(p_values), strict=True)
    return {key for key, p in corrected if p <= SIGNIFICANCE_LEVEL}


def _p_better(results: Mapping[Any, float], others: Mapping[Any, float], sign: int) -> float:
    """p-value of the paired differences; 1 if they do not favor the first method."""
    differences = [sign * (results[key] - others[key]) for key in results.keys() & others.keys()]
    return sign_flip_test(sorted(differences)) if sum(differences) > 0 else 1.0


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


@dataclass(frozen=True)
class Repair:
    """Share of the damage by label noise that a method repairs."""

    share: float
    interval: tuple[float, ...]  # 95 %; empty for a single seed


def damage_repaired(settings: Sequence[Sequence[Sequence[float]]]) -> Repair | None:
    """(method - given) / (clean - given) over settings and seeds.

    Each run is the accuracy of a method and of FedAvg on given and on clean labels, with one seed.
    Gains and damages are averaged before the division. The interval is a bootstrap of the seeds
    within each setting. None without runs, or if the damage or its interval is not above 0.
    """
    if not settings or not all(map(len, settings)):
        return None
    parts = []  # gains and damages of each setting, (2, seeds)
    for runs in settings:
        method, given, clean = np.asarray(runs, dtype=float).T
        parts.append(np.stack([method - given, clean - given]))

    def share_and_damage(positions: Scores) -> Array:
        resampled = [part[:, np.asarray(i, int)] for part, i in zip(parts, positions, strict=True)]
        gain, damage = np.mean([values.mean(axis=-1) for values in resampled], axis=0)
        share = np.divide(gain, damage, out=np.zeros_like(damage), where=damage != 0)
        return np.stack([share, damage])

    seeds = [np.arange(len(runs)) for runs in settings]
    share, damage = share_and_damage(seeds)
    ends = stratified_interval(share_and_damage, seeds)
    if min([damage, *(end_of_damage for _, end_of_damage in ends)]) <= 0:
        return None
    return Repair(float(share), tuple(float(end_of_share) for end_of_share, _ in ends))


@dataclass(frozen=True)
class Ranking:
    """Average ranks (1 is best) with Friedman's test and Nemenyi's critical difference."""

    ranks: tuple[float, ...]  # one per method
    num_settings: int
    chi_square: float | None = None  # None: fewer than two settings or methods, or all tied
    p: float | None = None
    critical_difference: float | None = None


def ranking(table: Sequence[Sequence[float]], higher_is_better: bool = True) -> Ranking:
    """Rank the methods. `table` has one row per setting and one number per method."""
    values = np.asarray(table, dtype=float)
    num_settings, num_methods = values.shape
    ranks = stats.rankdata(-values if higher_is_better else values, axis=1)
    average = ranks.mean(axis=0)
    found = Ranking(tuple(average.tolist()), num_settings)
    # Friedman's statistic with correction for ties: variation between methods over all variation.
    # scipy.stats.friedmanchisquare gives the same value but rejects fewer than three methods.
    total = ((ranks - (num_methods + 1) / 2) ** 2).sum()
    if num_settings < 2 or num_methods < 2 or total == 0:
        return found
    between = num_settings * ((average - (num_methods + 1) / 2) ** 2).sum()
    chi_square = float(num_settings * (num_methods - 1) * between / total)
    p = float(stats.chi2.sf(chi_square, num_methods - 1))
    difference = critical_difference(num_methods, num_settings)
    return replace(found, chi_square=chi_square, p=p, critical_difference=difference)


def critical_difference(num_methods: int, num_settings: int) -> float:
    """Nemenyi's critical difference of average ranks."""
    q = stats.studentized_range.ppf(1 - SIGNIFICANCE_LEVEL, num_methods, np.inf) / math.sqrt(2)
    return float(q * math.sqrt(num_methods * (num_methods + 1) / (6 * num_settings)))
