"""Unfinished runs as rows, from config.yaml and the learning curve so far."""

from pathlib import Path
from typing import Any

import yaml

from benchmarks.config.schema import COMPONENTS, HASHED_SECTIONS, drop_defaults
from benchmarks.records.files import CONFIG_FILE
from benchmarks.records.lease import read_lease
from reports.frame.load import REQUIRED_KEYS, Row, Runs, flatten, unfinished_warning


def unfinished_rows(runs: Runs) -> tuple[list[Row], list[str]]:
    """Rows of the unfinished runs, and the warnings about all other runs."""
    frames = (runs.done, runs.unsuccessful, runs.references)
    finished = {run_id for frame in frames for run_id in frame["run_id"]}
    rows: dict[str, Row] = {}
    for run_dir in runs.unfinished_dirs:
        row = _row(run_dir)
        if row is not None and row["run_id"] not in finished:
            rows.setdefault(row["run_id"], row)
    shown = {unfinished_warning(row["run_dir"]) for row in rows.values()}
    return list(rows.values()), [line for line in runs.warnings if line not in shown]


def is_stale(run_dir: Path) -> bool:
    """True if no process executes the run."""
    lease = read_lease(run_dir)
    return lease is None or lease.is_stale


def _row(run_dir: Path) -> Row | None:
    """None if the configuration is missing or cannot be read."""
    try:
        raw = yaml.safe_load((run_dir / CONFIG_FILE).read_text(encoding="utf-8"))
        config: dict[str, Any] = {key: raw[key] for key in ("seed", "scale", *HASHED_SECTIONS)}
        names = ("protocol", "hyperparameters", "labels")
        config = drop_defaults(config | {key: raw[key] for key in names if key in raw})
        for group in COMPONENTS:
            config[group] = {"name": raw[group]["name"], **raw[group]["params"]}
        status = "stopped" if is_stale(run_dir) else "running"
        row: Row = {"run_id": run_dir.name, "status": status, "reason": "", "oracle": ""}
        row |= flatten(config) | {"run_dir": run_dir, "config": flatten(config)}
    except (OSError, ValueError, TypeError, KeyError, yaml.YAMLError):
        return None
    return row if all(row.get(key) is not None for key in REQUIRED_KEYS) else None
