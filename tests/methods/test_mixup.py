"""Mixup against values by hand."""

import numpy as np
import pytest
import torch

from methods.toolkit.mixup import batch_sizes, draw, mix, sample_lambda


def test_mix_by_hand():
    """lambda = .25: .25 * 4 + .75 * 8 = 7, .25 * 8 + .75 * 4 = 5. The third is its own partner."""
    x, y = torch.tensor([[4.0], [8.0], [1.0]]), torch.eye(3)
    partners = torch.tensor([1, 0, 2])
    mixed_x, mixed_y = (mix(values, 0.25, partners) for values in (x, y))
    assert mixed_x.tolist() == [[7.0], [5.0], [1.0]]
    assert mixed_y.tolist() == [[0.25, 0.75, 0.0], [0.75, 0.25, 0.0], [0.0, 0.0, 1.0]]


def test_lambda_one_changes_nothing():
    x, y = torch.rand(5, 3, 4, 4), torch.eye(5)
    partners = torch.tensor([4, 3, 2, 1, 0])
    mixed_x, mixed_y = (mix(values, 1.0, partners) for values in (x, y))
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


def test_draws_of_an_epoch():
    """Each batch has one lambda and a permutation of its rows, from the streams in their order."""
    sizes = batch_sizes(23, 10)
    assert sizes == [10, 10, 3]
    lam, partners, rows = draw(sizes, 2.0, np.random.default_rng(0), generator())
    rng, order, start = np.random.default_rng(0), generator(), 0
    for size in sizes:
        batch = slice(start, start + size)
        assert lam[batch].tolist() == [pytest.approx(sample_lambda(2.0, rng))] * size
        expected = torch.randperm(size, generator=order)
        assert torch.equal(partners[batch], expected) and torch.equal(rows[batch], start + expected)
        start += size


def test_lambda_of_each_row():
    values = torch.rand(3, 2, 2, generator=generator())
    lam, partners = torch.tensor([0.25, 1.0, 0.5]), torch.tensor([2, 0, 1])
    for row, mixed in enumerate(mix(values, lam, partners)):
        assert torch.equal(mixed, mix(values, float(lam[row]), partners)[row])


def generator():
    return torch.Generator().manual_seed(3)
