"""LID against values of FedCorr's released function, and its edge cases."""

import math

import numpy as np
import pytest
import torch

from methods.toolkit import lid as module
from methods.toolkit.lid import lid


@pytest.fixture
def points():
    return torch.from_numpy(np.random.RandomState(0).dirichlet(np.ones(10), 50).astype(np.float32))


def test_values_of_released_function(points):
    values = lid(points)
    assert values.dtype == torch.float64
    assert values[:3].tolist() == pytest.approx([3.60148, 6.42053, 6.96955], abs=1e-5)
    assert values.mean().item() == pytest.approx(5.116438, abs=1e-6)


def test_duplicate_has_lid_zero(points):
    points[1] = points[0]
    values = lid(points)
    assert values[:2].tolist() == [0.0, 0.0]
    assert values.mean().item() == pytest.approx(4.938268, abs=1e-6)


def test_by_hand():
    """Points 0, 1, 3 on a line, two neighbors.

    The distances from 0 are 1 and 3, so LID = -2 / (ln(1/3) + ln 1) = 2 / ln 3. The others are
    2 / ln 2 and 2 / ln 1.5.
    """
    values = lid(torch.tensor([[0.0], [1.0], [3.0]]), num_neighbors=2)
    assert values.tolist() == pytest.approx(
        [2 / math.log(3), 2 / math.log(2), 2 / math.log(1.5)], rel=1e-5
    )


def test_fewer_samples_than_neighbors(points):
    """Eight samples have seven neighbors, so k = 7. The released code uses 20: 13.9."""
    mean = lid(points[:8]).mean().item()
    assert mean == pytest.approx(4.87, abs=0.005)
    assert mean * 20 / 7 == pytest.approx(13.9, abs=0.05)
    assert torch.equal(lid(points[:8], num_neighbors=7), lid(points[:8], num_neighbors=20))


@pytest.mark.parametrize("count", [1, 2])
def test_fewer_than_two_neighbors_give_zero(points, count):
    assert lid(points[:count]).tolist() == [0.0] * count


def test_equal_points_have_lid_zero():
    assert lid(torch.full((30, 10), 0.1)).tolist() == [0.0] * 30


def test_confident_predictions_keep_precision():
    """LID is scale invariant while distances are much larger than epsilon.

    The points are scaled by 1e-3, moved to a corner of the simplex and rounded to float32.
    """
    steps = torch.from_numpy(np.random.RandomState(1).rand(40, 9))
    cloud = torch.cat([-steps.sum(1, keepdim=True), steps], 1)
    shrunk = (torch.eye(10)[0] + 1e-3 * cloud).to(torch.float32)
    assert lid(shrunk).mean().item() == pytest.approx(lid(cloud).mean().item(), rel=1e-2)


def test_chunks_do_not_change_values(points, monkeypatch):
    whole = lid(points)
    monkeypatch.setattr(module, "MAX_DISTANCES_PER_CHUNK", 7 * len(points))
    assert torch.equal(lid(points), whole)
