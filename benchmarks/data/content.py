"""Digests of the content of data, which are part of a run's identity. Paths are not.

`DATA_DIR/.digests.json` keeps the digest of each file or dataset together with the size and times
of its files, or of the first two levels of its folders. The content is read again only after these
have changed.
"""

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from benchmarks.data import cache
from benchmarks.data.registry import DatasetInfo, Split
from methods.core.archives import read_arrays
from methods.core.errors import UserError

DIGESTS_FILE = ".digests.json"
DIGEST_LENGTH = 16
Stamp = tuple[tuple[str | int, ...], ...]  # path, size and times of each file

KNOWN_DIGESTS = TypeAdapter(dict[str, tuple[str, str]])  # stamp and digest by path
_COMPUTED: dict[Any, str] = {}  # by stamp or component; for the lifetime of the process


def dataset_content(info: DatasetInfo, data_dir: Path, params: Any) -> str:
    """Digest of images and labels, equal on every machine; empty if they are not available.

    Datasets with pinned hashes have their digest before they are downloaded. For image files, names
    and sizes stand for the pixels.
    """
    if info.kind == "file":
        return ""  # `file_content` of its parameter
    if info.missing_files(data_dir) or (info.kind == "bundled" and info.sha256):
        return info.sha256[:DIGEST_LENGTH]
    if info.kind == "bundled":
        return _remember((info.name, repr(params)), lambda: _read_digest(info, data_dir, params))
    paths = [data_dir / info.name / file for file in info.files]
    folders = [entry for path in paths if path.is_dir() for entry in sorted(path.iterdir())]
    return _stored([*paths, *folders], data_dir, lambda: _read_digest(info, data_dir, params))


def file_content(path: Path, data_dir: Path) -> str:
    """Digest of the arrays of an .npz file, or of the bytes of another; empty if it is missing."""
    if not path.is_file():
        return ""
    return _stored([path], data_dir, lambda: _file_digest(path))


def combine(parts: Iterable[str]) -> str:
    """One digest from several."""
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:DIGEST_LENGTH]


def _read_digest(info: DatasetInfo, data_dir: Path, params: Any) -> str:
    content = info.read(info, data_dir, params)
    if isinstance(content, Mapping):
        return cache.digest(content)[:DIGEST_LENGTH]
    return combine(part for split in content for part in _describe_files(split))


def _describe_files(split: Split) -> Iterable[str]:
    from benchmarks.data.images import FileImages

    images, labels = split
    yield from map(str, labels.tolist())
    if isinstance(images, FileImages):
        for path in map(images.path, range(len(images))):
            yield f"{path.relative_to(images.root).as_posix()} {path.stat().st_size}"


def _file_digest(path: Path) -> str:
    with suppress(UserError):
        return combine(
            f"{name} {array.dtype.str} {array.shape} {hashlib.sha256(array.tobytes()).hexdigest()}"
            for name, array in sorted(read_arrays(path).items())
        )
    with open(path, "rb") as file:
        return combine([hashlib.file_digest(file, "sha256").hexdigest()])


def _remember(key: Any, compute: Callable[[], str]) -> str:
    if key not in _COMPUTED:
        _COMPUTED[key] = compute()
    return _COMPUTED[key]


def _stored(paths: Sequence[Path], data_dir: Path, compute: Callable[[], str]) -> str:
    """Digest from the file of digests, or computed and added to it."""
    stats = [(path.absolute(), path.stat()) for path in paths]
    stamp: Stamp = tuple(
        (str(path), stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns) for path, stat in stats
    )
    return _remember(stamp, lambda: _look_up(stamp, data_dir / DIGESTS_FILE, compute))


def _look_up(stamp: Stamp, digests_file: Path, compute: Callable[[], str]) -> str:
    known: dict[str, tuple[str, str]] = {}
    with suppress(OSError, ValueError):
        known = KNOWN_DIGESTS.validate_json(digests_file.read_bytes())
    name, key = str(stamp[0][0]), combine(map(str, stamp))
    if known.get(name, ("", ""))[0] == key:
        return known[name][1]
    digest = compute()
    with suppress(OSError):  # a data directory that cannot be written
        digests_file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=digests_file.parent, delete=False) as file:
            json.dump(known | {name: (key, digest)}, file, indent=1)
        os.replace(file.name, digests_file)
    return digest
