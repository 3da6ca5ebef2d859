"""Runs laid out by any two keys, with paired differences from a baseline and average ranks: frames in, data out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd

from methods.core.errors import UserError
from reports.frame.statistics import PairedValue, Pairs, Ranking, mean, pair, ranking

PERCENT = ("summary.best", "summary.last10", "summary.final")
LOWER_IS_BETTER = ("cost.", "time.")  # metrics of which less is better
CONFIG = (
    "dataset",
    "model",
    "partition",
    "noise",
    "method",
    "train",
    "federation",
    "budget",
    "evaluate",
)
Cells = Mapping[tuple[Any, Any], Mapping[int, PairedValue]]


@dataclass(frozen=True)
class Pivot:
    """Numbers by row, column and seed; accuracies in percent."""

    rows: str
    cols: str
    metric: str
    row_values: tuple[Any, ...]
    col_values: tuple[Any, ...]
    cells: Cells
    varying: Mapping[
        str, tuple[str, ...]
    ]  # what else differs between cells, beyond the sections of rows and cols

    @property
    def percent(self) -> bool:
        return self.metric in PERCENT

    @property
    def higher_is_better(self) -> bool:
        return not self.metric.startswith(LOWER_IS_BETTER)

    def values(self, row: Any, col: Any) -> list[float]:
        return [outcome.value for outcome in self.cells.get((row, col), {}).values()]


def select(frame: pd.DataFrame, conditions: Mapping[str, str]) -> pd.DataFrame:
    """Runs that have the given values, compared as text."""
    for key, wanted in conditions.items():
        _require_column(frame, key, key)
        present = {format_value(value) for value in frame[key]}
        for value in wanted.split(","):
            if value not in present:
                raise UserError(
                    f"{key}={value}: no run has it; present: {', '.join(sorted(present))}"
                )
        frame = frame[[matches_filter(row, key, wanted) for row in frame.to_dict("records")]]
    return frame


def matches_filter(row: Mapping[Any, Any], key: str, wanted: str) -> bool:
    """Whether a run has one of the values, or is of a method that knows no such parameter."""
    section, _, name = key.partition(".")
    return format_value(row.get(key)) in wanted.split(",") or (
        section == "method" and name not in row["config"]["method"]
    )


def pivot(frame: pd.DataFrame, rows: str, cols: str, metric: str) -> Pivot:
    """Lay out the runs. Cells must not mix runs that differ in more than their seed."""
    for key, name in ((rows, "rows"), (cols, "cols"), (metric, "metric")):
        _require_column(frame, key, name)
    if rows == cols:
        raise UserError(f"rows={rows} and cols={cols} are the same; legal: two different keys")
    if not pd.api.types.is_numeric_dtype(frame[metric]) or pd.api.types.is_bool_dtype(
        frame[metric]
    ):
        raise UserError(f"metric={metric} is not a number; legal: {', '.join(metrics(frame))}")
    varying = _check_comparable(frame, rows, cols)
    factor = 100 if metric in PERCENT else 1
    cells: dict[tuple[Any, Any], dict[int, PairedValue]] = {}
    for line in frame.to_dict("records"):
        if pd.notna(line[metric]):
            place = (format_value(line[rows]), format_value(line[cols]))
            cells.setdefault(place, {})[line["seed"]] = PairedValue(
                factor * float(line[metric]), line["scene.hash"]
            )
    values = [_ordered(frame[key]) for key in (rows, cols)]
    return Pivot(rows, cols, metric, values[0], values[1], cells, varying)


def paired(table: Pivot, baseline: str) -> dict[tuple[Any, Any], Pairs]:
    """Every cell against the baseline's cell of the same column."""
    if baseline not in table.row_values:
        raise UserError(
            f"baseline={baseline} is not a value of {table.rows}; legal: {', '.join(table.row_values)}"
        )
    return {
        (row, col): pair(table.cells.get((row, col), {}), table.cells.get((baseline, col), {}))
        for row in table.row_values
        for col in table.col_values
        if row != baseline and (row, col) in table.cells
    }


def ranked(table: Pivot) -> tuple[Ranking | None, tuple[Any, ...]]:
    """Ranks of the rows by their means over the columns that all rows have, and the columns left out."""
    complete = [
        col
        for col in table.col_values
        if all((row, col) in table.cells for row in table.row_values)
    ]
    left_out = tuple(col for col in table.col_values if col not in complete)
    if not complete or len(table.row_values) < 2:
        return None, left_out
    means = [[mean(table.values(row, col)) for row in table.row_values] for col in complete]
    return ranking(means, table.higher_is_better), left_out


def metrics(frame: pd.DataFrame) -> list[str]:
    sections = ("summary.", "scores.", "cost.", "time.", "scene.")
    return [
        key
        for key in map(str, frame)
        if key.startswith(sections) and pd.api.types.is_numeric_dtype(frame[key])
    ]


def format_value(value: Any) -> str:
    """A value of the configuration as it is typed: 0.4, fedavg, null."""
    if value is None or (isinstance(value, float) and pd.isna(value)):
        return "null"
    if isinstance(value, (bool, np.bool_)):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def _ordered(series: pd.Series) -> tuple[str, ...]:
    """Distinct values, numbers by size, words by the alphabet, null last."""
    values = {format_value(value): value for value in series}
    rest = {label: value for label, value in values.items() if label != "null"}
    numbers = all(isinstance(value, Real) for value in rest.values())
    labels = sorted(rest, key=lambda label: rest[label] if numbers else label)
    return (*labels, *(label for label in values if label == "null"))


def _require_column(frame: pd.DataFrame, key: str, name: str) -> None:
    if key not in frame:
        legal = metrics(frame) if name == "metric" else _configuration(frame)
        near = get_close_matches(key, legal, n=1)
        what = f"{name}={key}" if name in ("rows", "cols", "metric") else key
        hint = f"; did you mean {near[0]}?" if near else ""
        raise UserError(f"{what}: no run has this key{hint}; legal: {', '.join(legal)}")


def _configuration(frame: pd.DataFrame) -> list[str]:
    return [key for key in map(str, frame) if key == "scale" or key.partition(".")[0] in CONFIG]


def _check_comparable(frame: pd.DataFrame, rows: str, cols: str) -> dict[str, tuple[str, ...]]:
    """Refuse cells of unlike runs, and scales side by side. Returns the keys that vary between cells."""
    scales = sorted(frame["scale"].unique())
    if len(scales) > 1 and "scale" not in (rows, cols):
        raise UserError(
            f"runs of scales {', '.join(scales)} are not comparable; pick one with scale={scales[0]}"
        )
    keys = [key for key in _configuration(frame) if key not in (rows, cols)]
    texts = frame[[rows, cols, *keys]].map(format_value)
    for place, cell in texts.groupby([rows, cols]):
        mixed = [key for key in keys if cell[key].nunique() > 1]
        if mixed:
            key = next((key for key in mixed if key.endswith(".name")), mixed[0])
            values = sorted(cell[key].unique())
            more = (
                f" (and {', '.join(other for other in mixed if other != key)})"
                if len(mixed) > 1
                else ""
            )
            raise UserError(
                f"cell {rows}={place[0]} {cols}={place[1]} mixes runs that differ in {key}{more}: {', '.join(values)};"
                f" pick one with {key}={values[0]}, or lay {key} out with rows= or cols="
            )
    sections = [key.partition(".")[0] for key in (rows, cols)]
    others = [
        key for key in keys if key.partition(".")[0] not in sections and texts[key].nunique() > 1
    ]
    return {key: tuple(sorted(texts[key].unique())) for key in others}
