"""Runs arranged by two keys of their configuration."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.config.schema import COMPONENTS, HASHED_SECTIONS
from benchmarks.records.record import ACCURACIES
from benchmarks.terminal.command import require_choice
from methods.core.errors import UserError, invalid, unknown
from reports.frame.load import Row, group_by, rows_of
from reports.frame.statistics import BySeed, common_seeds

PERCENTAGES = (*ACCURACIES, "forgetting")  # fractions of the summary, shown in percent
LOWER_IS_BETTER = (  # prefixes of metrics
    *("cost.", "time.", "summary.forgetting", "metrics.clients/rate_error"),
    *("metrics.labels/harmed", "metrics.memorization/wrong"),
)
METRIC_SECTIONS = ("summary.", "reference.", "metrics.", "cost.", "time.", "scenario.")
CONFIG_SECTIONS = (
    *("scale", "protocol", "hyperparameters", *COMPONENTS, *HASHED_SECTIONS),
    "executor",  # its precision
)


@dataclass(frozen=True)
class Pivot:
    """Runs by row and column. The runs of a cell differ in the seed only."""

    rows: str
    cols: str
    metric: str
    row_values: tuple[str, ...]
    col_values: tuple[str, ...]
    cells: Mapping[tuple[str, str], Sequence[Row]]
    varying: Mapping[str, tuple[str, ...]]  # other keys that differ between cells, with values

    def by_seed(self, row: str, col: str, metric: str = "") -> BySeed:
        """Values of a cell, by default of the pivot's metric. Accuracies are in percent."""
        metric = metric or self.metric
        factor = 100 if is_percentage(metric) else 1
        runs = [run for run in self.cells.get((row, col), ()) if metric in run]
        return {(run["seed"], run["scenario.hash"]): factor * float(run[metric]) for run in runs}

    def values(self, row: str, col: str, metric: str = "") -> list[float]:
        return [*self.by_seed(row, col, metric).values()]

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

    @cached_property
    def common(self) -> dict[str, dict[str, list[float]]]:
        """Values of the seeds that all rows have, by column and row, without empty columns."""
        columns = {}
        for col in self.col_values:
            cells = {row: self.by_seed(row, col) for row in self.row_values}
            columns[col] = common_seeds(
                {row: {seed: v for (seed, _), v in cell.items()} for row, cell in cells.items()}
            )
        return {col: values for col, values in columns.items() if values}


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


def matches_filter(row: Row, key: str, wanted: str) -> bool:
    """True if the run has one of the values, or its method has no such parameter."""
    is_absent = key.startswith("method.") and key not in row["config"]
    return is_absent or format_value(row.get(key)) in wanted.split(",")


def pivot(frame: pd.DataFrame, rows: str, cols: str, metric: str) -> Pivot:
    """Arrange the runs by two keys."""
    for option, key in (("rows", rows), ("cols", cols)):
        if key not in frame:
            require_choice(option, key, _config_keys(frame))
    require_choice("metric", metric, metrics(frame))
    if rows == cols:
        raise invalid("cols", cols, "another key than rows")
    varying = _check_comparable(frame, rows, cols)
    runs = rows_of(frame)
    cells = group_by(runs, lambda run: (format_value(run.get(rows)), format_value(run.get(cols))))
    row_values, col_values = _distinct(frame[rows]), _distinct(frame[cols])
    return Pivot(rows, cols, metric, row_values, col_values, cells, varying)


def reference_accuracies(runs: Sequence[Row], name: str) -> list[list[float]]:
    """An accuracy of each run and of its references on given and on clean labels, if it has both.

    This is the input of `statistics.damage_repaired`.
    """
    keys = [f"{section}.{name}" for section in ("summary", "reference.given", "reference.clean")]
    return [[run[key] for key in keys] for run in runs if all(key in run for key in keys)]


def is_percentage(metric: str) -> bool:
    """True for accuracies of a run and of its references, and for forgetting."""
    section, _, name = metric.partition(".")
    return section in ("summary", "reference") and name.split(".")[-1] in PERCENTAGES


def metrics(frame: pd.DataFrame) -> list[str]:
    """Numeric columns that are results."""
    numeric = frame.select_dtypes("number").columns
    return [key for key in map(str, numeric) if key.startswith(METRIC_SECTIONS)]


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
    numeric = all(isinstance(value, Real) for label, value in values.items() if label != "null")
    return tuple(
        sorted(values, key=lambda label: (label == "null", values[label] if numeric else label))
    )


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
    other_keys = [key for key in keys if key.partition(".")[0] not in sections]
    return {key: tuple(sorted(set(texts[key]))) for key in other_keys if texts[key].nunique() > 1}
