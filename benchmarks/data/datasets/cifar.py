"""CIFAR-10 and CIFAR-100.

CIFAR-10 is normalized with the constants of ImageNet, as in the official code of FedCorr and LSG.
"""

from dataclasses import replace

from benchmarks.data.cache import ARRAY_FILES, read
from benchmarks.data.registry import CIFAR_AUGMENTATION, DATASETS, IMAGENET_STATISTICS, DatasetInfo

_CIFAR10 = DatasetInfo(
    "cifar10",
    origin="torchvision or npm",
    read=read,
    kind="cached",
    num_samples=(50000, 10000),
    num_classes=10,
    shape=(3, 32, 32),
    statistics=IMAGENET_STATISTICS,
    augmentation=CIFAR_AUGMENTATION,
    torchvision_class="CIFAR10",
    sha256={
        "train_images": "47af8b02cfcfb6cdf3dbbd1969ad7f1b70f4413f6f80f437b020ee4e5bc8304a",
        "train_labels": "2b7cd2f24487317614016b72ffd53071c3062f592f0eb300c18a770d41ae1253",
        "test_images": "f9b1e2130bab680db56eb06d886f7f1ad0f1183907ceff4659d1735c890f5b04",
        "test_labels": "cec8a24a1e92aa2ecaa0bbd3dbfa86bf6cd8759fbd209a832824c8cf0afca9d5",
    },
    expected_layout="cifar-10-batches-py/ with the official pickles",
    files=ARRAY_FILES,
)

DATASETS.add(_CIFAR10)
DATASETS.add(
    replace(
        _CIFAR10,
        name="cifar100",
        origin="torchvision",
        num_classes=100,
        statistics=((0.507, 0.487, 0.441), (0.267, 0.256, 0.276)),
        torchvision_class="CIFAR100",
        sha256={},  # torchvision compares the md5 of the official files
        expected_layout="cifar-100-python/ with the official pickles train, test and meta",
    )
)
