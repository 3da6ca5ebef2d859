"""A data set of the user's own: one .npz file with four arrays, checked before anything else happens."""

import zipfile
from pathlib import Path

import numpy as np

from benchmarks.data.cache import Arrays
from benchmarks.data.catalogue import PARTS
from methods.core.errors import UserError

IMAGE_FORMS = "(n, H, W), (n, H, W, C) or (n, C, H, W) with C 1 or 3"


def read_npz(path: Path) -> tuple[Arrays, int]:
    """The arrays, images as (n, C, H, W), and the number of classes: the largest training label plus one."""
    arrays = _read_parts(path)
    for split in ("train", "test"):
        arrays[f"{split}_images"] = _as_images(
            arrays[f"{split}_images"], f"{split}_images in {path}"
        )
        labels = arrays[f"{split}_labels"] = _as_labels(
            arrays[f"{split}_labels"], f"{split}_labels in {path}"
        )
        num_images = len(arrays[f"{split}_images"])
        if num_images != len(labels):
            raise UserError(
                f"{path} has {num_images} {split}_images but {len(labels)} {split}_labels"
            )
    shapes = [arrays[f"{split}_images"].shape[1:] for split in ("train", "test")]
    if shapes[0] != shapes[1]:
        raise UserError(
            f"{path} has train_images of shape {shapes[0]} but test_images of shape {shapes[1]}"
        )
    num_classes = int(arrays["train_labels"].max()) + 1
    largest = int(arrays["test_labels"].max())
    if largest >= num_classes:
        raise UserError(
            f"test_labels in {path} has {largest}, but the training labels span 0..{num_classes - 1}"
        )
    return arrays, num_classes


def _read_parts(path: Path) -> dict[str, np.ndarray]:
    if not path.is_file():
        raise UserError(
            f"dataset.path '{path}' is not a file; expected an .npz file with {', '.join(PARTS)}"
        )
    try:
        with np.load(path, allow_pickle=False) as file:
            missing = [part for part in PARTS if part not in file]
            if missing:
                raise UserError(
                    f"{path} lacks {', '.join(missing)}; it has {', '.join(file) or 'nothing'}"
                )
            return {part: file[part] for part in PARTS}
    except (ValueError, EOFError, OSError, AttributeError, TypeError, zipfile.BadZipFile) as error:
        raise UserError(
            f"{path} cannot be read as an .npz file of plain arrays: {' '.join(str(error).split())}"
        ) from error


def _as_images(array: np.ndarray, what: str) -> np.ndarray:
    if array.dtype != np.uint8:
        raise UserError(f"{what} is {array.dtype}, expected uint8 (0..255)")
    if 0 in array.shape:
        raise UserError(f"{what} is empty, of shape {array.shape}")
    if array.ndim == 3:
        return np.ascontiguousarray(array[:, None])
    if array.ndim == 4 and (array.shape[1] in (1, 3)) != (array.shape[3] in (1, 3)):
        return np.ascontiguousarray(
            array if array.shape[1] in (1, 3) else array.transpose(0, 3, 1, 2)
        )
    raise UserError(f"{what} has shape {array.shape}, expected {IMAGE_FORMS}")


def _as_labels(array: np.ndarray, what: str) -> np.ndarray:
    if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
        raise UserError(
            f"{what} is {array.dtype} of shape {array.shape}, expected integers of shape (n,)"
        )
    if array.min(initial=0) < 0:
        raise UserError(f"{what} has {array.min()}, expected labels from 0")
    return array.astype(np.int64)
