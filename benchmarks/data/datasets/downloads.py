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
    sha256={
        "train_images": "47af8b02cfcfb6cdf3dbbd1969ad7f1b70f4413f6f80f437b020ee4e5bc8304a",
        "train_labels": "2b7cd2f24487317614016b72ffd53071c3062f592f0eb300c18a770d41ae1253",
        "test_images": "f9b1e2130bab680db56eb06d886f7f1ad0f1183907ceff4659d1735c890f5b04",
        "test_labels": "cec8a24a1e92aa2ecaa0bbd3dbfa86bf6cd8759fbd209a832824c8cf0afca9d5",
    },
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
    sha256={},  # torchvision compares the md5 of the official files
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
    sha256={
        "train_images": "741c988805d008ac6e4c904b69001ba184c24b2c540a4ef403f4c71b676cf757",
        "train_labels": "1feba77c54802fa5339a11837ea4b2866434b83314ec45192930f1df69120c13",
        "test_images": "6d87418db22cc8025d05968bec9bd5c3932904b23485740db143a061a2c9d161",
        "test_labels": "ddeff807876a9661a1110d45c266c86239a3a1b7d37da0c3716a7a683c852ff5",
    },
    expected_layout="MNIST/raw/ with the four idx files",
)
_FASHION_MNIST = replace(
    _MNIST,
    name="fashion_mnist",
    origin="torchvision or Debian",
    torchvision_class="FashionMNIST",
    sha256={
        "train_images": "2e487a6c89124f78f2d7521542223cafe96f7123c3ca13d447772ac6ecbb3012",
        "train_labels": "657fbd221bfc9f4198cc14b5619cc33ec57c58dd0e47af4d99d6650759e869a7",
        "test_images": "c867c93ff95360594e8ec3287995350b824dd110b11595c0e13d5423f621867a",
        "test_labels": "3d0e6c6ea990b53b6f8f500a41cac93881d981b315f84578b7d915342ade01e9",
    },
    expected_layout="FashionMNIST/raw/ with the four idx files",
)

for _info in (_CIFAR10, _CIFAR100, _MNIST, _FASHION_MNIST):
    DATASETS.add(_info)
