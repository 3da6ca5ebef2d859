"""Records of runs as one frame, a row per run. What cannot be used is named in one line each; the rest is loaded.

Columns are the configuration under dotted keys (`seed`, `scale`, `noise.rho`, `method.name`), then `scene.hash`,
`summary.best`, `summary.last10`, `scores.<score>`, `cost.participations`, `time.seconds_method` and so on, as
record.json has them. Accuracies are shares, not percentages. `folder` is where the run lies, `config` its configuration
as nested plain data.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.records.files import RECORD_FILE
from benchmarks.records.record import CorruptRecordError, read_record

PLAIN = ("run_id", "status", "reason", "oracle", "rounds")
SECTIONS = ("scene", "summary", "scores", "cost", "time")
NAMES = ("dataset.name", "model.name", "partition.name", "noise.name", "method.name")
REQUIRED_KEYS = ("run_id", "seed", "scale", *NAMES, "budget.participations")
REQUIRED_WHEN_DONE = (
    "scene.hash",
    "summary.best",
    "summary.last10",
    "summary.final",
    "cost.participations",
)
UNFINISHED_MARKERS = (
    "scene.npz",
    "checkpoint.bin",
    ".lock",
)  # any of them without record.json: a run that has not ended


Row = dict[str, Any]  # one run: its columns of the frame


@dataclass(frozen=True)
class Runs:
    """What lies below some folders."""

    done: pd.DataFrame
    unsuccessful: (
        pd.DataFrame
    )  # diverged and failed runs; excluded from means, reported next to them
    warnings: tuple[str, ...]
    unfinished_dirs: tuple[Path, ...] = ()


def load_runs(folders: Iterable[str | Path]) -> Runs:
    """All records below the folders. Whatever is left out is in `warnings`, a line each."""
    rows: dict[str, dict[str, Any]] = {}
    warnings: list[str] = []
    under_way: list[Path] = []
    for folder in map(Path, folders):
        if not folder.is_dir():
            warnings.append(f"{folder}: no such directory")
        for place, ended in _places(folder):
            if not ended:
                warnings.append(unfinished_warning(place))
                under_way.append(place)
                continue
            try:
                row = _row(place)
            except CorruptRecordError as error:
                warnings.append(str(error))
                continue
            if row["status"] != "done":
                warnings.append(f"{place}: {row['status']}: {row['reason']}; left out")
            first = rows.get(row["run_id"])
            if first is None or (first["status"] != "done" and row["status"] == "done"):
                rows[row["run_id"]] = row
            elif row["status"] == "done" and first["run_dir"].resolve() != place.resolve():
                same = all(
                    first.get(key) == value
                    for key, value in row.items()
                    if key.startswith("summary.")
                )
                what = "the same run as" if same else "other numbers for the same run as"
                warnings.append(f"{place}: {what} {first['run_dir']}; the latter counts")
    ordered = sorted(
        rows.values(), key=lambda row: (row["method.name"], row["seed"], row["run_id"])
    )
    done = [row for row in ordered if row["status"] == "done"]
    lost = [row for row in ordered if row["status"] != "done"]
    return Runs(_frame(done), _frame(lost), tuple(warnings), tuple(under_way))


def unfinished_warning(place: Path) -> str:
    """The warning about a run that has not ended; a reader that shows such runs takes it back."""
    return f"{place}: unfinished, no record.json yet; left out"


def flatten(nested: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested sections under dotted keys; lists become tuples, so that every value can be a label."""
    flat: dict[str, Any] = {}
    for key, value in nested.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = _hashable(value)
    return flat


def rows_of(frame: pd.DataFrame, method: str = "") -> list[Row]:
    """Rows of a frame as dictionaries, optionally of one method only."""
    rows = [{str(key): value for key, value in row.items()} for row in frame.to_dict("records")]
    return [row for row in rows if method in ("", row["method.name"])]


def _hashable(value: Any) -> Any:
    return tuple(_hashable(entry) for entry in value) if isinstance(value, list) else value


def _places(folder: Path) -> Iterable[tuple[Path, bool]]:
    """Folders of runs and whether they ended, in a stable order."""
    for root, inner, files in os.walk(folder):
        inner[:] = sorted(name for name in inner if not name.startswith("."))
        if "record.json" in files:
            yield Path(root), True
        elif any(name in files for name in UNFINISHED_MARKERS):
            yield Path(root), False


def _row(place: Path) -> dict[str, Any]:
    record = read_record(place)
    if record is None:
        raise CorruptRecordError(f"cannot read {place / RECORD_FILE}: deleted meanwhile")
    content = record.to_dict()
    config = {key: value for key, value in record.config.items() if key != "protocol"}
    row = {name: getattr(record, name) for name in PLAIN} | flatten(config)
    row |= flatten({name: content[name] for name in SECTIONS})
    return row | {"run_dir": place, "config": config}


def _frame(rows: list[dict[str, Any]]) -> pd.DataFrame:
    columns = dict.fromkeys([*PLAIN, *REQUIRED_KEYS, *REQUIRED_WHEN_DONE, "run_dir", "config"])
    for row in rows:
        columns |= dict.fromkeys(row)
    series = {name: pd.Series([row.get(name) for row in rows], dtype=object) for name in columns}
    return pd.DataFrame({name: values.infer_objects() for name, values in series.items()})
