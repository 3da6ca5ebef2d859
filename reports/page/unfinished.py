"""Runs that have not ended, as rows beside those that have: from config.yaml and the curve so far."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from reports.figures.select import Row
from reports.frame.load import REQUIRED_KEYS, Runs, flatten, unfinished_warning

ROOMS = ("dataset", "model", "partition", "noise", "method")
SECTIONS = ("train", "federation", "budget", "evaluate")
QUIET = 600.0  # seconds without a new file after which nobody seems to be at work


def running(runs: Runs) -> tuple[list[Row], list[str]]:
    """Rows of the runs under way, and the warnings that remain: a run that is shown is not left out."""
    known = {*runs.done["run_id"], *runs.unsuccessful["run_id"]}
    rows: dict[str, Row] = {}
    for place in runs.unfinished_dirs:
        row = _row(place)
        if row is not None and row["run_id"] not in known:
            rows.setdefault(row["run_id"], row)
    shown = {unfinished_warning(row["run_dir"]) for row in rows.values()}
    return list(rows.values()), [line for line in runs.warnings if line not in shown]


def quiet(place: Path) -> bool:
    """Whether the run wrote nothing for long: it was stopped, or a round takes longer than that."""
    return time.time() - max(_times(place), default=0.0) > QUIET


def _times(place: Path) -> Iterator[float]:
    for name in ("log.txt", "curve.csv", "checkpoint.bin", "config.yaml"):
        with suppress(FileNotFoundError):  # a file may be about to be replaced
            yield (place / name).stat().st_mtime


def _row(place: Path) -> Row | None:
    """None where the configuration is not there yet, or cannot be read."""
    try:
        raw = yaml.safe_load((place / "config.yaml").read_text(encoding="utf-8"))
        config: dict[str, Any] = {"seed": raw["seed"], "scale": raw["scale"]}
        config |= {room: {"name": raw[room]["name"], **raw[room]["params"]} for room in ROOMS}
        config |= {section: raw[section] for section in SECTIONS}
        status = "stopped" if quiet(place) else "running"
        row: Row = {"run_id": place.name, "status": status, "reason": "", "oracle": ""}
        row |= flatten(config) | {"run_dir": place, "config": config}
    except (OSError, ValueError, TypeError, KeyError, yaml.YAMLError):
        return None
    return row if all(row.get(key) is not None for key in REQUIRED_KEYS) else None
