"""Data sets too large for memory: file lists and labels of Clothing1M and ImageNet-100 in their official layouts."""

from pathlib import Path

import numpy as np

from benchmarks.data.catalogue import Entry
from benchmarks.data.images import FileImages
from methods.core.errors import UserError

DECODED_SIDE = 256
"""Training images are decoded to this side; the `train` view cuts 224 x 224 out of it."""

Split = tuple[FileImages, np.ndarray]


def read_clothing1m(entry: Entry, folder: Path) -> tuple[Split, Split]:
    """Noisy training list, clean test list. Test images are squeezed to 224 x 224 at once, as in FedCorr's code."""
    assert entry.shape and entry.num_classes
    splits: list[Split] = []
    for keys_file, labels_file, side in (
        ("noisy_train_key_list.txt", "noisy_label_kv.txt", DECODED_SIDE),
        ("clean_test_key_list.txt", "clean_label_kv.txt", entry.shape[1]),
    ):
        label_of = _read_labels(folder / labels_file, entry.num_classes)
        keys = (folder / keys_file).read_text().split()
        unlabelled = next((key for key in keys if key not in label_of), None)
        if unlabelled is not None:
            raise UserError(
                f"{folder / labels_file} has no label for '{unlabelled}', which {keys_file} lists"
            )
        if not keys:
            raise UserError(f"{folder / keys_file} lists no image")
        labels = np.array([label_of[key] for key in keys], dtype=np.int64)
        splits.append((FileImages(folder, keys, entry.shape, side, keep_aspect=False), labels))
    return splits[0], splits[1]


def _read_labels(path: Path, num_classes: int) -> dict[str, int]:
    label_of: dict[str, int] = {}
    with path.open() as lines:
        for number, line in enumerate(lines, start=1):
            match line.split():
                case [key, label] if label.isdecimal() and int(label) < num_classes:
                    label_of[key] = int(label)
                case []:
                    continue
                case _:
                    raise UserError(
                        f"{path} line {number} is '{line.strip()}', expected '<image> <label 0..{num_classes - 1}>'"
                    )
    return label_of


def read_imagenet100(entry: Entry, folder: Path) -> tuple[Split, Split]:
    """Classes are the sorted folder names of train/. Images are decoded to the centre square of a short side of 256."""
    assert entry.shape and entry.num_classes
    classes = _class_folders(folder / "train")
    if len(classes) != entry.num_classes:
        raise UserError(
            f"{folder / 'train'} has {len(classes)} class folders, expected {entry.num_classes}"
        )
    if _class_folders(folder / "val") != classes:
        raise UserError(f"{folder / 'val'} must have the same class folders as {folder / 'train'}")
    splits: list[Split] = []
    for part in ("train", "val"):
        paths: list[str] = []
        labels: list[int] = []
        for label, name in enumerate(classes):
            found = sorted(
                file.name
                for file in (folder / part / name).iterdir()
                if file.suffix.lower() in (".jpeg", ".jpg")
            )
            if not found:
                raise UserError(f"{folder / part / name} has no .JPEG image")
            paths += [f"{part}/{name}/{file}" for file in found]
            labels += [label] * len(found)
        images = FileImages(folder, paths, entry.shape, DECODED_SIDE, keep_aspect=True)
        splits.append((images, np.array(labels, dtype=np.int64)))
    return splits[0], splits[1]


def _class_folders(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.is_dir())


READERS = {"clothing1m": read_clothing1m, "imagenet100": read_imagenet100}
