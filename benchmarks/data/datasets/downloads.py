"""Datasets that are downloaded: CIFAR-10, CIFAR-100, MNIST and Fashion-MNIST.

CIFAR-10 is normalized with the constants of ImageNet, as in the official code of FedCorr and LSG.
FedLSR and LSG normalize MNIST and Fashion-MNIST with the statistics of MNIST.
"""

from dataclasses import replace

import benchmarks.data.registry as registry
from benchmarks.data.cache import ARRAY_FILES, read
from benchmarks.data.registry import DATASETS, DatasetInfo

_CIFAR10 = DatasetInfo(
    "cifar10",
    origin="torchvision or npm",
    read=read,
    kind="cached",
    num_samples=(50000, 10000),
    num_classes=10,
    shape=(3, 32, 32),
    statistics=registry.IMAGENET_STATISTICS,
    augmentation=registry.CIFAR_AUGMENTATION,
    torchvision_class="CIFAR10",
    sha256="6661b8aa3eea79c72ce502cf2249442e5e5c6a24dd747cc57de3181fb6cb98e6",
    expected_layout="cifar-10-batches-py/ with the official pickles",
    files=ARRAY_FILES,
)
_CIFAR100 = replace(
    _CIFAR10,
    name="cifar100",
    origin="torchvision",
    num_classes=100,
    statistics=((0.507, 0.487, 0.441), (0.267, 0.256, 0.276)),
    torchvision_class="CIFAR100",
    sha256="",  # torchvision compares the md5 of the official files
    expected_layout="cifar-100-python/ with the official pickles train, test and meta",
)
_MNIST = replace(
    _CIFAR10,
    name="mnist",
    num_samples=(60000, 10000),
    shape=(1, 28, 28),
    statistics=registry.MNIST_STATISTICS,
    augmentation=registry.MNIST_AUGMENTATION,
    torchvision_class="MNIST",
    sha256="3f46bc77a4d19d0cdfcde0a3e6936800293451476d5327dc85b84d035fee2e8a",
    expected_layout="MNIST/raw/ with the four idx files",
)
_FASHION_MNIST = replace(
    _MNIST,
    name="fashion_mnist",
    origin="torchvision or Debian",
    torchvision_class="FashionMNIST",
    sha256="3d1a4e06f2fb8f0c655e6d6f088dda3846743e7ff1871e2a81d507f8d92dbdf3",
    expected_layout="FashionMNIST/raw/ with the four idx files",
)

for _info in (_CIFAR10, _CIFAR100, _MNIST, _FASHION_MNIST):
    DATASETS.add(_info)
