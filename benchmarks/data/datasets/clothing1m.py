"""Clothing1M in its official layout. The images are decoded when a batch needs them."""

from pathlib import Path

import numpy as np

from benchmarks.data.registry import DATASETS, IMAGENET_STATISTICS, Augmentation, DatasetInfo, Split
from methods.core.errors import UserError, first_line

TRAIN_LISTS = ("noisy_train_key_list.txt", "noisy_label_kv.txt")
TEST_LISTS = ("clean_test_key_list.txt", "clean_label_kv.txt")
DECODED_SIZE = 256  # the `train` view crops 224 x 224 pixels from the decoded training images


def read_clothing1m(info: DatasetInfo, data_dir: Path, params: object) -> tuple[Split, Split]:
    """Read the noisy training list and the clean test list.

    Test images are resized directly to 224 x 224, as in FedCorr's official code.
    """
    from benchmarks.data.images import FileImages

    assert info.shape and info.num_classes
    root = data_dir / info.name
    splits: list[Split] = []
    sizes = {TRAIN_LISTS: DECODED_SIZE, TEST_LISTS: info.shape[1]}
    for (keys_file, labels_file), size in sizes.items():
        label_of = _read_labels(root / labels_file, info.num_classes)
        keys = _read_text(root / keys_file).split()
        if not keys:
            raise UserError(f"cannot read {root / keys_file}: it lists no image")
        if key := next((key for key in keys if key not in label_of), None):
            reason = f"no label for {key}, listed in {keys_file}"
            raise UserError(f"cannot read {root / labels_file}: {reason}")
        labels = np.array([label_of[key] for key in keys], dtype=np.int64)
        splits.append((FileImages(root, keys, info.shape, size, keep_aspect=False), labels))
    return splits[0], splits[1]


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read {path}: {first_line(error)}") from error


def _read_labels(path: Path, num_classes: int) -> dict[str, int]:
    label_of: dict[str, int] = {}
    for number, line in enumerate(_read_text(path).split("\n"), start=1):
        match line.split():
            case [key, label] if label.isdecimal() and int(label) < num_classes:
                label_of[key] = int(label)
            case [_, *_]:
                expected = f"{line.strip()!r}, expected '<image> <label 0..{num_classes - 1}>'"
                raise UserError(f"cannot read {path}: line {number} is {expected}")
    return label_of


DATASETS.add(
    DatasetInfo(
        "clothing1m",
        origin="authors of the dataset",
        read=read_clothing1m,
        kind="directory",
        num_samples=(1000000, 10526),
        num_classes=14,
        shape=(3, 224, 224),
        statistics=IMAGENET_STATISTICS,
        augmentation=Augmentation(flip=True, resize_mode="resize"),
        labels_are_clean=False,
        expected_layout="clothing1m/ with images/ and the official lists "
        + ", ".join(TRAIN_LISTS + TEST_LISTS),
        files=("images", *TRAIN_LISTS, *TEST_LISTS),
    )
)
