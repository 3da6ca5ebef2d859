"""Loading of datasets: images, labels, and the transforms of the views."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import benchmarks.data.registry as registry
from benchmarks.data.cache import shape_error
from benchmarks.data.images import Images, MemoryImages
from benchmarks.data.registry import Arrays, DatasetInfo, Shape, Split, Statistics
from benchmarks.data.transforms import ImageTransforms
from methods.core.errors import UserError
from methods.core.params import build_params


@dataclass(frozen=True, eq=False)
class Dataset:
    """A loaded dataset with int64 labels."""

    name: str
    num_classes: int
    shape: Shape
    train: Images
    train_labels: np.ndarray
    test: Images
    test_labels: np.ndarray
    views: ImageTransforms
    labels_are_clean: bool  # False: the training labels are noisy, clean labels are unavailable


def load(name: str, data_dir: Path, params: Any = None) -> Dataset:
    """Read a dataset. `params` is an instance of the dataset's parameter class."""
    info = registry.DATASETS.get(name)
    if params is None:
        params = build_params(info.params, {}, "dataset")
    info.require_files(data_dir)
    content = info.read(info, data_dir, params)
    if not isinstance(content, Mapping):
        return _make_dataset(info, *content)
    if error := shape_error(info, content):
        fix = f"; run `{registry.fetch_command(name, data_dir)}`" if info.kind == "cached" else ""
        path = getattr(params, "path", data_dir / name)
        raise UserError(f"cannot read {path}: {error}{fix}")
    train = MemoryImages(torch.from_numpy(content["train_images"]))
    test = MemoryImages(torch.from_numpy(content["test_images"]))
    info = infer_properties(info, content)
    if info.statistics is None:
        info = replace(info, statistics=channel_statistics(train.tensor))
    return _make_dataset(info, (train, content["train_labels"]), (test, content["test_labels"]))


def infer_properties(info: DatasetInfo, arrays: Arrays) -> DatasetInfo:
    """Fill in the shape and the number of classes.

    Without a declared shape, color images are augmented like CIFAR and gray images like MNIST.
    """
    if info.num_classes is None:
        info = replace(info, num_classes=int(arrays["train_labels"].max()) + 1)
    if info.shape is not None:
        return info
    _, channels, height, width = arrays["train_images"].shape
    options = registry.CIFAR_AUGMENTATION if channels == 3 else registry.MNIST_AUGMENTATION
    return replace(info, shape=(channels, height, width), augmentation=options)


def _make_dataset(info: DatasetInfo, train: Split, test: Split) -> Dataset:
    assert info.shape and info.num_classes and info.statistics, f"incomplete {info}"
    views = ImageTransforms(info.shape, info.statistics, info.augmentation)
    properties = (info.name, info.num_classes, info.shape)
    return Dataset(*properties, *train, *test, views, info.labels_are_clean)


def channel_statistics(images: Tensor) -> Statistics:
    """Mean and standard deviation per channel of uint8 images, with pixels scaled to [0, 1].

    The standard deviation of a constant channel is reported as 1.
    """
    levels = torch.arange(256, dtype=torch.float64) / 255
    means, deviations = [], []
    for channel in images.unbind(1):
        # A histogram of the 256 levels avoids a floating-point copy of the dataset.
        frequency = torch.bincount(channel.flatten(), minlength=256).double() / channel.numel()
        mean = float((frequency * levels).sum())
        means.append(mean)
        deviations.append(float((frequency * (levels - mean) ** 2).sum().sqrt()) or 1.0)
    return tuple(means), tuple(deviations)
