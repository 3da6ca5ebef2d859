"""A loaded data set: images, labels, and the views of its batches."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.data import cache, folders
from benchmarks.data.catalogue import Entry, Shape, Statistics, find
from benchmarks.data.images import Images, MemoryImages
from benchmarks.data.npz import read_npz
from benchmarks.data.views import Views
from methods.core.errors import UserError

DIGITS_SPLIT_SEED = 0


@dataclass(frozen=True, eq=False)
class Dataset:
    """Labels are int64; `labels_are_clean` is False where the training labels are noisy and nobody knows the truth."""

    name: str
    num_classes: int
    shape: Shape
    train: Images
    train_labels: np.ndarray
    test: Images
    test_labels: np.ndarray
    views: Views
    labels_are_clean: bool


def load(name: str, data_dir: Path, params: Mapping[str, Any] = {}) -> Dataset:
    """Read a data set; what is missing or wrong is a UserError of one line that says what to do."""
    entry = find(name)
    unknown = [key for key in params if key not in entry.params]
    if unknown:
        raise UserError(
            f"dataset.{unknown[0]} is unknown for {name}; legal: {', '.join(entry.params) or 'none'}"
        )
    if entry.kind == "folder":
        return _load_folder(entry, data_dir)
    if entry.kind == "cached":
        return _in_memory(entry, cache.read(entry, data_dir))
    if entry.kind == "bundled":
        return _in_memory(entry, _read_digits())
    if params.get("path") is None:
        raise UserError(f"dataset.path is missing: {name} needs the path of an .npz file")
    arrays, num_classes = read_npz(Path(params["path"]).expanduser())
    return _in_memory(_describe_npz(entry, arrays, num_classes), arrays)


def _in_memory(entry: Entry, arrays: cache.Arrays) -> Dataset:
    train = MemoryImages(torch.from_numpy(arrays["train_images"]))
    test = MemoryImages(torch.from_numpy(arrays["test_images"]))
    return _assemble(
        entry, (train, arrays["train_labels"]), (test, arrays["test_labels"]), train.tensor
    )


def _load_folder(entry: Entry, data_dir: Path) -> Dataset:
    missing = entry.missing(data_dir)
    if missing:
        raise UserError(
            f"{entry.name}: {missing[0]} is missing; put the data set at {data_dir}/{entry.placement}"
        )
    train, test = folders.READERS[entry.name](entry, data_dir / entry.name)
    return _assemble(entry, train, test)


def _assemble(
    entry: Entry,
    train: tuple[Images, np.ndarray],
    test: tuple[Images, np.ndarray],
    pixels: Tensor | None = None,
) -> Dataset:
    assert entry.shape and entry.num_classes
    statistics = entry.statistics
    if statistics is None:
        assert pixels is not None
        statistics = channel_statistics(pixels)
    views = Views(
        entry.shape,
        statistics,
        pad=entry.pad,
        flip=entry.flip,
        shrink=entry.shrink,
        second=entry.second,
    )
    return Dataset(
        name=entry.name,
        num_classes=entry.num_classes,
        shape=entry.shape,
        train=train[0],
        train_labels=train[1],
        test=test[0],
        test_labels=test[1],
        views=views,
        labels_are_clean=entry.labels_are_clean,
    )


def _read_digits() -> cache.Arrays:
    """The 8 x 8 digits with grey levels 0..16 stretched to 0..255, in a fixed stratified split."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    bunch = load_digits()
    entry = find("digits")
    images = np.rint(bunch.images * (255 / 16)).astype(np.uint8)[:, None]
    labels = bunch.target.astype(np.int64)
    train, test = train_test_split(
        np.arange(len(labels)),
        test_size=entry.num_test,
        stratify=labels,
        random_state=DIGITS_SPLIT_SEED,
    )
    return {
        "train_images": images[train],
        "train_labels": labels[train],
        "test_images": images[test],
        "test_labels": labels[test],
    }


def _describe_npz(entry: Entry, arrays: cache.Arrays, num_classes: int) -> Entry:
    """Colour images are augmented like CIFAR, grey ones like MNIST."""
    _, channels, height, width = arrays["train_images"].shape
    described = replace(entry, num_classes=num_classes, shape=(channels, height, width))
    return (
        replace(described, pad=4, flip=True)
        if channels == 3
        else replace(described, second="rotation")
    )


def channel_statistics(images: Tensor) -> Statistics:
    """Mean and deviation of each channel of uint8 images, on the scale [0, 1]; a constant channel gets deviation 1."""
    levels = torch.arange(256, dtype=torch.float64) / 255
    means: list[float] = []
    deviations: list[float] = []
    for channel in range(images.shape[1]):
        # Counting the 256 levels needs no floating-point copy of the data set.
        share = (
            torch.bincount(images[:, channel].flatten(), minlength=256).double()
            / images[:, channel].numel()
        )
        mean = float((share * levels).sum())
        means.append(mean)
        deviations.append(float((share * (levels - mean) ** 2).sum().sqrt()) or 1.0)
    return tuple(means), tuple(deviations)
