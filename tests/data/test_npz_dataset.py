"""Datasets from .npz files, and the bundled digits."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.data import load
from benchmarks.data.dataset import channel_statistics
from benchmarks.data.datasets.npz import NpzParams
from methods.core.errors import UserError


def arrays(**changed: Any) -> dict[str, Any]:
    generator = np.random.default_rng(0)
    return {
        "train_images": generator.integers(0, 256, (20, 6, 5, 3), dtype=np.uint8),
        "train_labels": np.arange(20) % 4,
        "test_images": generator.integers(0, 256, (8, 6, 5, 3), dtype=np.uint8),
        "test_labels": np.arange(8) % 4,
    } | changed


def load_npz(directory: Path, content: dict[str, Any]) -> Any:
    np.savez(directory / "mine.npz", **content)
    return load("npz", directory, NpzParams(str(directory / "mine.npz")))


def test_image_layouts(tmp_path: Path) -> None:
    content = arrays()
    last = load_npz(tmp_path, content)
    assert (last.num_classes, last.shape, last.labels_are_clean) == (4, (3, 6, 5), True)
    assert last.train_labels.dtype == np.int64
    expected = torch.from_numpy(content["train_images"]).permute(0, 3, 1, 2)
    assert torch.equal(last.train.fetch(torch.arange(20)), expected)
    transposed = {
        key: value.transpose(0, 3, 1, 2) for key, value in content.items() if key.endswith("images")
    }
    first = load_npz(tmp_path, content | transposed)
    assert torch.equal(first.train.fetch(torch.arange(20)), expected)
    gray = load_npz(
        tmp_path,
        content | {key: value[..., 0] for key, value in content.items() if key.endswith("images")},
    )
    assert gray.shape == (1, 6, 5)
    assert torch.equal(
        gray.test.fetch(torch.tensor([7])),
        torch.from_numpy(content["test_images"][7:, None, :, :, 0]),
    )


def test_normalized_with_its_training_images(tmp_path: Path) -> None:
    dataset = load_npz(tmp_path, arrays())
    transformed = dataset.views(dataset.train.fetch(torch.arange(20)), "plain", None)
    torch.testing.assert_close(transformed.mean(dim=(0, 2, 3)), torch.zeros(3), rtol=0, atol=1e-5)
    torch.testing.assert_close(
        transformed.std(dim=(0, 2, 3), correction=0), torch.ones(3), rtol=0, atol=1e-5
    )


def test_constant_channel_has_standard_deviation_one() -> None:
    images = torch.full((2, 1, 3, 3), 51, dtype=torch.uint8)
    assert channel_statistics(images) == ((pytest.approx(0.2),), (1.0,))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"train_images": np.zeros((20, 6, 5, 3), np.float32)},
            r"train_images is float32 \(20, 3, 6, 5\), expected uint8",
        ),
        (
            {"test_images": np.zeros((8, 6, 5, 4), np.uint8)},
            r"test_images has shape \(8, 6, 5, 4\), expected \(n, H, W\)",
        ),
        (
            {"train_images": np.zeros((20, 3, 5, 3), np.uint8)},
            r"has shape \(20, 3, 5, 3\), expected",
        ),
        (
            {"test_images": np.zeros((8, 7, 5, 3), np.uint8)},
            r"test_images is uint8 \(8, 3, 7, 5\), expected uint8 \(8, 3, 6, 5\)",
        ),
        (
            {"test_images": np.zeros((0, 6, 5, 3), np.uint8)},
            r"test_images is uint8 \(0, 3, 6, 5\), expected uint8 \(8, 3, 6, 5\)",
        ),
        (
            {"train_labels": np.arange(19)},
            r"train_images is uint8 \(20, 3, 6, 5\), expected uint8 \(19, 3, 6, 5\)",
        ),
        (
            {"train_labels": np.arange(20) - 1},
            r"train_labels has values -1\.\.18, expected 0\.\.18",
        ),
        (
            {"test_labels": np.array([0, 1, 2, 3, 4, 0, 0, 0])},
            r"test_labels has values 0\.\.4, expected 0\.\.3",
        ),
        (
            {"train_labels": np.linspace(0, 1, 20)},
            r"train_labels is float64 \(20,\), expected int64 \(20,\)",
        ),
        (
            {"train_labels": np.zeros((20, 4), np.int64)},
            r"train_labels is int64 \(20, 4\), expected int64 \(20,\)",
        ),
        ({"train_labels": np.array([None] * 20)}, "not an .npz file of plain arrays"),
    ],
)
def test_invalid_array_is_one_line(tmp_path: Path, changed: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=f"cannot read .*mine.npz: .*{message}") as error:
        load_npz(tmp_path, arrays(**changed))
    assert "\n" not in str(error.value)


def test_missing_keys_and_files(tmp_path: Path) -> None:
    content = arrays()
    del content["test_images"], content["test_labels"]
    with pytest.raises(UserError, match="mine.npz: it has no array test_images, test_labels"):
        load_npz(tmp_path, content)
    with pytest.raises(UserError, match="missing dataset.path: set dataset.path=VALUE"):
        load("npz", tmp_path)
    with pytest.raises(
        UserError,
        match="invalid dataset.path=.*nothing.npz': expected an .npz file with train_images",
    ):
        load("npz", tmp_path, NpzParams(str(tmp_path / "nothing.npz")))
    (tmp_path / "text.npz").write_text("hello")
    with pytest.raises(UserError, match="text.npz: not an .npz file"):
        load("npz", tmp_path, NpzParams(str(tmp_path / "text.npz")))
    np.save(tmp_path / "single.npy", np.zeros(3))
    with pytest.raises(UserError, match="single.npy: not an .npz file"):
        load("npz", tmp_path, NpzParams(str(tmp_path / "single.npy")))


def test_digits_have_a_fixed_stratified_split(tmp_path: Path) -> None:
    dataset = load("digits", tmp_path)
    assert (len(dataset.train), len(dataset.test), dataset.num_classes, dataset.shape) == (
        1437,
        360,
        10,
        (1, 8, 8),
    )
    images = dataset.train.fetch(torch.arange(1437))
    assert images.dtype == torch.uint8
    assert (int(images.min()), int(images.max())) == (0, 255)
    for labels, count in ((dataset.train_labels, 1437), (dataset.test_labels, 360)):
        assert labels.dtype == np.int64
        assert np.bincount(labels).min() > 0.09 * count
    transformed = dataset.views(images, "plain", None)
    assert float(transformed.mean()) == pytest.approx(0, abs=1e-4)
    assert float(transformed.std()) == pytest.approx(1, abs=1e-3)
    again = load("digits", tmp_path)
    assert torch.equal(again.train.fetch(torch.arange(1437)), images)
    assert np.array_equal(again.test_labels, dataset.test_labels)
