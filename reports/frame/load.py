"""Run records as one frame with a row per run. Unusable records are reported in one line each.

Columns are the configuration under dotted keys (`seed`, `scale`, `noise.rho`, `method.name`) and
the fields of `benchmarks.records.record.Record`: `status`, `scenario.hash`, `summary.best`,
`metrics.clients/f1`, `cost.participations`, `time.seconds_method` and so on. Accuracies are
fractions. `summary.forgetting` is best minus last10. `reference.given.best`,
`reference.clean.best` and so on are the accuracies of the run's reference runs. `run_dir` is the
run directory, `config` has the keys and values of the configuration that this run has.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.config.labels import protocol_caption
from benchmarks.records.files import CHECKPOINT_FILE, RECORD_FILE, SCENARIO_FILE
from benchmarks.records.record import (
    ACCURACIES,
    CONFIG_TYPES,
    CorruptRecordError,
    Record,
    read_record,
)
from benchmarks.records.references import References, find_references, is_reference

SCALARS = ("run_id", "status", "reason", "oracle", "rounds")
SECTIONS = ("scenario", "summary", "metrics", "cost", "time")
RESULT_KEYS = (
    "scenario.hash",
    "summary.best",
    "summary.last10",
    "summary.final",
    "summary.forgetting",
)
# A run directory with one of these files but without a record is unfinished.
UNFINISHED_MARKERS = {SCENARIO_FILE, CHECKPOINT_FILE}

Row = dict[str, Any]  # one run: its columns of the frame


@dataclass(frozen=True)
class Runs:
    """All runs below some directories. Those on clean labels are in `references` only."""

    done: pd.DataFrame
    unsuccessful: pd.DataFrame  # diverged and failed runs; excluded from means but reported
    warnings: tuple[str, ...]
    references: pd.DataFrame
    unfinished_dirs: tuple[Path, ...] = ()

    @cached_property
    def configurations(self) -> dict[tuple[str, str, str], list[list[Row]]]:
        """By scale, dataset and method: the runs of each configuration, which differ in the seed.

        Completed runs are first. Runs on clean labels are left out.
        """
        found: dict[Any, dict[Any, list[Row]]] = {}
        for row in [*rows_of(self.done), *rows_of(self.unsuccessful)]:
            names = row["scale"], row["dataset.name"], row["method.name"]
            key = frozenset(item for item in row["config"].items() if item[0] != "seed")
            found.setdefault(names, {}).setdefault(key, []).append(row)
        return {names: list(rows.values()) for names, rows in found.items()}


def load_runs(directories: Iterable[str | Path]) -> Runs:
    """Read all records below the directories. Excluded runs have one warning each."""
    rows: dict[str, Row] = {}
    records: dict[Path, Record] = {}
    warnings: list[str] = []
    unfinished: list[Path] = []
    for directory in map(Path, directories):
        if not directory.is_dir():
            warnings.append(f"{directory}: no such directory")
        for run_dir in _run_dirs(directory):
            try:
                record = read_record(run_dir)
            except CorruptRecordError as error:
                warnings.append(f"{error}; excluded")
                continue
            if record is None:
                warnings.append(unfinished_warning(run_dir))
                unfinished.append(run_dir)
            else:
                records[run_dir] = record
                warnings += _add(rows, _row(run_dir, record))
    ordered = sorted(
        rows.values(), key=lambda row: (row["method.name"], row["seed"], row["run_id"])
    )
    found = find_references(records[row["run_dir"]] for row in ordered)
    groups: dict[str, list[Row]] = {"done": [], "unsuccessful": [], "references": []}
    for row in ordered:
        is_done = row["status"] == "done"
        if is_reference(records[row["run_dir"]]):
            groups["references"] += [row] * is_done
        else:
            row |= _reference_columns(found.get(row["run_id"]))
            groups["done" if is_done else "unsuccessful"].append(row)
    frames = {name: _frame(members) for name, members in groups.items()}
    warnings += _device_warnings(groups["done"])
    return Runs(**frames, warnings=tuple(warnings), unfinished_dirs=tuple(unfinished))


def unfinished_warning(run_dir: Path) -> str:
    """Warning about an unfinished run; dropped if the report shows unfinished runs."""
    return f"{run_dir}: unfinished, no {RECORD_FILE}; excluded"


def flatten(nested: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested sections under dotted keys. Lists become tuples, so that every value is hashable."""
    flat: dict[str, Any] = {}
    for key, value in nested.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = _hashable(value)
    return flat


def caption_of(rows: Iterable[Row]) -> str:
    """Protocols and hyperparameters of some runs, for the caption of a table."""
    return protocol_caption(
        (row.get("protocol", "unknown"), row.get("hyperparameters", "unknown"), row["method.name"])
        for row in rows
    )


def rows_of(frame: pd.DataFrame, method: str = "") -> list[Row]:
    """Rows of a frame as dictionaries without missing values, optionally of one method only."""
    rows = [
        # NaN, unequal to itself, marks a missing value of the frame.
        {str(key): value for key, value in row.items() if value is not None and value == value}
        for row in frame.to_dict("records")
    ]
    return [row for row in rows if method in ("", row["method.name"])]


def _hashable(value: Any) -> Any:
    return tuple(_hashable(entry) for entry in value) if isinstance(value, list) else value


def _run_dirs(directory: Path) -> Iterable[Path]:
    """Run directories below a directory, in alphabetical order."""
    for root, inner, files in os.walk(directory):
        inner[:] = sorted(name for name in inner if not name.startswith("."))
        if RECORD_FILE in files or UNFINISHED_MARKERS & set(files):
            yield Path(root)


def _row(run_dir: Path, record: Record) -> Row:
    config = flatten(
        {key: value for key, value in record.config.items() if key != "protocol_version"}
    )
    sections = record.model_dump(include=set(SECTIONS), exclude_unset=True)
    row = config | {name: getattr(record, name) for name in SCALARS} | flatten(sections)
    if {"summary.best", "summary.last10"} <= row.keys():
        row["summary.forgetting"] = row["summary.best"] - row["summary.last10"]
    return row | {"run_dir": run_dir, "config": config}


def _reference_columns(references: References | None) -> Row:
    pairs = references._asdict().items() if references else ()
    return {
        f"reference.{labels}.{name}": getattr(record.summary, name)
        for labels, record in pairs
        for name in ACCURACIES
    }


def _add(rows: dict[str, Row], row: Row) -> list[str]:
    """Add a run to `rows` unless they have it. Completed runs replace others. Returns warnings."""
    run_dir, done = row["run_dir"], row["status"] == "done"
    warnings = [] if done else [f"{run_dir}: {row['status']}: {row['reason']}; excluded"]
    first = rows.get(row["run_id"])
    if first is None or (done and first["status"] != "done"):
        rows[row["run_id"]] = row
    elif done and first["run_dir"].resolve() != run_dir.resolve():
        keys = [key for key in row if key.startswith("summary.")]
        equal = all(first.get(key) == row[key] for key in keys)
        relation = "same results as" if equal else "other results than"
        warnings.append(f"{run_dir}: {relation} {first['run_dir']} with the same run id; ignored")
    return warnings


def _device_warnings(rows: Iterable[Row]) -> list[str]:
    """One line for each configuration whose seeds ran on different devices or instruction sets."""
    devices: dict[Any, dict[str, str]] = {}
    for row in rows:
        key = tuple(sorted((k, repr(v)) for k, v in row["config"].items() if k != "seed"))
        name = row.get("time.device.name") or row.get("time.device.type", "cpu")
        name = f"{name} {row.get('time.device.instruction_set', '')}".strip()
        devices.setdefault(key, {}).setdefault(name, row["run_id"])
    mixed = [
        ", ".join(f"{d} ({i})" for d, i in one.items()) for one in devices.values() if len(one) > 1
    ]
    return [f"seeds of one cell ran on different devices: {text}" for text in mixed]


def _frame(rows: list[Row]) -> pd.DataFrame:
    columns = dict.fromkeys([*SCALARS, *CONFIG_TYPES, *RESULT_KEYS, "run_dir", "config"])
    for row in rows:
        columns |= dict.fromkeys(row)
    series = {name: pd.Series([row.get(name) for row in rows], dtype=object) for name in columns}
    return pd.DataFrame({name: values.infer_objects() for name, values in series.items()})
