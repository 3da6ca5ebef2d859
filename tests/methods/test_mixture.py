"""Two-component Gaussian mixtures."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from methods.toolkit.mixture import split_by_gmm


def test_components_are_found_and_ordered():
    rng = np.random.default_rng(0)
    values = np.concatenate([rng.normal(8, 0.5, 60), rng.normal(2, 1.0, 140)])
    found = split_by_gmm(values, seed=1)
    assert found.is_high.tolist() == [True] * 60 + [False] * 140
    assert found.means == pytest.approx([2.0, 8.0], abs=0.2)
    assert np.sqrt(found.variances) == pytest.approx([1.0, 0.5], abs=0.15)
    assert found.weights == pytest.approx([0.7, 0.3], abs=0.01)
    assert np.array_equal(found.posterior_low < 0.5, found.is_high)


@pytest.mark.parametrize("values", [[], [3.0], [2.0] * 9, [1.0, 1.0 + 1e-9], [0.0, 0.0, 0.0, 1e-9]])
def test_too_few_or_equal_values_are_not_split(values):
    found = split_by_gmm(np.array(values), seed=1)
    assert not found.is_high.any()
    assert len(found.is_high) == len(found.posterior_low) == len(values)
    assert (found.posterior_low == 1).all()
    assert np.isfinite(found.means).all()
    assert found.weights.tolist() == [1.0, 0.0]


def test_two_values_are_split():
    assert split_by_gmm(np.array([5.0, 1.0]), seed=1).is_high.tolist() == [True, False]


def test_options_reach_the_fit_without_warning():
    """Values 0 (three times) and 1: each component is a point, so its variance is reg_covar."""
    values = np.array([0.0, 0.0, 0.0, 1.0])
    assert split_by_gmm(values, seed=1).variances == pytest.approx([1e-6, 1e-6])
    assert split_by_gmm(
        values, seed=1, max_iter=1, tol=1e-12, reg_covar=5e-4
    ).variances == pytest.approx([5e-4, 5e-4])


def test_seed_above_32_bits():
    values = np.array([1.0, 2.0, 8.0, 9.0])
    assert (
        split_by_gmm(values, seed=2**32 + 1).is_high.tolist()
        == split_by_gmm(values, seed=1).is_high.tolist()
        == [False, False, True, True]
    )


@settings(max_examples=30)
@given(st.lists(st.floats(-100, 100, width=16), max_size=12), st.integers(0, 3))
def test_result_is_valid_for_any_values(values, seed):
    found = split_by_gmm(np.array(values), seed)
    assert found.is_high.shape == (len(values),)
    assert found.means[0] <= found.means[1]
    assert ((found.posterior_low >= 0) & (found.posterior_low <= 1)).all()
    assert (found.variances >= 0).all()
    assert found.weights.sum() == pytest.approx(1.0)
