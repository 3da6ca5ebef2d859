"""Registry of datasets: properties, expected files, and status on disk. Does not import torch.

A dataset of another package:

    DATASETS.add(DatasetInfo("my_data", origin="my package", read=read_my_data, num_classes=5, ...))
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from methods.core.errors import UserError
from methods.core.params import NoParams
from methods.core.plugins import Registry

if TYPE_CHECKING:
    from benchmarks.data.images import Images

VIEWS = ("plain", "train", "strong", "second")
ARRAY_NAMES = ("train_images", "train_labels", "test_images", "test_labels")

Shape = tuple[int, int, int]  # channels, height, width
Statistics = tuple[tuple[float, ...], tuple[float, ...]]  # mean, std per channel; pixels in [0, 1]
Arrays = Mapping[str, np.ndarray]  # ARRAY_NAMES; images uint8 (n, C, H, W), labels int64 (n,)
Split = tuple["Images", np.ndarray]  # images and labels
Reader = Callable[["DatasetInfo", Path, Any], Arrays | tuple[Split, Split]]

IMAGENET_STATISTICS: Statistics = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
MNIST_STATISTICS: Statistics = ((0.1307,), (0.3081,))


@dataclass(frozen=True)
class Augmentation:
    """Options of the image transforms of a dataset."""

    pad: int = 0  # black border in pixels, added before the random crop of the `train` view
    flip: bool = False
    resize_mode: Literal["crop", "resize"] = "crop"  # how `plain` reduces larger images
    second_view: Literal["rotation", "color"] = "color"


CIFAR_AUGMENTATION = Augmentation(pad=4, flip=True)
MNIST_AUGMENTATION = Augmentation(second_view="rotation")


@dataclass(frozen=True)
class DatasetInfo:
    """Properties of a dataset that are known before it is read. None: inferred from the arrays.

    `read(info, data_dir, params)` returns the four arrays, or the train and test split with lazily
    decoded images.
    """

    name: str
    origin: str
    read: Reader
    # bundled: always available. cached: downloaded arrays. directory, file: provided by the user.
    kind: Literal["bundled", "cached", "directory", "file"] = "bundled"
    num_samples: tuple[int, int] | None = None  # train, test
    num_classes: int | None = None
    shape: Shape | None = None
    statistics: Statistics | None = None  # None: computed from the training images
    augmentation: Augmentation = Augmentation()
    labels_are_clean: bool = True
    torchvision_class: str = ""
    sha256: str = ""  # of the arrays, see `cache.digest`; empty: not known
    expected_layout: str = ""  # files that the user provides, relative to the data directory
    files: tuple[str, ...] = ()  # required files, relative to the dataset's directory
    params: type = NoParams

    def missing_files(self, data_dir: Path) -> list[Path]:
        """Required files that do not exist. Does not open any file."""
        paths = (data_dir / self.name / file for file in self.files)
        return [path for path in paths if not path.exists()]

    def require_files(self, data_dir: Path) -> None:
        for path in self.missing_files(data_dir):
            fix = f"expected {data_dir}/{self.expected_layout}"
            if self.kind == "cached":
                fix = f"run `{fetch_command(self.name, data_dir)}`"
            raise UserError(f"cannot read {self.name}: {path} does not exist; {fix}")

    def status(self, data_dir: Path) -> str:
        """State of the dataset on disk, as shown in the table of datasets."""
        if self.kind == "file":
            return "needs dataset.path"
        if not self.missing_files(data_dir):
            return "ready"
        return "not downloaded" if self.kind == "cached" else "manual download required"


DATASETS: Registry[DatasetInfo] = Registry("dataset", "fln.datasets", "benchmarks.data.datasets")


def default_data_dir() -> Path:
    """Data directory: the environment variable FLN_DATA, or a directory in the user's cache."""
    return Path(os.environ.get("FLN_DATA") or "~/.cache/fln-data").expanduser()


def fetch_command(name: str, data_dir: Path) -> str:
    option = "" if data_dir == default_data_dir() else f" data_dir={data_dir}"
    return f"python -m benchmarks.data fetch={name}{option}"
