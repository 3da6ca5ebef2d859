"""Digits: 8 x 8 gray images that are part of scikit-learn."""

from pathlib import Path

import numpy as np

from benchmarks.data.registry import DATASETS, MNIST_AUGMENTATION, Arrays, DatasetInfo

SPLIT_SEED = 0
NUM_TEST = 360


def read_digits(info: DatasetInfo, data_dir: Path, params: object) -> Arrays:
    """Scale the gray levels 0..16 to 0..255 and make a fixed stratified split."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    bunch = load_digits()
    images = np.rint(bunch.images * (255 / 16)).astype(np.uint8)[:, None]
    labels = bunch.target.astype(np.int64)
    train, test = train_test_split(
        np.arange(len(labels)), test_size=NUM_TEST, stratify=labels, random_state=SPLIT_SEED
    )
    return {
        "train_images": images[train],
        "train_labels": labels[train],
        "test_images": images[test],
        "test_labels": labels[test],
    }


DATASETS.add(
    DatasetInfo(
        "digits",
        origin="scikit-learn",
        read=read_digits,
        num_samples=(1437, NUM_TEST),
        num_classes=10,
        shape=(1, 8, 8),
        augmentation=MNIST_AUGMENTATION,
        sha256="39c508f9546ed54f19502db75dd502ac5523bb5efd7cb357e6120d22fd285238",
    )
)
