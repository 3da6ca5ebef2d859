"""Schedules over rounds."""

import numpy as np
import pytest

from methods.core.task import TaskSpec
from methods.toolkit.schedules import forget_rate, num_kept, ramp, rounds_from_fraction


def spec(rounds):
    return TaskSpec("mnist", (1, 28, 28), 10, 100, 10, rounds * 10, 128, 1)


@pytest.mark.parametrize(
    ("fraction", "rounds", "expected"),
    [
        (0.1, 100, 10),
        (0.2, 100, 20),
        (0.4, 100, 40),
        (0.25, 400, 100),
        (0.25, 40, 10),
        (0.3, 8, 2),
        (0.0, 100, 0),
    ],
)
def test_fraction_of_rounds(fraction, rounds, expected):
    assert rounds_from_fraction(fraction, spec(rounds)) == expected


def test_ramp():
    assert [ramp(r, 4) for r in (0, 1, 3, 4, 9)] == [0.0, 0.25, 0.75, 1.0, 1.0]
    assert ramp(0, 0) == 1.0


@pytest.mark.parametrize("length", [0, 1, 2, 10])
def test_forget_rate_equals_released_schedule(length):
    """Co-teaching's code uses linspace(0, tau, T_k) in the first T_k steps, then tau."""
    expected = np.concatenate([np.linspace(0, 0.45, length), np.full(20 - length, 0.45)])
    assert [forget_rate(r, length, 0.45) for r in range(20)] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("size", "rate", "kept"),
    [(10, 0.0, 10), (10, 0.9, 1), (10, 0.7, 3), (128, 0.2, 102), (1, 0.5, 1), (3, 0.4, 1)],
)
def test_num_kept(size, rate, kept):
    assert num_kept(size, rate) == kept
