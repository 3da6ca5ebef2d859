"""Arrays of downloaded datasets: four .npy files, written atomically and validated on reading."""

import hashlib
import os
import shutil
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.data.registry import ARRAY_NAMES, Arrays, DatasetInfo, fetch_command
from methods.core.errors import UserError

MAX_CLASSES = 10_000  # of a dataset whose number of classes is not known before it is read
ARRAY_FILES = tuple(f"{name}.npy" for name in ARRAY_NAMES)


def read(info: DatasetInfo, data_dir: Path, params: object = None) -> Arrays:
    """Read the four arrays. Hashes are not compared, as that takes longer than reading."""
    arrays: dict[str, np.ndarray] = {}
    for name in ARRAY_NAMES:
        path = data_dir / info.name / f"{name}.npy"
        try:
            arrays[name] = np.load(path, allow_pickle=False)
        except (ValueError, EOFError, OSError) as error:
            fix = f"run `{fetch_command(info.name, data_dir)}`"
            raise UserError(f"cannot read {path}: {' '.join(str(error).split())}; {fix}") from error
    return arrays


def shape_error(info: DatasetInfo, arrays: Arrays) -> str | None:
    """First violation of the expected types, shapes and label range, or None."""
    shape = info.shape or arrays["train_images"].shape[1:]
    num_classes = info.num_classes
    for split, num_samples in zip(("train", "test"), info.num_samples or (None, None), strict=True):
        images, labels = arrays[f"{split}_images"], arrays[f"{split}_labels"]
        count = num_samples or len(np.atleast_1d(labels)) or 1
        if labels.dtype != np.int64 or labels.shape != (count,):
            return f"{split}_labels is {labels.dtype} {labels.shape}, expected int64 ({count},)"
        expected = (count, *shape)
        if images.dtype != np.uint8 or images.shape != expected or not images.size:
            return f"{split}_images is {images.dtype} {images.shape}, expected uint8 {expected}"
        if num_classes is None and labels.max() >= MAX_CLASSES:
            found = f"values up to {labels.max()}"
            return f"{split}_labels has {found}, expected at most {MAX_CLASSES - 1}"
        num_classes = num_classes or int(labels.max()) + 1
        if labels.min() < 0 or labels.max() >= num_classes:
            span = f"{labels.min()}..{labels.max()}"
            return f"{split}_labels has values {span}, expected 0..{num_classes - 1}"
    return None


def defect(info: DatasetInfo, arrays: Arrays) -> str | None:
    """Shape error, or a difference from the pinned hash, or None."""
    if error := shape_error(info, arrays):
        return error
    if info.sha256 and (found := digest(arrays)) != info.sha256:
        return f"sha256 of the arrays is {found[:12]}..., expected {info.sha256[:12]}..."
    return None


def digest(arrays: Arrays) -> str:
    """Hash of the lines with the hash of each array, equal on every machine.

    An array is hashed as uint8 in C order, images as (n, H, W, C), the published layout.
    """
    lines = []
    for array in (arrays[name] for name in ARRAY_NAMES):
        published = array.transpose(0, 2, 3, 1) if array.ndim == 4 else array
        content = np.ascontiguousarray(published, dtype=np.uint8).data
        lines.append(hashlib.sha256(content).hexdigest())
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def write(info: DatasetInfo, data_dir: Path, arrays: Arrays) -> None:
    """Write the arrays to a temporary directory, then rename it."""
    data_dir.mkdir(parents=True, exist_ok=True)
    final = data_dir / info.name
    with tempfile.TemporaryDirectory(prefix=f".{info.name}-", dir=data_dir) as temporary:
        new = Path(temporary) / "new"
        new.mkdir()
        for name in ARRAY_NAMES:
            np.save(new / f"{name}.npy", np.ascontiguousarray(arrays[name]))
        if final.exists():
            shutil.move(final, Path(temporary) / "old")
        os.rename(new, final)
