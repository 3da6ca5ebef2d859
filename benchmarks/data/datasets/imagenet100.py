"""ImageNet-100: a subset of 100 classes. The images are decoded when a batch needs them."""

from pathlib import Path

import numpy as np

from benchmarks.data.registry import DATASETS, IMAGENET_STATISTICS, Augmentation, DatasetInfo, Split
from methods.core.errors import UserError

DECODED_SIZE = 256  # length of the shorter side, from which the center square is cropped


def read_imagenet100(info: DatasetInfo, data_dir: Path, params: object) -> tuple[Split, Split]:
    """Read one directory per class. Labels follow the sorted directory names of train/."""
    from benchmarks.data.images import FileImages

    assert info.shape and info.num_classes
    root = data_dir / info.name
    classes = _class_names(root / "train")
    if len(classes) != info.num_classes:
        reason = f"it has {len(classes)} class directories, expected {info.num_classes}"
        raise UserError(f"cannot read {root / 'train'}: {reason}")
    if _class_names(root / "val") != classes:
        reason = f"its class directories differ from {root / 'train'}"
        raise UserError(f"cannot read {root / 'val'}: {reason}")
    splits: list[Split] = []
    for split in ("train", "val"):
        paths: list[str] = []
        labels: list[int] = []
        for label, name in enumerate(classes):
            files = sorted((root / split / name).iterdir())
            found = [file.name for file in files if file.suffix.lower() in (".jpeg", ".jpg")]
            if not found:
                raise UserError(f"cannot read {root / split / name}: it has no .JPEG image")
            paths += [f"{split}/{name}/{file}" for file in found]
            labels += [label] * len(found)
        images = FileImages(root, paths, info.shape, DECODED_SIZE, keep_aspect=True)
        splits.append((images, np.array(labels, dtype=np.int64)))
    return splits[0], splits[1]


def _class_names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir() if path.is_dir())


DATASETS.add(
    DatasetInfo(
        "imagenet100",
        origin="ImageNet-1k",
        read=read_imagenet100,
        kind="directory",
        num_classes=100,
        shape=(3, 224, 224),
        statistics=IMAGENET_STATISTICS,
        augmentation=Augmentation(flip=True),
        expected_layout="imagenet100/ with train/<wnid>/*.JPEG and val/<wnid>/*.JPEG, "
        "100 class directories in each",
        files=("train", "val"),
    )
)
