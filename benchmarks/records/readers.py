"""Readers of the other files of a run directory. Unreadable files are one-line user errors."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.records.files import CURVE_FILE, JOURNAL_FILE, OLD_SCENARIO_FILE, SCENARIO_FILE
from methods.core.archives import read_arrays
from methods.core.errors import UserError
from methods.core.renames import RENAMED_KEYS


def read_curve(run_dir: Path, *columns: str) -> pd.DataFrame:
    """Learning curve, one row per evaluation: round, stage, participations, accuracy, metrics.

    Raises UserError if one of these columns or of `columns` is missing.
    """
    path = run_dir / CURVE_FILE
    try:
        curve = pd.read_csv(path).rename(
            columns=lambda name: RENAMED_KEYS.get(f"scores.{name}", name)
        )
    except (ValueError, OSError) as error:
        raise _unreadable(path, error) from error
    for column in ("round", "participations", "accuracy", *columns):
        if column not in curve:
            raise UserError(f"cannot read {path}: no column {column}")
        if curve[column].isna().any() or not pd.api.types.is_numeric_dtype(curve[column]):
            raise UserError(f"cannot read {path}: column {column} has values that are not numbers")
    return curve


def read_journal(run_dir: Path) -> list[dict[str, Any]]:
    """Diagnostics journal, one entry per evaluation with arrays; empty if there is no file."""
    path = run_dir / JOURNAL_FILE
    try:
        entries = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except FileNotFoundError:
        return []
    except (ValueError, RecursionError, OSError) as error:
        raise _unreadable(path, error) from error
    if not all(isinstance(entry, dict) for entry in entries):
        raise UserError(f"cannot read {path}: a line is not a JSON object")
    return entries


def read_scenario(run_dir: Path) -> dict[str, np.ndarray]:
    """Arrays of the scenario that figures show."""
    path = run_dir / SCENARIO_FILE
    if not path.exists() and (old := run_dir / OLD_SCENARIO_FILE).exists():
        path = old
    names = ("clean_counts", "client_rate", "client_level", "transition")
    arrays = read_arrays(path, names)
    if missing := [name for name in names if name not in arrays]:
        raise UserError(f"cannot read {path}: it has no array {', '.join(missing)}")
    return arrays


def _unreadable(path: Path, error: Exception) -> UserError:
    reason = "no such file" if isinstance(error, FileNotFoundError) else type(error).__name__
    return UserError(f"cannot read {path}: {reason}")
