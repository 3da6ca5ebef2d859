"""Synthetic images with one bright row or column: an external dataset."""

from pathlib import Path

import numpy as np

from benchmarks.data.registry import DATASETS, Arrays, DatasetInfo
from methods.core.params import PositiveInt, parameters


@parameters
class StripesParams:
    size: PositiveInt = 8  # height and width of the images


def read_stripes(info: DatasetInfo, data_dir: Path, params: StripesParams) -> Arrays:
    """Class 0: a row. Class 1: a column."""
    rng = np.random.default_rng(0)
    arrays: dict[str, np.ndarray] = {}
    for split, count in (("train", 160), ("test", 40)):
        images = rng.integers(0, 100, (count, 1, params.size, params.size), dtype=np.uint8)
        labels = np.arange(count) % 2
        for image, label, position in zip(
            images[:, 0], labels, rng.integers(params.size, size=count), strict=True
        ):
            (image.T if label else image)[position] = 255
        arrays |= {f"{split}_images": images, f"{split}_labels": labels}
    return arrays


DATASETS.add(
    DatasetInfo("stripes", origin="example package", read=read_stripes, params=StripesParams)
)
