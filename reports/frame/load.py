"""Run records as one frame with a row per run. Unusable records are reported in one line each.

Columns are the configuration under dotted keys (`seed`, `scale`, `noise.rho`, `method.name`) and
the fields of `benchmarks.records.record.Record`: `status`, `scenario.hash`, `summary.best`,
`metrics.clients/f1`, `cost.participations`, `time.seconds_method` and so on. Accuracies are
fractions. `summary.forgetting` is best minus last10. `reference.given.best`,
`reference.clean.best` and so on are the accuracies of the run's reference runs. `run_dir` is the
run directory, `config` has the keys and values of the configuration that this run has.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

from benchmarks.config.labels import protocol_caption
from benchmarks.records.files import CHECKPOINT_FILE, RECORD_FILE, SCENARIO_FILE
from benchmarks.records.record import ACCURACIES, CONFIG_TYPES, Record, read_record
from benchmarks.records.references import find_references, is_reference
from benchmarks.terminal import command
from methods.core.errors import UserError

SCALARS = ("run_id", "status", "reason", "oracle", "rounds")
SECTIONS = ("scenario", "summary", "metrics", "cost", "time")
RESULTS = tuple(f"summary.{name}" for name in ("best", "last10", "final", "forgetting"))
# A run directory with one of these files but without a record is unfinished.
UNFINISHED_MARKERS = {SCENARIO_FILE, CHECKPOINT_FILE}

Row = dict[str, Any]  # one run: its columns of the frame
Key = TypeVar("Key")


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
        rows = [*rows_of(self.done), *rows_of(self.unsuccessful)]
        names = group_by(rows, lambda row: (row["scale"], row["dataset.name"], row["method.name"]))
        return {key: _by_configuration(members) for key, members in names.items()}


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
            except UserError as error:
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
        is_done, references = row["status"] == "done", found.get(row["run_id"])
        if is_reference(records[row["run_dir"]]):
            groups["references"] += [row] * is_done
            continue
        for labels, record in references._asdict().items() if references else ():
            row |= {f"reference.{labels}.{x}": getattr(record.summary, x) for x in ACCURACIES}
        groups["done" if is_done else "unsuccessful"].append(row)
    frames = {name: _frame(members) for name, members in groups.items()}
    warnings += _device_warnings(groups["done"])
    return Runs(**frames, warnings=tuple(warnings), unfinished_dirs=tuple(unfinished))


def load_finished_runs(option: str) -> Runs:
    """The runs of an option `runs=DIR,...`. Prints the warnings; raises if no run is finished."""
    directories = command.split_dirs(option, must_exist=True)
    runs = load_runs(directories)
    command.print_warnings(runs.warnings)
    if len(runs.done) == 0:
        raise UserError(f"no completed runs found in {', '.join(directories)}")
    return runs


def group_by(rows: Iterable[Row], key: Callable[[Row], Key]) -> dict[Key, list[Row]]:
    """Runs with the same key, in order of first occurrence."""
    groups: dict[Key, list[Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups


def unfinished_warning(run_dir: Path) -> str:
    """Warning about an unfinished run; dropped if the report shows unfinished runs."""
    return f"{run_dir}: unfinished, no {RECORD_FILE}; excluded"


def flat_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Configuration of a record under the keys of the command line, without protocol version."""
    flat = flatten({key: value for key, value in config.items() if key != "protocol_version"})
    if "precision" in flat:
        flat["executor.precision"] = flat.pop("precision")
    return flat


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


def rows_of(frame: pd.DataFrame) -> list[Row]:
    """Rows of a frame as dictionaries without missing values."""
    return [
        # NaN, unequal to itself, marks a missing value of the frame.
        {str(key): value for key, value in row.items() if value is not None and value == value}
        for row in frame.to_dict("records")
    ]


def _hashable(value: Any) -> Any:
    return tuple(map(_hashable, value)) if isinstance(value, list) else value


def _by_configuration(rows: Iterable[Row]) -> list[list[Row]]:
    """Groups of runs that differ in the seed only."""

    def without_seed(row: Row) -> frozenset[tuple[str, Any]]:
        return frozenset(item for item in row["config"].items() if item[0] != "seed")

    return list(group_by(rows, without_seed).values())


def _run_dirs(directory: Path) -> Iterable[Path]:
    """Run directories below a directory, in alphabetical order."""
    for root, inner, files in os.walk(directory):
        inner[:] = sorted(name for name in inner if not name.startswith("."))
        if RECORD_FILE in files or UNFINISHED_MARKERS & set(files):
            yield Path(root)


def _row(run_dir: Path, record: Record) -> Row:
    config = flat_config(record.config)
    sections = record.model_dump(include=set(SECTIONS), exclude_unset=True)
    row = {"executor.precision": "fp32"} | config | flatten(sections)
    row |= {name: getattr(record, name) for name in SCALARS}
    if {"summary.best", "summary.last10"} <= row.keys():
        row["summary.forgetting"] = row["summary.best"] - row["summary.last10"]
    return row | {"run_dir": run_dir, "config": config}


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
    """One line for each configuration whose seeds ran on devices that round differently."""
    warnings = []
    for seeds in _by_configuration(rows):
        devices = group_by(seeds, _device)
        if len(devices) > 1:
            listed = ", ".join(f"{name} ({runs[0]['run_id']})" for name, runs in devices.items())
            warnings.append(f"seeds of one cell ran on different devices: {listed}")
    return warnings


def _device(row: Row) -> str:
    name = row.get("time.device.name") or row.get("time.device.type", "cpu")
    details = (row.get(f"time.device.{key}", "") for key in ("instruction_set", "arithmetic"))
    return " ".join(filter(None, (name, *details)))


def _frame(rows: list[Row]) -> pd.DataFrame:
    known = (*SCALARS, *CONFIG_TYPES, "scenario.hash", *RESULTS, "run_dir", "config")
    columns = dict.fromkeys([*known, *(key for row in rows for key in row)])
    series = {name: pd.Series([row.get(name) for row in rows], dtype=object) for name in columns}
    return pd.DataFrame({name: values.infer_objects() for name, values in series.items()})
