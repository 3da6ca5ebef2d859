"""A dataset of the user: one .npz file with four arrays."""

from pathlib import Path

import numpy as np

from benchmarks.data.registry import ARRAY_NAMES, DATASETS, Arrays, DatasetInfo
from methods.core.archives import read_arrays
from methods.core.errors import UserError, invalid
from methods.core.params import DataFile, parameters


@parameters
class NpzParams:
    path: DataFile  # file with train_images, train_labels, test_images, test_labels


def read_npz(info: DatasetInfo, data_dir: Path, params: NpzParams) -> Arrays:
    """Read the arrays, with images as (n, C, H, W) and integer labels as int64."""
    path = Path(params.path).expanduser()
    if not path.is_file():
        raise invalid("dataset.path", params.path, f"an .npz file with {', '.join(ARRAY_NAMES)}")
    arrays = read_arrays(path, ARRAY_NAMES)
    if missing := [name for name in ARRAY_NAMES if name not in arrays]:
        raise UserError(f"cannot read {path}: it has no array {', '.join(missing)}")
    for split in ("train", "test"):
        images, labels = arrays[f"{split}_images"], arrays[f"{split}_labels"]
        arrays[f"{split}_images"] = _channels_first(images, f"cannot read {path}: {split}_images")
        if np.issubdtype(labels.dtype, np.integer):
            arrays[f"{split}_labels"] = labels.astype(np.int64)
    return arrays


def _channels_first(images: np.ndarray, subject: str) -> np.ndarray:
    if images.ndim == 3:
        return np.ascontiguousarray(images[:, None])
    is_first, is_last = (images.ndim == 4 and images.shape[axis] in (1, 3) for axis in (1, -1))
    if is_first == is_last:
        expected = "expected (n, H, W), (n, H, W, C) or (n, C, H, W) with C 1 or 3"
        raise UserError(f"{subject} has shape {images.shape}, {expected}")
    return np.ascontiguousarray(images if is_first else images.transpose(0, 3, 1, 2))


DATASETS.add(DatasetInfo("npz", origin="your file", read=read_npz, kind="file", params=NpzParams))
