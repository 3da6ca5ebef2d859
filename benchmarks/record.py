"""What a run leaves on disk: one folder, every file written whole or not at all.

record.json (configuration, scene, summary, scores, cost, status), curve.csv (one row per test), journal.jsonl (arrays a method wants kept),
config.yaml (what to type again), scene.npz, log.txt, and while the run is under way checkpoint.bin with the one before it.
"""

import csv
import hashlib
import io
import json
import os
import pickle
import platform
import re
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import yaml

from benchmarks.errors import UserError

FINISHED = (
    "done",
    "diverged",
)  # both are results of the configuration; a failed run is tried again
PACKAGES = ("torch", "torchvision", "numpy", "scikit-learn", "pandas", "hydra-core")


class DamagedRecord(UserError):
    """A record that cannot be read; the message names the file."""


def write_whole(path: Path, data: bytes) -> None:
    """Write beside the target, flush to the disk, then rename over it. What a crash leaves beside it, the next writer takes over."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.partial")
    with open(temporary, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def without_home(value: Any) -> Any:
    """Plain data in which the home folder, whose name is often a person's, is written ~."""
    if isinstance(value, str):
        home = str(Path.home())
        return (
            re.sub(rf"(?<![\w.~-]){re.escape(home)}(?![\w.-])", "~", value)
            if len(home) > 1
            else value
        )
    if isinstance(value, Mapping):
        return {key: without_home(entry) for key, entry in value.items()}
    return [without_home(entry) for entry in value] if isinstance(value, (list, tuple)) else value


def write_json(path: Path, value: Any) -> None:
    write_whole(
        path,
        (
            json.dumps(without_home(value), indent=1, sort_keys=False, allow_nan=False) + "\n"
        ).encode(),
    )


def write_yaml(path: Path, value: Any) -> None:
    write_whole(path, yaml.safe_dump(without_home(value), sort_keys=False).encode())


def write_curve(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    columns = list(dict.fromkeys(name for row in rows for name in row))
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_whole(path, buffer.getvalue().encode())


def write_journal(path: Path, entries: Sequence[Mapping[str, Any]]) -> None:
    write_whole(path, "".join(json.dumps(entry) + "\n" for entry in entries).encode())


def read_record(folder: Path) -> dict[str, Any] | None:
    """The record of a run folder, None when the run is not finished."""
    path = folder / "record.json"
    try:
        record = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except (ValueError, OSError) as error:
        raise DamagedRecord(
            f"{path} is damaged ({type(error).__name__}); delete it to run the cell again"
        ) from error
    if not isinstance(record, dict) or "status" not in record:
        raise DamagedRecord(f"{path} is damaged (no status); delete it to run the cell again")
    return record


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


class CheckpointFile:
    """The newest state and the one before it, each with its hash in front."""

    def __init__(self, folder: Path):
        self.newest = folder / "checkpoint.bin"
        self.previous = folder / "checkpoint.previous.bin"

    def save(self, payload: bytes) -> None:
        if self.newest.exists():
            os.replace(self.newest, self.previous)
        write_whole(self.newest, hashlib.sha256(payload).digest() + payload)

    def load(self) -> tuple[Any, list[str]]:
        """The newest state that is whole, or None; and a line for each file that was not."""
        complaints: list[str] = []
        for path, instead in (
            (self.newest, "going back to the one before it"),
            (self.previous, "starting anew"),
        ):
            if not path.exists():
                continue
            data = path.read_bytes()
            if len(data) > 32 and hashlib.sha256(data[32:]).digest() == data[:32]:
                return pickle.loads(data[32:]), complaints
            complaints.append(
                f"{path} is damaged ({len(data)} bytes, hash does not match); {instead}"
            )
            path.unlink()  # the next save must not move it over a whole one
        return None, complaints

    def delete(self) -> None:
        self.newest.unlink(missing_ok=True)
        self.previous.unlink(missing_ok=True)
