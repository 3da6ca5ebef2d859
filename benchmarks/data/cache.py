"""The arrays of a data set on disk: four plain .npy files, written whole or not at all, checked when read."""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from benchmarks.data.catalogue import PARTS, Entry, fetch_command
from methods.core.errors import UserError

Arrays = Mapping[str, np.ndarray]
"""One array per part: images uint8 (n, C, H, W), labels int64 (n,)."""


def read(entry: Entry, data_dir: Path) -> Arrays:
    """The four arrays in memory. Shapes, types and label range are checked, hashes are not: that would take longer."""
    command = fetch_command(entry.name, data_dir)
    if entry.missing(data_dir):
        raise UserError(f"{entry.name} is not in {data_dir}: run `{command}`")
    arrays: dict[str, np.ndarray] = {}
    for part in PARTS:
        path = data_dir / entry.name / f"{part}.npy"
        try:
            arrays[part] = np.load(path, allow_pickle=False)
        except (ValueError, EOFError, OSError) as error:
            raise UserError(
                f"{path} is damaged ({' '.join(str(error).split())}): run `{command}`"
            ) from error
    complaint = find_fault(entry, arrays)
    if complaint:
        raise UserError(f"{data_dir / entry.name} is damaged ({complaint}): run `{command}`")
    return arrays


def find_fault(entry: Entry, arrays: Arrays) -> str | None:
    """What is wrong with the form of these arrays, or None."""
    assert entry.num_train and entry.num_test and entry.num_classes and entry.shape
    for split, count in (("train", entry.num_train), ("test", entry.num_test)):
        images, labels = arrays[f"{split}_images"], arrays[f"{split}_labels"]
        if images.dtype != np.uint8 or images.shape != (count, *entry.shape):
            return f"{split}_images is {images.dtype} {images.shape}, expected uint8 {(count, *entry.shape)}"
        if labels.dtype != np.int64 or labels.shape != (count,):
            return f"{split}_labels is {labels.dtype} {labels.shape}, expected int64 {(count,)}"
        if labels.min() < 0 or labels.max() >= entry.num_classes:
            return f"{split}_labels span {labels.min()}..{labels.max()}, expected 0..{entry.num_classes - 1}"
    return None


def find_mismatch(entry: Entry, arrays: Arrays) -> str | None:
    """Which array differs from the pinned hash, or None; a data set without pinned hashes has no mismatch."""
    for part, expected in entry.sha256.items():
        found = sha256(arrays[part])
        if found != expected:
            return f"sha256 of {part} is {found[:12]}..., expected {expected[:12]}..."
    return None


def sha256(array: np.ndarray) -> str:
    """Hash of the content as uint8, images in the order (n, H, W, C) in which the data sets are published."""
    published = array.transpose(0, 2, 3, 1) if array.ndim == 4 else array
    return hashlib.sha256(np.ascontiguousarray(published, dtype=np.uint8).data).hexdigest()


def write(entry: Entry, data_dir: Path, arrays: Arrays) -> Path:
    """Write beside the final folder, then rename, so that a killed fetch leaves nothing that looks complete."""
    data_dir.mkdir(parents=True, exist_ok=True)
    final = data_dir / entry.name
    with tempfile.TemporaryDirectory(prefix=f".{entry.name}-", dir=data_dir) as temporary:
        fresh = Path(temporary) / "fresh"
        fresh.mkdir()
        for part in PARTS:
            np.save(fresh / f"{part}.npy", np.ascontiguousarray(arrays[part]))
        if final.exists():
            shutil.move(final, Path(temporary) / "old")
        os.rename(fresh, final)
    return final
