"""Mixup against values by hand."""

import numpy as np
import pytest
import torch

from methods.toolkit.mixup import mix, sample_lambda


def test_mix_by_hand():
    """lambda = .25: .25 * 4 + .75 * 8 = 7, .25 * 8 + .75 * 4 = 5. The third is its own partner."""
    x, y = torch.tensor([[4.0], [8.0], [1.0]]), torch.eye(3)
    mixed_x, mixed_y = mix(x, y, 0.25, torch.tensor([1, 0, 2]))
    assert mixed_x.tolist() == [[7.0], [5.0], [1.0]]
    assert mixed_y.tolist() == [[0.25, 0.75, 0.0], [0.75, 0.25, 0.0], [0.0, 0.0, 1.0]]


def test_lambda_one_changes_nothing():
    x, y = torch.rand(5, 3, 4, 4), torch.eye(5)
    mixed_x, mixed_y = mix(x, y, 1.0, torch.tensor([4, 3, 2, 1, 0]))
    assert torch.equal(mixed_x, x)
    assert torch.equal(mixed_y, y)


def test_sampled_lambda_has_beta_moments():
    """Beta(a, a) has mean 1/2 and variance 1 / (4 (2a + 1)): 1/12 for a = 1, 1/36 for a = 4."""
    for alpha, variance in ((1.0, 1 / 12), (4.0, 1 / 36)):
        rng = np.random.default_rng(0)
        samples = np.array([sample_lambda(alpha, rng) for _ in range(4000)])
        assert samples.mean() == pytest.approx(0.5, abs=0.02)
        assert samples.var() == pytest.approx(variance, rel=0.1)
    assert sample_lambda(0.0, np.random.default_rng(0)) == 1.0
