"""Statistics against values derived by hand. The derivations are in the docstrings."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from reports.frame.statistics import (
    Pairs,
    Repair,
    bootstrap_interval,
    corrected_tests,
    critical_difference,
    damage_repaired,
    pair,
    ranking,
    sample_std,
    sign_flip_test,
    sign_test,
)


def test_mean_and_standard_deviation():
    """Mean 10 / 4; squares 2.25 + 0.25 + 0.25 + 2.25 = 5, divided by 3."""
    assert sample_std([1, 2, 3, 4]) == pytest.approx(math.sqrt(5 / 3))
    assert sample_std([7.0]) is None


def test_bootstrap_interval_of_two_values():
    """Means of two samples from {0, 1} are 0, 1/2, 1 with probabilities 1/4, 1/2, 1/4.

    The quantiles 0.025 and 0.975 are 0 and 1. At confidence 0.4, the quantiles 0.3 and 0.7 are 1/2.
    """
    assert bootstrap_interval([0, 1]) == (0.0, 1.0)
    assert bootstrap_interval([0, 1], confidence=0.4) == (0.5, 0.5)
    assert bootstrap_interval([3.0, 3.0, 3.0]) == (3.0, 3.0)
    assert bootstrap_interval([3.0]) == ()


def test_bootstrap_is_seeded():
    values = [0.1, 0.5, 0.7, 1.9]
    assert bootstrap_interval(values) == bootstrap_interval(values)
    assert bootstrap_interval(values, resamples=100, seed=1) != bootstrap_interval(
        values, resamples=100, seed=2
    )


def test_bootstrap_equals_explicit_resampling():
    """Resample by indices of the same generator, then take quantiles of the means."""
    values = np.array([0.1, 0.5, 0.7, 1.9])
    index = np.random.default_rng(3).integers(4, size=(500, 4))
    low, high = np.quantile(values[index].mean(axis=1), [0.025, 0.975])
    assert bootstrap_interval(values.tolist(), resamples=500, seed=3) == pytest.approx((low, high))


def test_pairs_require_the_same_seed_and_scenario():
    values = {(1, "a"): 50.0, (2, "b"): 60.0, (3, "c"): 70.0}
    baseline = {(1, "a"): 48.0, (2, "other"): 61.0, (4, "d"): 40.0}
    pairs = pair(values, baseline)
    assert pairs.differences == {1: 2.0}
    assert pairs.unpaired == (
        "seed 2 has two scenarios, b and other",
        "seed 3 has no run of the baseline",
        "seed 4 has no run",
    )


@pytest.mark.parametrize(
    ("differences", "p"),
    [
        ([1, 2, 3, 4, 5], 2 / 32),  # all five signs agree: 1 of 32 cases on each side
        ([1, 2, 3, 4, -5], 12 / 32),  # one or no negative sign: 5 + 1 cases on each side
        ([1, 2, 3, 4, 5, 0], 2 / 32),  # the tie is dropped
        ([1, -1], 1.0),
        ([0, 0], 1.0),
        ([], 1.0),
    ],
)
def test_sign_test(differences, p):
    assert sign_test(differences) == p


@pytest.mark.parametrize(
    ("differences", "p"),
    [
        ([1, 2, 3], 2 / 8),  # sums of all flips: 6 4 2 0 0 -2 -4 -6; two reach |6|
        ([3, 2, -1], 4 / 8),  # the same sums; four reach |4|
        ([0.1, 0.2, -0.3], 1.0),  # the sum is 0 up to rounding
        ([5.0], 1.0),
        ([], 1.0),
    ],
)
def test_sign_flip_test(differences, p):
    assert sign_flip_test(differences) == p


def test_sign_flip_test_of_many_pairs_is_sampled():
    """With 30 equal differences, 2 of 2^30 flips are as extreme: the smallest sampled p-value."""
    assert sign_flip_test([1.0] * 30) == pytest.approx(1 / 100_001)
    mixed = [(-1.0) ** k * k for k in range(25)]
    assert sign_flip_test(mixed) == sign_flip_test(mixed)


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=10))
def test_p_is_smallest_if_all_signs_agree(differences):
    assert (
        sign_test(differences)
        == 2 / 2 ** len(differences)
        == pytest.approx(sign_flip_test(differences))
    )


def verdicts(*differences: list[float]) -> list[str]:
    """Results in words of comparisons that are corrected for each other."""
    pairs = {key: Pairs(dict(enumerate(one)), ()) for key, one in enumerate(differences)}
    return [verdict for _, verdict in corrected_tests(pairs).values()]


@pytest.mark.parametrize(
    ("differences", "verdict"),
    [
        ([], "no paired seeds"),
        ([1.0], "not enough seeds: 1 of at least 6"),
        ([1.0, 2.0, 3.0], "not enough seeds: 3 of at least 6"),
        ([1, 2, 3, 4, 5, 6], "higher than the baseline (p = 0.031, 6 pairs)"),
        ([-1, -2, -3, -4, -5, -6], "lower than the baseline (p = 0.031, 6 pairs)"),
        ([1, -1, 1, -1, 1, -1], "no significant difference (p = 1, 6 pairs)"),
    ],
)
def test_verdict_text(differences, verdict):
    """2 / 2^5 = 0.0625 is above 0.05, 2 / 2^6 = 0.03125 is not."""
    assert verdicts(differences) == [verdict]


def test_verdict_is_corrected_for_other_comparisons():
    """2 * 2 / 2^6 = 0.0625 is too large; 2 * 2 / 2^7 = 0.03125 is not."""
    six, seven = [1.0] * 6, [1.0] * 7
    assert verdicts(six, six) == ["not enough seeds: 6 of at least 7"] * 2
    assert verdicts(seven, seven) == ["higher than the baseline (p = 0.031, 7 pairs)"] * 2


def test_ranks_that_agree_in_all_settings():
    """Ranks 1 2 3 in 3 settings: between 3 (1 + 0 + 1) = 6, total 6, so 3 * 2 * 6 / 6 = 6.

    With two degrees of freedom p = exp(-6 / 2).
    """
    found = ranking([[90, 80, 70], [60, 50, 40], [99, 98, 97]])
    assert found.ranks == (1.0, 2.0, 3.0) and found.num_settings == 3
    assert found.chi_square == pytest.approx(6.0) and found.p == pytest.approx(math.exp(-3))
    assert ranking([[90, 80, 70], [60, 50, 40]], higher_is_better=False).ranks == (3.0, 2.0, 1.0)


def test_ranks_with_ties():
    """Ranks 1.5 1.5 3 and 1 2.5 2.5, averages 1.25 2 2.75.

    Between 2 (0.5625 + 0.5625) = 2.25, total 1.5 + 1.5 = 3, so the statistic is
    2 * 2 * 2.25 / 3 = 3 and p = exp(-1.5).
    """
    table = [[1, 1, 0], [1, 0, 0]]
    found = ranking(table)
    assert found.ranks == (1.25, 2.0, 2.75)
    assert found.chi_square == pytest.approx(3.0) and found.p == pytest.approx(math.exp(-1.5))
    assert found.chi_square == pytest.approx(stats.friedmanchisquare(*np.array(table).T).statistic)


def test_no_test_for_one_setting_or_all_tied():
    assert ranking([[2, 1]]).p is None
    assert ranking([[1, 1], [2, 2]]).chi_square is None


@pytest.mark.parametrize(
    ("methods", "q"), [(2, 1.960), (3, 2.343), (4, 2.569), (5, 2.728), (10, 3.164)]
)
def test_critical_difference_equals_published_values(methods, q):
    """Demsar 2006, Table 5(a), alpha 0.05; section 3.2.2 has 1.25 for 14 datasets, 4 methods."""
    settings = 6
    assert critical_difference(methods, settings) == pytest.approx(
        q * math.sqrt(methods * (methods + 1) / (6 * settings)), abs=6e-4 * methods
    )
    assert round(critical_difference(4, 14), 2) == 1.25


def test_damage_repaired_is_a_ratio_of_means():
    """Gains 30 and 10 of damages 40 and 20: 40 / 60, whichever seeds are resampled 1/2 to 3/4."""
    found = damage_repaired([[(70, 40, 80), (50, 40, 60)]])
    assert found.share == pytest.approx(2 / 3) and found.interval == (0.5, 0.75)
    assert damage_repaired([[(40, 40, 80)] * 3]) == Repair(0.0, (0.0, 0.0)), "FedAvg itself"
    assert damage_repaired([[(30, 40, 80)]]) == Repair(-0.25, ()), "no interval for one seed"


def test_damage_over_settings_is_averaged_within_each_setting():
    """Mean gains 20 and 5, mean damages 40 and 10, although the second setting has more seeds."""
    settings = [[(60, 40, 80)], [(5, 0, 10)] * 3]
    assert damage_repaired(settings) == Repair(0.5, ())
    several = damage_repaired([[(60, 40, 80), (80, 40, 80)], [(5, 0, 10)] * 3])
    assert several.share == pytest.approx(35 / 50)
    assert several.interval == pytest.approx((25 / 50, 45 / 50))


def test_damage_repaired_needs_damage():
    assert damage_repaired([[(50, 40, 40)]]) is None
    assert damage_repaired([[(50, 40, 30)]]) is None
    assert damage_repaired([[(50, 40, 35), (50, 40, 60)]]) is None, "interval of damage has 0"
    assert damage_repaired([]) is None and damage_repaired([[(50, 40, 60)], []]) is None
