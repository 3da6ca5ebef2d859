"""Downloaded datasets: hashes, first labels and statistics. Skipped if they are not downloaded."""

from typing import Any

import pytest
import torch

from benchmarks.data import DATASETS, VIEWS, cache, default_data_dir, load
from benchmarks.data.dataset import channel_statistics
from benchmarks.data.registry import fetch_command

FIRST_LABELS = {
    "cifar10": [6, 9, 9, 4, 1, 1, 2, 7, 8, 3],
    "mnist": [5, 0, 4, 1, 9, 2, 1, 3, 1, 4],
    "fashion_mnist": [9, 0, 0, 3, 0, 2, 7, 2, 5, 5],
}
MEANS = {
    "cifar10": (0.49139968, 0.48215841, 0.44653091),
    "mnist": (0.1306605,),
    "fashion_mnist": (0.2860406,),
}


def load_downloaded(name: str) -> Any:
    data_dir = default_data_dir()
    if DATASETS.get(name).missing_files(data_dir):
        pytest.skip(f"{name} is not in {data_dir}; run `{fetch_command(name, data_dir)}`")
    return load(name, data_dir)


@pytest.mark.parametrize("name", ["cifar10", "mnist", "fashion_mnist"])
def test_arrays_equal_the_published_ones(name: str) -> None:
    dataset = load_downloaded(name)
    arrays = {
        "train_images": dataset.train.tensor.numpy(),
        "train_labels": dataset.train_labels,
        "test_images": dataset.test.tensor.numpy(),
        "test_labels": dataset.test_labels,
    }
    assert cache.defect(DATASETS.get(name), arrays) is None
    assert dataset.train_labels[:10].tolist() == FIRST_LABELS[name]
    assert channel_statistics(dataset.train.tensor)[0] == pytest.approx(MEANS[name], abs=1e-6)


def test_cifar10_batch_in_every_view() -> None:
    dataset = load_downloaded("cifar10")
    batch = dataset.train.fetch(torch.tensor([0, 49999, 0]))
    assert torch.equal(batch[0], batch[2])
    generator = torch.Generator().manual_seed(0)
    for view in VIEWS:
        images = dataset.views(batch, view, generator)
        assert images.shape == (3, 3, 32, 32)
        assert torch.isfinite(images).all()
