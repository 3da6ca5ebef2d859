"""Pure functions of an (M, P) matrix of client models."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

BLOCK = (
    1 << 12
)  # columns at a time: scratch stays in the cache. A constant, so that sums do not depend on the number of threads
Rows = Sequence[np.ndarray] | np.ndarray
T = TypeVar("T")


def weighted_mean(matrix: Tensor, weights: np.ndarray) -> Tensor:
    """Sum_m weights_m * matrix_m, accumulated row by row in float64 so that the result does not depend on the number of threads."""
    total = torch.zeros(matrix.shape[1], dtype=torch.float64)
    for row, weight in zip(matrix, weights, strict=True):
        total.add_(row, alpha=float(weight))
    return total.to(matrix.dtype)


def uniform(num_models: int) -> np.ndarray:
    """The weights of a plain mean."""
    return np.full(num_models, 1.0 / num_models)


def coordinate_median(matrix: Tensor) -> Tensor:
    """Median of every column; for an even number of models the mean of the two middle values (torch.median takes the lower one)."""
    values = matrix.numpy()
    result = np.empty_like(values, shape=values.shape[1])

    def work(columns: slice) -> None:
        result[columns] = median(values[:, columns])

    _in_blocks(work, len(result))
    return torch.from_numpy(result)


class Reweighted(NamedTuple):
    matrix: Tensor  # (M, P) the models, extreme values replaced
    weights: np.ndarray  # (M,), sums to 1


def residual_reweighting(
    matrix: Tensor, interval: float, delta: float, num_trainable: int
) -> Reweighted:
    """Model weights and corrected values of ARFL (Fu et al., 2019) from the residuals of all coordinates.

    Fewer than three models have no residuals, and models that agree everywhere have no spread: both get uniform weights. A corrected value
    is a point of the fitted line and may lie below every model; behind `num_trainable` come batch-norm variances, which must not become
    negative, so there it is held at or above the smallest of the models' own values.
    """
    num_models, width = matrix.shape
    if num_models < 3:
        return Reweighted(matrix, uniform(num_models))
    values = matrix.numpy()
    corrected = np.empty_like(values)

    def work(columns: slice) -> np.ndarray:
        y = values[:, columns].copy()
        fit = residual_fit(y, interval)
        part = np.where(fit.confidence >= delta, y, fit.line)
        first_buffer = max(num_trainable - columns.start, 0)
        part[:, first_buffer:] = np.maximum(part[:, first_buffer:], y[:, first_buffer:].min(0))
        corrected[:, columns] = part
        return (fit.confidence * fit.spread).sum(1, dtype=np.float64)

    scores = np.sum(_in_blocks(work, width), axis=0)
    if scores.max() == 0:
        return Reweighted(torch.from_numpy(corrected), uniform(num_models))
    squared = (scores / scores.max()) ** 2
    return Reweighted(torch.from_numpy(corrected), squared / squared.sum())


class ResidualFit(NamedTuple):
    """Of n coordinates of M models."""

    slope: np.ndarray  # (n,) of the repeated-median line through the sorted values
    intercept: np.ndarray  # (n,)
    line: np.ndarray  # (M, n) the line at each model's rank
    confidence: np.ndarray  # (M, n) in (0, 1]
    spread: np.ndarray  # (n,) standard deviation of the confidence over the models: a coordinate on which all agree says nothing


def residual_fit(y: np.ndarray, interval: float) -> ResidualFit:
    """Repeated-median line through each column's sorted values against their ranks r, and the confidence that a model's residual leaves.

    The diagonal of the hat matrix depends on the rank alone: h = 1/M + (r - (M-1)/2)^2 / (M (M^2-1) / 12). With the residual e in units of a
    robust scale (a median that leaves out the smallest residual) the confidence is min(1, Z sqrt(1-h) / |e|), Z = interval sqrt(2/M).
    """
    size, centre = len(y), (len(y) - 1) / 2
    with np.errstate(
        over="ignore", invalid="ignore"
    ):  # a model at 1e38 is finite, its distance to another may not be
        ordered = np.stack(order_statistics(y, tuple(range(size))))
        rank = _ranks(y)
        slope = _repeated_median_slope(ordered)
        intercept = median(ordered) - slope * centre
        line = intercept + slope * rank
        residual = np.abs(y - line)
        scale = 1.4826 * (1 + 5 / (size - 1)) * median(residual, leave_out=1) + 1e-7
        leverage = 1 / size + (rank - centre) ** 2 * (12 / (size * (size**2 - 1)))
        reach = interval * (2 / size) ** 0.5 * scale * np.sqrt(1 - leverage)
        confidence = reach / np.maximum(residual, reach)
    return ResidualFit(slope, intercept, line, confidence, confidence.std(0, ddof=1))


def _repeated_median_slope(ordered: np.ndarray) -> np.ndarray:
    """median_a median_{b != a} (y_b - y_a) / (b - a) of each column."""
    size = len(ordered)
    return median(
        [
            median([(ordered[b] - ordered[a]) / (b - a) for b in range(size) if b != a])
            for a in range(size)
        ]
    )


def _ranks(y: np.ndarray) -> np.ndarray:
    """Rank of each model within its column, from 0; of equal values the later model has the higher rank."""
    size = len(y)
    rank = np.repeat(np.arange(size - 1, -1, -1, dtype=np.int16), y.shape[1]).reshape(
        y.shape
    )  # as if every later model were the smaller one
    for a in range(size):
        for b in range(a):
            above = y[a] >= y[b]
            rank[a] += above
            rank[b] -= above
    return rank.astype(y.dtype)


def median(rows: Rows, leave_out: int = 0) -> np.ndarray:
    """Median over the first axis, without the `leave_out` smallest; the mean of the two middle values where their number is even."""
    low, high = (
        leave_out + (len(rows) - leave_out - 1) // 2,
        leave_out + (len(rows) - leave_out) // 2,
    )
    middle = order_statistics(rows, (low, high))
    return middle[0] if low == high else (middle[0] + middle[1]) / 2


def order_statistics(rows: Rows, wanted: tuple[int, ...]) -> list[np.ndarray]:
    """The wanted order statistics over the first axis, each over all columns at once: ten times faster than a sort of every short column."""
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
    """Batcher's merge-exchange sorting network (Knuth, vol. 3, 5.2.2 M) without what the wanted outputs do not need."""
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


def _in_blocks(work: Callable[[slice], T], width: int) -> list[T]:
    """Apply `work` to consecutive blocks of columns on all cores; results in the order of the blocks. numpy lets threads run side by side."""
    blocks = [slice(start, min(start + BLOCK, width)) for start in range(0, width, BLOCK)]
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        return list(pool.map(work, blocks))
