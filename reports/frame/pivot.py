"""Pivot tables of runs, with paired differences from a baseline and average ranks."""

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from statistics import fmean
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.config.schema import COMPONENTS, HASHED_SECTIONS
from benchmarks.records.record import ACCURACIES
from benchmarks.terminal.command import require_choice
from methods.core.errors import UserError, invalid, unknown
from reports.frame.load import rows_of
from reports.frame.statistics import BySeed, Pairs, Ranking, pair, ranking, supported_best

PERCENTAGES = (*ACCURACIES, "forgetting")  # fractions of the summary, shown in percent
LOWER_IS_BETTER = ("cost.", "time.", "summary.forgetting")  # prefixes of metrics
METRIC_SECTIONS = ("summary.", "reference.", "metrics.", "cost.", "time.", "scenario.")
CONFIG_SECTIONS = ("scale", "protocol", "hyperparameters", *COMPONENTS, *HASHED_SECTIONS)


@dataclass(frozen=True)
class Pivot:
    """Values of a metric by row, column and seed. Accuracies are in percent."""

    rows: str
    cols: str
    metric: str
    row_values: tuple[str, ...]
    col_values: tuple[str, ...]
    cells: Mapping[tuple[str, str], BySeed]
    varying: Mapping[str, tuple[str, ...]]  # other keys that differ between cells, with values

    @property
    def in_percent(self) -> bool:
        return is_percentage(self.metric)

    @property
    def accuracy(self) -> str:
        """Name of the accuracy: `best` of `summary.best` and `reference.clean.best`."""
        return self.metric.rpartition(".")[2] if self.in_percent else ""

    @property
    def higher_is_better(self) -> bool:
        return not self.metric.startswith(LOWER_IS_BETTER)

    def values(self, row: str, col: str) -> list[float]:
        return [*self.cells.get((row, col), {}).values()]

    @property
    def complete_columns(self) -> list[str]:
        """Columns in which every row has a result."""
        return [
            col
            for col in self.col_values
            if all((row, col) in self.cells for row in self.row_values)
        ]


def select(frame: pd.DataFrame, filters: Mapping[str, str]) -> pd.DataFrame:
    """Runs that match all filters. Values are compared as text; commas separate alternatives."""
    for key, wanted in filters.items():
        if key not in frame:
            raise unknown("key", key, _config_keys(frame))
        present = sorted({format_value(value) for value in frame[key]})
        for value in wanted.split(","):
            if value not in present:
                raise UserError(f"invalid {key}={value}: available: {', '.join(present)}")
        frame = frame[[matches_filter(row, key, wanted) for row in rows_of(frame)]]
    return frame


def matches_filter(row: Mapping[str, Any], key: str, wanted: str) -> bool:
    """True if the run has one of the values, or its method has no such parameter."""
    is_absent = key.startswith("method.") and key not in row["config"]
    return is_absent or format_value(row.get(key)) in wanted.split(",")


def pivot(frame: pd.DataFrame, rows: str, cols: str, metric: str) -> Pivot:
    """Arrange the runs by two keys. The runs of one cell may differ in their seeds only."""
    for option, key in (("rows", rows), ("cols", cols)):
        if key not in frame:
            require_choice(option, key, _config_keys(frame))
    require_choice("metric", metric, metrics(frame))
    if rows == cols:
        raise invalid("cols", cols, "another key than rows")
    varying = _check_comparable(frame, rows, cols)
    factor = 100 if is_percentage(metric) else 1
    cells: dict[tuple[str, str], dict[tuple[int, str], float]] = {}
    for row in rows_of(frame):
        if metric in row:
            cell = (format_value(row.get(rows)), format_value(row.get(cols)))
            run = (row["seed"], row["scenario.hash"])
            cells.setdefault(cell, {})[run] = factor * float(row[metric])
    row_values, col_values = _distinct(frame[rows]), _distinct(frame[cols])
    return Pivot(rows, cols, metric, row_values, col_values, cells, varying)


def paired(table: Pivot, baseline: str) -> dict[tuple[str, str], Pairs]:
    """Differences of every cell from the baseline's cell in the same column."""
    require_choice("baseline", baseline, table.row_values)
    return {
        (row, col): pair(table.cells[row, col], table.cells.get((baseline, col), {}))
        for row in table.row_values
        for col in table.col_values
        if row != baseline and (row, col) in table.cells
    }


def supported_cells(table: Pivot) -> set[tuple[str, str]]:
    """Cells that are better than all others of their column, as in `supported_best`."""
    groups = [
        {key: runs for key, runs in table.cells.items() if key[1] == col}
        for col in dict.fromkeys(col for _, col in table.cells)
    ]
    return supported_best(groups, table.higher_is_better)


def ranked(table: Pivot) -> tuple[Ranking | None, tuple[str, ...]]:
    """Rank the rows by their means over the complete columns. Also returns the other columns."""
    complete = table.complete_columns
    excluded = tuple(col for col in table.col_values if col not in complete)
    if not complete or len(table.row_values) < 2:
        return None, excluded
    means = [[fmean(table.values(row, col)) for row in table.row_values] for col in complete]
    return ranking(means, table.higher_is_better), excluded


def is_percentage(metric: str) -> bool:
    """True for accuracies of a run and of its references, and for forgetting."""
    section, _, name = metric.partition(".")
    return section in ("summary", "reference") and name.split(".")[-1] in PERCENTAGES


def metrics(frame: pd.DataFrame) -> list[str]:
    """Numeric columns that are results."""
    return [
        key
        for key in map(str, frame)
        if key.startswith(METRIC_SECTIONS)
        and pd.api.types.is_numeric_dtype(frame[key])
        and not pd.api.types.is_bool_dtype(frame[key])
    ]


def format_value(value: Any) -> str:
    """A configuration value as it is typed: 0.4, fedavg, null."""
    if value is None or (isinstance(value, float) and pd.isna(value)):
        return "null"
    if isinstance(value, (bool, np.bool_)):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def _distinct(series: "pd.Series[Any]") -> tuple[str, ...]:
    """Distinct values as text: numbers by size, strings alphabetically, null last."""
    values = {format_value(value): value for value in series}
    rest = {label: value for label, value in values.items() if label != "null"}
    numeric = all(isinstance(value, Real) for value in rest.values())
    labels = sorted(rest, key=lambda label: rest[label] if numeric else label)
    return (*labels, *(label for label in values if label == "null"))


def _config_keys(frame: pd.DataFrame) -> list[str]:
    return [key for key in map(str, frame) if key.partition(".")[0] in CONFIG_SECTIONS]


def _check_comparable(frame: pd.DataFrame, rows: str, cols: str) -> dict[str, tuple[str, ...]]:
    """Raise if runs of one cell differ in more than the seed, or if scales are mixed.

    Returns the keys outside the sections of `rows` and `cols` that differ between cells.
    """
    scales = sorted(frame["scale"].unique())
    if len(scales) > 1 and "scale" not in (rows, cols):
        raise UserError(
            f"cannot compare runs of scales {', '.join(scales)}: select one with scale={scales[0]}"
        )
    keys = [key for key in _config_keys(frame) if key not in (rows, cols)]
    texts = frame[[rows, cols, *keys]].map(format_value)
    for (row, col), cell in texts.groupby([rows, cols]):
        mixed = [key for key in keys if cell[key].nunique() > 1]
        if mixed:
            key = next((key for key in mixed if key.endswith(".name")), mixed[0])
            others = ", ".join(other for other in mixed if other != key)
            values = sorted(cell[key].unique())
            raise UserError(
                f"cannot average runs of cell {rows}={row} {cols}={col}: they differ in"
                f" {key}{f' (and {others})' if others else ''}: {', '.join(values)};"
                f" select one with {key}={values[0]}, or use {key} as rows= or cols="
            )
    sections = [key.partition(".")[0] for key in (rows, cols)]
    return {
        key: tuple(sorted(texts[key].unique()))
        for key in keys
        if key.partition(".")[0] not in sections and texts[key].nunique() > 1
    }
