"""Aggregation functions against values by hand, NumPy, and a literal form of ARFL's equations."""

import os
import shutil

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from methods.toolkit import aggregation
from methods.toolkit.aggregation import (
    coordinate_median,
    fit_repeated_median,
    median,
    order_statistics,
    residual_reweighting,
    uniform_weights,
    weighted_mean,
)

# Five models with three coordinates.
MODELS = torch.tensor(
    [[0.10, 0.20, 0.15, 0.30, 5.0], [1, 2, 3, 4, 5], [-0.5, 0.4, 0.1, -0.2, 0.3]]
).T.contiguous()
ALL_TRAINABLE = 10**9


def random_models(num_models: int, width: int) -> torch.Tensor:
    return torch.from_numpy(
        np.random.default_rng(0).standard_normal((num_models, width)).astype(np.float32)
    )


def literal_reweighting(
    matrix: np.ndarray, interval: float, delta: float
) -> tuple[np.ndarray, np.ndarray]:
    """ARFL coordinate by coordinate, with explicit hat matrices, in float64."""
    num_models, width = matrix.shape
    corrected, scores = matrix.astype(np.float64).copy(), np.zeros(num_models)
    x = np.arange(num_models)
    design = np.stack([np.ones(num_models), x], 1)
    hat = design @ np.linalg.inv(design.T @ design) @ design.T
    for i in range(width):
        y = matrix[:, i].astype(np.float64)
        order = np.argsort(y, kind="stable")
        rank = np.argsort(order)
        s = y[order]
        slope = np.median([np.median([(s[a] - s[b]) / (a - b) for b in x if b != a]) for a in x])
        line = np.median(y) - slope * (num_models - 1) / 2 + slope * rank
        residual = y - line
        scale = (
            1.4826 * (1 + 5 / (num_models - 1)) * np.median(np.sort(np.abs(residual))[1:]) + 1e-7
        )
        e, g = residual / scale, np.sqrt(1 - np.diag(hat)[rank])
        bound = interval * np.sqrt(2 / num_models)
        confidence = np.array(
            [
                1.0 if r == 0 else np.clip(r / k, -bound, bound) * k / r
                for r, k in zip(e, g, strict=True)
            ]
        )
        scores += confidence * confidence.std(ddof=1)
        corrected[:, i] = np.where(confidence >= delta, y, line)
    return corrected, (scores / scores.max()) ** 2 / ((scores / scores.max()) ** 2).sum()


@pytest.mark.parametrize("size", range(1, 24))
def test_order_statistics_equal_sort(size):
    """Few distinct values make ties frequent."""
    rows = np.random.default_rng(size).integers(0, 6, (size, 200)).astype(np.float32)
    assert np.array_equal(
        np.stack(order_statistics(rows, tuple(range(size)))), np.sort(rows, axis=0)
    )
    assert np.array_equal(median(rows), np.median(rows, axis=0))
    if size > 1:
        assert np.array_equal(
            median(rows, num_dropped=1), np.median(np.sort(rows, axis=0)[1:], axis=0)
        )


def test_order_statistics_keep_their_input():
    rows = np.random.default_rng(0).random((7, 9))
    before = rows.copy()
    median(rows)
    assert np.array_equal(rows, before)


def test_median_of_example():
    assert torch.allclose(coordinate_median(MODELS), torch.tensor([0.2, 3.0, 0.1]))


def test_median_of_even_number_is_mean_of_middle_two():
    """The median of 1, 2, 4, 9 is 3. torch.median returns 2."""
    matrix = torch.tensor([[9.0], [1.0], [4.0], [2.0]])
    assert coordinate_median(matrix).item() == 3.0
    assert matrix.median(0).values.item() == 2.0


def test_median_over_several_blocks():
    matrix = random_models(10, 2 * aggregation.COLUMN_BLOCK_SIZE + 17)
    assert np.array_equal(coordinate_median(matrix).numpy(), np.median(matrix.numpy(), axis=0))


def test_fit_of_example():
    """First coordinate by hand. Sorted values: .1 .15 .2 .3 5.

    The median of the five inner medians of slopes is .075, the intercept .2 - 2 * .075 = .05.
    Residuals in the order of the models: .05 0 .025 .025 4.65. Without the smallest, their median
    is .0375, so the scale is 1.4826 * 2.25 * .0375 = .125094. The confidence of the last model is
    2 sqrt(2/5) sqrt(.4) * .125094 / 4.65 = .021522.
    """
    fit = fit_repeated_median(MODELS.numpy(), 2.0)
    ranks = np.array([[0, 2, 1, 3, 4], [0, 1, 2, 3, 4], [0, 4, 2, 1, 3]]).T
    expected_line = np.array([0.05, 1.0, -0.4]) + np.array([0.075, 1.0, 0.25]) * ranks
    assert np.allclose(fit.line, expected_line, atol=1e-6)
    assert np.allclose(
        fit.confidence, [[1, 1, 1], [1, 1, 1], [1, 1, 1], [1, 1, 1], [0.021522, 1, 1]], atol=1e-6
    )
    assert np.allclose(fit.spread, [0.437589, 0, 0], atol=1e-6)


def test_reweighting_of_example():
    """Scores .437589 (four models) and .021522 * .437589, squared and normalized."""
    corrected, weights = residual_reweighting(MODELS, 2.0, 0.1, ALL_TRAINABLE)
    assert np.allclose(weights, [0.249971] * 4 + [0.000116], atol=1e-6)
    assert torch.allclose(corrected[:, 0], torch.tensor([0.10, 0.20, 0.15, 0.30, 0.35]), atol=1e-6)
    assert torch.equal(corrected[:, 1:], MODELS[:, 1:])
    assert torch.allclose(
        weighted_mean(corrected, weights), torch.tensor([0.187519, 2.500289, -0.049959]), atol=1e-6
    )


@pytest.mark.parametrize(
    ("num_models", "factor", "roots"),
    [
        (5, 3.33585, [0.6325, 0.8367, 0.8944]),
        (10, 2.30627, [0.8090, 0.8669, 0.9079, 0.9342, 0.9471]),
    ],
)
def test_leverage(num_models, factor, roots):
    """sqrt(1 - h) of each rank, from confidences below 1.

    A narrow interval makes almost all of them smaller than 1. They then equal
    Z sqrt(1 - h) scale / |residual|.
    """
    y = np.random.default_rng(0).standard_normal((num_models, 100))
    fit = fit_repeated_median(y, 1e-3)
    residual = np.abs(y - fit.line)
    scale = factor * np.median(np.sort(residual, axis=0)[1:], axis=0)
    found = fit.confidence * residual / (1e-3 * np.sqrt(2 / num_models) * scale)
    rank = y.argsort(0).argsort(0)
    expected = np.array(roots)[np.minimum(rank, num_models - 1 - rank)]
    below = fit.confidence < 1
    assert below.mean() > 0.75
    assert np.allclose(found[below], expected[below], atol=1e-4)


@pytest.mark.parametrize("num_models", [4, 5, 9, 10])
@pytest.mark.parametrize("delta", [0.1, 0.5])
def test_reweighting_equals_literal_equations(num_models, delta):
    matrix = random_models(num_models, 40)
    matrix[0] *= 6
    corrected, weights = residual_reweighting(matrix, 2.0, delta, ALL_TRAINABLE)
    expected_corrected, expected_weights = literal_reweighting(matrix.numpy(), 2.0, delta)
    assert np.allclose(corrected.numpy(), expected_corrected, atol=2e-5)
    assert np.allclose(weights, expected_weights, atol=2e-5)


def test_reweighting_is_independent_of_threads_and_keeps_its_input(monkeypatch):
    matrix = random_models(10, 3 * aggregation.COLUMN_BLOCK_SIZE + 5)
    before = matrix.clone()
    results = []
    for cores in (1, 4):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, cores=cores: set(range(cores)))
        results.append(residual_reweighting(matrix, 2.0, 0.1, ALL_TRAINABLE))
    assert torch.equal(results[0][0], results[1][0])
    assert np.array_equal(results[0][1], results[1][1])
    assert torch.equal(matrix, before)


def test_blocks_change_rounding_only(monkeypatch):
    matrix = random_models(6, 1000)
    whole = residual_reweighting(matrix, 2.0, 0.1, 900)
    monkeypatch.setattr(aggregation, "COLUMN_BLOCK_SIZE", 64)
    parts = residual_reweighting(matrix, 2.0, 0.1, 900)
    assert torch.equal(whole[0], parts[0])
    assert np.allclose(whole[1], parts[1], atol=1e-12)


@given(st.permutations(range(7)))
@settings(max_examples=20)
def test_reweighting_is_equivariant_to_model_order(order):
    matrix = random_models(7, 200)
    matrix[3] += 2
    straight, permuted = (
        residual_reweighting(matrix, 2.0, 0.1, 150),
        residual_reweighting(matrix[order], 2.0, 0.1, 150),
    )
    assert np.allclose(permuted[1], straight[1][order], atol=1e-6)
    assert torch.allclose(permuted[0], straight[0][order])


def test_equal_models_get_uniform_weights():
    matrix = random_models(1, 300).repeat(6, 1)
    corrected, weights = residual_reweighting(matrix, 2.0, 0.1, 200)
    assert np.array_equal(weights, uniform_weights(6))
    assert torch.equal(weighted_mean(corrected, weights), matrix[0])


def test_outlier_loses_its_weight():
    matrix = random_models(10, 500) * 0.01
    matrix[4] += 1e3
    corrected, weights = residual_reweighting(matrix, 2.0, 0.1, ALL_TRAINABLE)
    assert weights[4] < 1e-3
    others = torch.cat([matrix[:4], matrix[5:]])
    assert (weighted_mean(corrected, weights) - others.mean(0)).abs().max() < 0.05


def test_largest_float_does_not_overflow():
    matrix = random_models(5, 100)
    matrix[2] = torch.finfo(torch.float32).max
    corrected, weights = residual_reweighting(matrix, 2.0, 0.1, ALL_TRAINABLE)
    assert torch.isfinite(weighted_mean(corrected, weights)).all()
    assert weights[2] < 1e-3


@pytest.mark.parametrize("num_models", [1, 2])
def test_fewer_than_three_models_get_uniform_weights(num_models):
    matrix = random_models(num_models, 20)
    corrected, weights = residual_reweighting(matrix, 2.0, 0.1, ALL_TRAINABLE)
    assert torch.equal(corrected, matrix)
    assert np.array_equal(weights, uniform_weights(num_models))


@pytest.mark.parametrize(("num_trainable", "smallest"), [(1, -1.0), (0, 1.0)])
def test_corrected_buffers_stay_above_models_minimum(num_trainable, smallest):
    """Values 1 1 3 5 7 9 11 give the line -1 1 3 5 7 9 11.

    All residuals but the first are 0, so the first value is replaced by -1. This is valid for a
    weight, but not for a variance, which is clamped to 1.
    """
    corrected, _ = residual_reweighting(
        torch.tensor([[1.0], [1.0], [3.0], [5.0], [7.0], [9.0], [11.0]]), 2.0, 0.1, num_trainable
    )
    assert corrected.min().item() == pytest.approx(smallest)


@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ on this machine")
@pytest.mark.parametrize("num_models", [3, 6, 9, 10])
def test_compiled_reweighting_equals_numpys(num_models, monkeypatch):
    """Integers make ties frequent. The last column is a multiple of no vector length."""
    matrix = random_models(num_models, aggregation.COLUMN_BLOCK_SIZE + 37)
    matrix[:, ::2] = (3 * matrix[:, ::2]).round()
    matrix[0] *= 6
    matrix[:, 5] = 0.25
    matrix[1, 6] = torch.finfo(torch.float32).max
    results = []
    for size in (matrix.numel() + 1, matrix.numel()):
        monkeypatch.setattr(aggregation, "MIN_COMPILED_SIZE", size)
        results.append(residual_reweighting(matrix, 2.0, 0.1, aggregation.COLUMN_BLOCK_SIZE))
    assert aggregation._compiled_reweight(num_models) is not None
    assert torch.equal(results[0][0], results[1][0])
    # Sums of scores are in another order. With three models, the largest float overflows.
    assert np.allclose(results[0][1], results[1][1], rtol=1e-14, atol=0, equal_nan=True)


def test_reweighting_without_a_compiler_uses_numpy(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setattr(aggregation, "MIN_COMPILED_SIZE", 0)
    for function in (aggregation._compiled_reweight, aggregation.load_library):
        function.cache_clear()
    corrected, _ = residual_reweighting(random_models(5, 40), 2.0, 0.1, ALL_TRAINABLE)
    assert torch.isfinite(corrected).all()
    aggregation._compiled_reweight.cache_clear()
