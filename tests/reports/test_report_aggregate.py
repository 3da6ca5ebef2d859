"""Statistics over settings against values derived by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.frame.statistics import (
    Pairs,
    corrected_tests,
    holm,
    improvement_probability,
    interquartile_mean,
    performance_profile,
    stratified_interval,
    supported_best,
)

ACCURACY = st.floats(0, 100)
SCORES = st.lists(st.lists(ACCURACY, min_size=2, max_size=4), min_size=2, max_size=2)


def test_interquartile_mean():
    """Of eight scores, 3 4 5 6 remain. Of three scores, none is removed."""
    assert interquartile_mean([[1, 100, 3, 4], [5, 6, -50, 8]]) == 4.5
    assert interquartile_mean([[1], [2, 6]]) == 3


def test_improvement_probability_counts_ties_half():
    """Setting 1: 1 > 0, 1 = 1, 2 > 0, 2 > 1, so 3.5 / 4. Setting 2: 0 of 1. Their mean is 7/16."""
    assert improvement_probability([[1, 2], [3]], [[0, 1], [4]]) == 7 / 16


def test_performance_profile_is_strict():
    profile = performance_profile([[10, 20], [20, 40]], [5, 10, 20, 39, 40])
    assert profile.tolist() == [1, 0.75, 0.25, 0.25, 0]


def test_holm_correction():
    """Sorted p 0.005 0.01 0.03 0.04, factors 4 3 2 1: 0.02 0.03 0.06 and 0.04, raised to 0.06."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1, 1] and holm([]) == []


def test_comparisons_without_pairs_do_not_count():
    """p is 2 / 2^2 and 2 / 2^3; the factor of the smallest is 2."""
    pairs = {
        key: Pairs(dict.fromkeys(range(n), 1.0), ()) for key, n in (("a", 2), ("b", 0), ("c", 3))
    }
    found = corrected_tests(pairs)
    assert {key: p for key, (p, _) in found.items()} == {"a": 0.5, "b": 1.0, "c": 0.5}
    assert found["b"][1] == "no paired seeds" and "3 of at least 7" in found["c"][1]


def test_interval_resamples_seeds_within_settings():
    """Each setting has equal seeds: every resample is the same, although settings differ."""
    interval = stratified_interval(interquartile_mean, [[1, 1], [9, 9]])
    assert interval == (5, 5)
    assert stratified_interval(interquartile_mean, [[1], [9, 8]]) == (), "a single seed"


def test_interval_equals_explicit_resampling():
    """Each setting is resampled by its own indices of one generator."""
    scores = [np.array([1.0, 2.0, 4.0]), np.array([3.0, 7.0])]
    generator = np.random.default_rng(0)
    resamples = [seeds[generator.integers(len(seeds), size=(2000, len(seeds)))] for seeds in scores]
    expected = np.quantile(interquartile_mean(resamples), [0.025, 0.975])
    assert stratified_interval(interquartile_mean, scores) == pytest.approx(tuple(expected))


@given(SCORES, SCORES)
def test_probabilities_of_both_directions_sum_to_one(scores, others):
    total = improvement_probability(scores, others) + improvement_probability(others, scores)
    assert total == pytest.approx(1)
    low, high = stratified_interval(improvement_probability, scores, others, resamples=50)
    assert 0 <= low <= high <= 1


@given(SCORES, ACCURACY)
def test_interquartile_mean_is_translated_with_the_scores(scores, shift):
    shifted = [[score + shift for score in seeds] for seeds in scores]
    assert interquartile_mean(shifted) == pytest.approx(interquartile_mean(scores) + shift)
    assert (
        min(map(min, scores)) - 1e-9 <= interquartile_mean(scores) <= max(map(max, scores)) + 1e-9
    )


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_is_between_no_correction_and_bonferroni(p_values):
    for p, corrected in zip(p_values, holm(p_values), strict=True):
        assert p <= corrected <= 1 and (
            corrected <= len(p_values) * max(p_values) or corrected == p
        )
    assert sorted(holm(p_values)) == holm(sorted(p_values))


def by_seed(*values: float) -> dict[int, float]:
    return dict(enumerate(values))


def test_best_must_differ_from_all_others():
    """Six equal signs have p 2 / 2^6 = 0.031. b exceeds a in five of six seeds only."""
    low, high = by_seed(1, 2, 3, 4, 5, 6), by_seed(2, 3, 4, 5, 6, 7)
    close = by_seed(3, 2, 3, 4, 5, 6)
    assert supported_best([{"a": low, "b": high}]) == {"b"}
    assert supported_best([{"a": low, "b": high}], higher_is_better=False) == {"a"}
    assert supported_best([{"a": low, "b": high, "c": close}]) == set()
    assert supported_best([{"a": low, "b": high}, {"c": low, "d": high}]) == set(), "corrected"


def test_best_is_not_supported_without_pairs():
    assert supported_best([{"a": by_seed(1), "b": by_seed(9)}]) == set(), "one seed"
    assert supported_best([{"a": {1: 0.0}, "b": {2: 1.0}}, {"c": by_seed(1, 2, 3)}]) == set()
    assert supported_best([]) == set()
