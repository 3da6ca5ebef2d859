"""Aggregation of client models: pure functions of an (M, P) matrix, one row per model."""

import ctypes
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from methods.core.errors import UserError
from methods.core.machine import available_cores
from methods.toolkit.native import load_library

MIN_COMPILED_SIZE = 1 << 22  # values of all models; below this, compilation takes longer
MAX_COMPILED_MODELS = 32
# Fits in the CPU cache. Constant, because it affects rounding: threads must not change results.
COLUMN_BLOCK_SIZE = 1 << 12
Rows = Sequence[np.ndarray] | np.ndarray
T = TypeVar("T")


def weighted_mean(matrix: Tensor, weights: np.ndarray) -> Tensor:
    """Sum_m weights_m * matrix_m, row by row in float64, so threads do not affect the result."""
    total = torch.zeros(matrix.shape[1], dtype=torch.float64)
    for row, weight in zip(matrix, weights, strict=True):
        total.add_(row, alpha=float(weight))
    return total.to(matrix.dtype)


def uniform_weights(num_models: int) -> np.ndarray:
    return np.full(num_models, 1.0 / num_models)


def coordinate_median(matrix: Tensor) -> Tensor:
    """Median of each column. For an even number of models, the mean of the two middle values."""
    values = matrix.numpy()
    blocks = _map_column_blocks(lambda columns: median(values[:, columns]), values.shape[1])
    return torch.from_numpy(np.concatenate(blocks))


def residual_reweighting(
    matrix: Tensor, interval: float, delta: float, num_trainable: int
) -> tuple[Tensor, np.ndarray]:
    """Models with extreme values replaced, (M, P), and model weights, (M,), of ARFL (2019).

    Fewer than three models, and models that are equal, get uniform weights. A corrected value is a
    point on the fitted line and can be below all models. Columns from `num_trainable` on hold
    batch-norm variances, which must not become negative: they are clamped to the models' minimum.
    """
    num_models, width = matrix.shape
    if num_models < 3:
        return matrix, uniform_weights(num_models)
    values = matrix.numpy()
    corrected = np.empty_like(values)

    def work_in_numpy(columns: slice) -> np.ndarray:
        y = values[:, columns].copy()
        fit = fit_repeated_median(y, interval)
        block = np.where(fit.confidence >= delta, y, fit.line)
        first_buffer = max(num_trainable - columns.start, 0)
        block[:, first_buffer:] = np.maximum(block[:, first_buffer:], y[:, first_buffer:].min(0))
        corrected[:, columns] = block
        return np.asarray((fit.confidence * fit.spread).sum(1, dtype=np.float64))

    def work_in_cpp(columns: slice) -> np.ndarray:
        scores, first_buffer = np.zeros(num_models), num_trainable - columns.start
        addresses = [array[:, columns].ctypes.data for array in (values, corrected)]
        sizes = (width, columns.stop - columns.start, first_buffer)
        constants = np.array([*_constants(num_models, interval), delta], np.float32)
        reweight(addresses[0], *sizes, constants.ctypes.data, addresses[1], scores.ctypes.data)
        return scores

    reweight: Any = _compiled_reweight(num_models) if values.size >= MIN_COMPILED_SIZE else None
    work = work_in_cpp if reweight else work_in_numpy
    scores = np.sum(_map_column_blocks(work, width), axis=0)
    if scores.max() == 0:
        return torch.from_numpy(corrected), uniform_weights(num_models)
    squared = (scores / scores.max()) ** 2
    return torch.from_numpy(corrected), squared / squared.sum()


@cache
def _compiled_reweight(num_models: int) -> Any:
    """The function of residuals.cpp. None without a compiler, or if it would be long."""
    source, options = Path(__file__).with_name("residuals.cpp"), ("-ffp-contract=off",)
    try:
        if num_models > MAX_COMPILED_MODELS:
            return None
        library = load_library(source, *options, "-fno-math-errno", f"-DMODELS={num_models}")
    except UserError:
        return None
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    library.reweight.argtypes = [pointer, number, number, number, pointer, pointer, pointer]
    library.reweight.restype = None
    return library.reweight


class ResidualFit(NamedTuple):
    """Result of `fit_repeated_median` for n coordinates of M models."""

    line: np.ndarray  # (M, n) value of the fitted line at each model's rank
    confidence: np.ndarray  # (M, n) in (0, 1]
    spread: np.ndarray  # (n,) standard deviation of the confidence over the models


def fit_repeated_median(y: np.ndarray, interval: float) -> ResidualFit:
    """Fit a line to each column's sorted values against their ranks r, by repeated medians.

    The diagonal of the hat matrix is h = 1/M + (r - (M-1)/2)^2 / (M (M^2-1) / 12). The residual e
    is in units of a robust scale, a median without the smallest residual. The confidence of a model
    is min(1, Z sqrt(1-h) / |e|) with Z = interval sqrt(2/M).
    """
    size, center = len(y), (len(y) - 1) / 2
    # A model at 1e38 is finite, but its distance to another model may overflow.
    with np.errstate(over="ignore", invalid="ignore"):
        ordered = np.stack(order_statistics(y, tuple(range(size))))
        rank = _ranks(y)
        # median_a median_{b != a} (y_b - y_a) / (b - a)
        ranks = range(size)
        slopes = ([(ordered[b] - ordered[a]) / (b - a) for b in ranks if b != a] for a in ranks)
        slope = median([median(row) for row in slopes])
        intercept = median(ordered) - slope * center
        line = intercept + slope * rank
        residual = np.abs(y - line)
        scale_factor, offset, limit_factor, leverage_factor = _constants(size, interval)
        scale = scale_factor * median(residual, num_dropped=1) + offset
        leverage = 1 / size + (rank - center) ** 2 * leverage_factor
        limit = limit_factor * scale * np.sqrt(1 - leverage)
        confidence = limit / np.maximum(residual, limit)
    return ResidualFit(line, confidence, confidence.std(0, ddof=1))


def _constants(size: int, interval: float) -> tuple[float, float, float, float]:
    """Factor and offset of the scale, factor of the limit, factor of the leverage."""
    scale = 1.4826 * (1 + 5 / (size - 1))
    return scale, 1e-7, interval * (2 / size) ** 0.5, 12 / (size * (size**2 - 1))


def _ranks(y: np.ndarray) -> np.ndarray:
    """Rank of each model in its column, from 0. Of equal values, the later model ranks higher."""
    rank = np.empty(y.shape, dtype=np.int16)
    # Initially each model ranks above all later models.
    rank[:] = np.arange(len(y) - 1, -1, -1, dtype=np.int16)[:, None]
    for a in range(len(y)):
        for b in range(a):
            above = y[a] >= y[b]
            rank[a] += above
            rank[b] -= above
    return rank.astype(y.dtype)


def median(rows: Rows, num_dropped: int = 0) -> np.ndarray:
    """Median, or mean of two middle values, over the first axis without the smallest values."""
    count = len(rows) - num_dropped
    low, high = num_dropped + (count - 1) // 2, num_dropped + count // 2
    middle = order_statistics(rows, (low, high))
    return middle[0] if low == high else (middle[0] + middle[1]) / 2


def order_statistics(rows: Rows, wanted: tuple[int, ...]) -> list[np.ndarray]:
    """The wanted order statistics over the first axis."""
    # A sorting network acts on all columns at once, ten times faster than sorting short columns.
    wires = list(rows)
    for low, high, keep_low, keep_high in _comparators(len(rows), wanted):
        a, b = wires[low], wires[high]
        if keep_low:
            wires[low] = np.minimum(a, b)
        if keep_high:
            wires[high] = np.maximum(a, b)
    return [wires[k] for k in wanted]


@cache
def _comparators(size: int, wanted: tuple[int, ...]) -> list[tuple[int, int, bool, bool]]:
    """Batcher's merge-exchange network (Knuth, vol. 3, 5.2.2 M), pruned to the wanted outputs."""
    network = []
    p = top = (1 << (size - 1).bit_length()) // 2
    while p:
        q, r, d = top, 0, p
        while d:
            network += [(i, i + d) for i in range(size - d) if i & p == r]
            q, r, d = q // 2, p, q - p
        p //= 2
    needed, kept = set(wanted), []
    for low, high in reversed(network):
        if low in needed or high in needed:
            kept.append((low, high, low in needed, high in needed))
            needed |= {low, high}
    return kept[::-1]


def _map_column_blocks(work: Callable[[slice], T], width: int) -> list[T]:
    """Apply `work` to consecutive column blocks, in threads. Results are in the blocks' order."""
    starts = range(0, width, COLUMN_BLOCK_SIZE)
    blocks = [slice(start, min(start + COLUMN_BLOCK_SIZE, width)) for start in starts]
    with ThreadPoolExecutor(available_cores()) as pool:
        return list(pool.map(work, blocks))
