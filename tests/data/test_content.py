"""Digests of data content: what they cover, and that they are kept between commands."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.config.schema import RunConfig
from benchmarks.data import DATASETS, content, default_data_dir
from benchmarks.data.registry import ARRAY_NAMES
from methods.core.params import NoParams


@pytest.fixture(autouse=True)
def new_process(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """new_process() -> nothing is known but what the data directory holds."""
    monkeypatch.setattr(content, "_COMPUTED", {})
    return content._COMPUTED.clear


def save_images(path: Path, seed: int, save: Any = np.savez) -> str:
    generator = np.random.default_rng(seed)
    save(
        path,
        train_images=generator.integers(0, 256, (80, 8, 8), dtype=np.uint8),
        train_labels=np.arange(80) % 4,
        test_images=generator.integers(0, 256, (20, 8, 8), dtype=np.uint8),
        test_labels=np.arange(20) % 4,
    )
    return f"dataset.path={path}"


def test_replaced_file_gives_a_new_run(
    tmp_path: Path, run_small: Callable[..., dict[str, Any]]
) -> None:
    options = ["dataset=npz", "noise=none", f"data_dir={tmp_path / 'data'}"]
    first = run_small(*options, save_images(tmp_path / "a.npz", 0))
    again = run_small(*options, save_images(tmp_path / "b.npz", 0, np.savez_compressed))
    assert again["run_dir"] == first["run_dir"] and again["lines"] == []
    replaced = run_small(*options, save_images(tmp_path / "a.npz", 1))
    assert replaced["run_id"] != first["run_id"]
    assert replaced["summary"] != first["summary"]
    assert str(tmp_path) not in json.dumps(first["config"])
    assert first["config"]["dataset"].keys() == {"name", "content"}


def test_label_file(tmp_path: Path, configure: Callable[..., RunConfig]) -> None:
    def run_id(path: str, labels: np.ndarray) -> str:
        np.savez(tmp_path / path, worse_label=labels)
        return configure("noise=human", f"noise.path={tmp_path / path}").run_id

    labels = np.zeros(1437, np.int64)
    assert run_id("a.npz", labels) == run_id("b.npz", labels)
    assert run_id("a.npz", labels) != run_id("a.npz", labels + 1)


def test_files_that_are_no_archive_have_the_digest_of_their_bytes(tmp_path: Path) -> None:
    for name, data in (("a.pth", b"one"), ("b.pth", b"one"), ("c.pth", b"two")):
        (tmp_path / name).write_bytes(data)
    a, b, c = (content.file_content(tmp_path / f"{name}.pth", tmp_path) for name in "abc")
    assert a == b != c
    assert content.file_content(tmp_path / "none.pth", tmp_path) == ""


def test_digest_is_read_once_per_version(tmp_path: Path, new_process: Callable[[], None]) -> None:
    path, digests = tmp_path / "file", tmp_path / "data" / content.DIGESTS_FILE
    path.write_bytes(b"one")
    digest = content.file_content(path, tmp_path / "data")
    ((key, stored),) = json.loads(digests.read_text()).values()
    assert stored == digest
    new_process()
    digests.write_text(json.dumps({str(path): [key, "kept"]}))
    assert content.file_content(path, tmp_path / "data") == "kept"
    new_process()
    path.write_bytes(b"two")
    assert content.file_content(path, tmp_path / "data") not in ("kept", digest)
    digests.write_text("damaged")
    new_process()
    path.write_bytes(b"one")
    assert content.file_content(path, tmp_path / "data") == digest


@pytest.mark.parametrize("name", ["digits", "cifar10", "mnist", "fashion_mnist"])
def test_pinned_digest_is_that_of_the_arrays(tmp_path: Path, name: str) -> None:
    """The same before and after the download, and on every machine."""
    info = DATASETS.get(name)
    pinned = content.dataset_content(info, tmp_path / "none", NoParams())
    assert len(pinned) == 16 and info.sha256.startswith(pinned)
    data_dir = default_data_dir()
    if info.missing_files(data_dir):
        pytest.skip(f"{name} is not in {data_dir}")
    assert content._read_digest(info, data_dir, NoParams()) == pinned


def test_changed_array_of_a_downloaded_dataset(tmp_path: Path) -> None:
    info = DATASETS.get("mnist")
    (tmp_path / "mnist").mkdir()
    for name in ARRAY_NAMES:
        np.save(tmp_path / "mnist" / f"{name}.npy", np.zeros(3, np.int64))
    first = content.dataset_content(info, tmp_path, NoParams())
    np.save(tmp_path / "mnist" / "test_labels.npy", np.ones(3, np.int64))
    second = content.dataset_content(info, tmp_path, NoParams())
    assert len({first, second, content.dataset_content(info, tmp_path / "none", NoParams())}) == 3


def test_image_files_have_names_sizes_and_labels(tmp_path: Path) -> None:
    info = DATASETS.get("clothing1m")
    assert content.dataset_content(info, tmp_path, NoParams()) == ""
    root = tmp_path / "clothing1m"
    (root / "images").mkdir(parents=True)

    def digest(label: int, data: bytes) -> str:
        (root / "images" / "0.jpg").write_bytes(data)
        for split in ("noisy_train", "clean_test"):
            (root / f"{split}_key_list.txt").write_text("images/0.jpg\n")
        for kind in ("noisy", "clean"):
            (root / f"{kind}_label_kv.txt").write_text(f"images/0.jpg {label}\n")
        return content.dataset_content(info, tmp_path, NoParams())

    first = digest(3, b"image")
    assert digest(3, b"pixel") == first
    assert len({first, digest(4, b"image"), digest(3, b"larger image")}) == 3
    digest(3, b"image")
    (tmp_path / "other").mkdir()
    os.rename(root, tmp_path / "other" / "clothing1m")
    assert content.dataset_content(info, tmp_path / "other", NoParams()) == first
