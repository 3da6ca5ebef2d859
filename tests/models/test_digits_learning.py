"""digits_cnn learns the digits in seconds. Controls show that the thresholds are not trivial."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.data import load
from benchmarks.models import build
from benchmarks.models.mlp import MLPParams

LINEAR = MLPParams(hidden=())


@pytest.fixture(scope="module")
def digits() -> dict[str, Tensor]:
    dataset = load("digits", Path())
    splits = {"train": dataset.train, "test": dataset.test}
    images = {
        f"{split}_images": dataset.views(images.fetch(torch.arange(len(images))), "plain", None)
        for split, images in splits.items()
    }
    labels = {"train_labels": dataset.train_labels, "test_labels": dataset.test_labels}
    return images | {name: torch.from_numpy(array) for name, array in labels.items()}


def shifted(images: Tensor) -> Tensor:
    """Shift every image by up to two pixels in both directions."""
    generator = torch.Generator().manual_seed(0)
    offsets = torch.randint(5, (len(images), 2), generator=generator).tolist()
    padded = F.pad(images, (2, 2, 2, 2))
    pairs = zip(padded, offsets, strict=True)
    return torch.stack([image[:, top : top + 8, left : left + 8] for image, (top, left) in pairs])


def train_and_test(data: dict[str, Tensor], name: str, params: Any = None) -> float:
    """Test accuracy after 15 epochs of SGD."""
    generator = torch.Generator().manual_seed(0)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = build(name, 10, (1, 8, 8), params)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    images, labels = data["train_images"], data["train_labels"]
    for _ in range(15):
        for batch in torch.randperm(len(labels), generator=generator).split(32):
            optimizer.zero_grad()
            F.cross_entropy(model(images[batch]), labels[batch]).backward()
            optimizer.step()
    with torch.no_grad():
        predicted = model.eval()(data["test_images"]).argmax(1)
    return float((predicted == data["test_labels"]).double().mean())


def test_learns_clean_labels_and_nothing_from_shuffled_ones(digits: dict[str, Tensor]) -> None:
    assert train_and_test(digits, "digits_cnn") > 0.96
    order = torch.randperm(len(digits["train_labels"]), generator=torch.Generator().manual_seed(2))
    shuffled = digits | {"train_labels": digits["train_labels"][order]}
    assert train_and_test(shuffled, "digits_cnn") < 0.2


def test_learns_shifted_digits_better_than_a_linear_classifier(digits: dict[str, Tensor]) -> None:
    moved = digits | {key: shifted(digits[key]) for key in ("train_images", "test_images")}
    assert train_and_test(moved, "digits_cnn") > 0.75
    assert train_and_test(moved, "mlp", LINEAR) < 0.5
