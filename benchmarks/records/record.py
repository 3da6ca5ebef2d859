"""What a run leaves on disk: one folder, every file written whole or not at all.

record.json (configuration, scene, summary, scores, cost, status), curve.csv (one row per test), journal.jsonl (arrays a method wants kept),
config.yaml (what to type again), scene.npz, log.txt, and while the run is under way checkpoint.bin with the one before it.
"""

import json
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from methods.core.errors import UserError

FINISHED = (
    "done",
    "diverged",
)  # both are results of the configuration; a failed run is tried again


PACKAGES = ("torch", "torchvision", "numpy", "scikit-learn", "pandas", "hydra-core")


class CorruptRecordError(UserError):
    """A record that cannot be read; the message names the file."""


def read_record(folder: Path) -> dict[str, Any] | None:
    """The record of a run folder, None when the run is not finished."""
    path = folder / "record.json"
    try:
        record = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except (ValueError, OSError) as error:
        raise CorruptRecordError(
            f"{path} is damaged ({type(error).__name__}); delete it to run the cell again"
        ) from error
    if not isinstance(record, dict) or "status" not in record:
        raise CorruptRecordError(f"{path} is damaged (no status); delete it to run the cell again")
    return record


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
