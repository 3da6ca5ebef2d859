"""Published result tables. Every file is validated against the layout of its experiment."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import product, zip_longest
from pathlib import Path
from typing import Any, Literal

import yaml

from benchmarks.config.experiments import (
    Experiment,
    Heading,
    Selection,
    find_heading,
    load_experiment,
    merge_overrides,
)
from methods.core.errors import UserError, unknown
from methods.core.params import Tuple, build_params, parameters

DATA_DIR = Path(__file__).parent
PAPERS = ("fedcorr", "lsg", "fedcnml")  # in order of publication


@dataclass(frozen=True)
class Cell:
    """One printed number or dash."""

    row: str
    column: str
    method: str  # name and parameters, "fedcorr method.mixup=false"; empty: not in this suite
    value: float | None  # None for a dash; `note` has the reason
    std: float | None
    ratio: float | None  # printed quotient by the `ratio_to` row of the same column
    note: str


@parameters
class Footnote(Selection):
    """A note on some cells of a table."""

    text: str = ""


@parameters
class Claim:
    """A number in the paper's text that follows from the table: `row` against `baseline_rows`."""

    where: str
    kind: Literal["least_difference", "least_ratio", "mean_difference"]
    row: str
    baseline_rows: Tuple[str]
    value: str  # as printed, with its precision
    columns: Tuple[str] = ()  # empty: all


@parameters
class StatedSetting:
    """A setting of the whole table as stated at one place of the paper."""

    where: str
    overrides: str


@parameters
class PublishedTable:
    """A published result table. Accuracies are in percent, target_cost in participations."""

    name: str
    paper: str
    year: int
    table: str  # number as printed
    caption: str
    metric: Literal["best", "last10", "target_cost"]
    statistic: Literal["mean", "lowest"]  # over the trials
    trials: int | None  # None: not stated
    spread: Literal["std", "none"]
    scale: str
    experiment: Experiment  # rows, columns and the overrides of every cell
    cells: tuple[Cell, ...]
    target: float | None = None  # test accuracy of target_cost
    average: str | None = None  # label of the column of row means
    ratio_to: str | None = None  # row that the printed ratios divide by
    same_run: tuple[tuple[str, str], ...] = ()  # override -> its form in other tables of the paper
    stated: tuple[StatedSetting, ...] = ()
    claims: tuple[Claim, ...] = ()
    footnotes: tuple[Footnote, ...] = ()

    @property
    def rows(self) -> tuple[Heading, ...]:
        """Rows in printed order."""
        return self.experiment.rows

    @property
    def columns(self) -> tuple[Heading, ...]:
        """Columns in printed order, without the average."""
        return self.experiment.columns

    @property
    def column_labels(self) -> tuple[str, ...]:
        """Labels of all printed columns, including the average."""
        labels = tuple(column.label for column in self.columns)
        return (*labels, self.average) if self.average else labels

    def row(self, label: str) -> Heading:
        return find_heading(self.rows, label, f"row of {self.name}")

    def column(self, label: str) -> Heading:
        return find_heading(self.columns, label, f"column of {self.name}")

    def cell(self, row: str, column: str) -> Cell:
        for cell in self.cells:
            if (cell.row, cell.column) == (row, column):
                return cell
        self.row(row)
        raise unknown(f"column of {self.name}", column, self.column_labels)

    def overrides(self, row: str, column: str, scale: str = "paper") -> tuple[str, ...]:
        """Overrides of the run of one cell."""
        return self.experiment.overrides(row, column, scale)


def table_names() -> tuple[str, ...]:
    """Names of the result tables, by paper and table number."""
    return tuple(sorted((path.stem for path in DATA_DIR.glob("*.csv")), key=printed_order))


@cache
def load_table(name: str) -> PublishedTable:
    """Read and validate one result table."""
    if name not in table_names():
        raise unknown("published table", name, table_names())
    content = read_yaml(name)
    with (DATA_DIR / f"{name}.csv").open(newline="", encoding="utf-8") as file:
        cells = tuple(_parse_cell(line) for line in csv.DictReader(file))
    content |= {"name": name, "cells": cells, "experiment": load_experiment(name)}
    content["same_run"] = tuple(content.get("same_run", {}).items())
    for key, cls in (("stated", StatedSetting), ("claims", Claim), ("footnotes", Footnote)):
        content[key] = build_all(cls, content.get(key, []), f"{name}.{key}")
    table = build_params(PublishedTable, content, name)
    _validate(table)
    return table


def build_all(
    cls: type[Any], entries: Iterable[Mapping[str, Any]], section: str
) -> tuple[Any, ...]:
    """Parameter objects of a list of mappings."""
    return tuple(build_params(cls, entry, section) for entry in entries)


def printed_order(name: str) -> tuple[int, int]:
    """Sort key: by paper, then by table number."""
    paper, number = name.split("_table")
    return PAPERS.index(paper), int(number)


def read_yaml(name: str) -> dict[str, Any]:
    content = yaml.safe_load((DATA_DIR / f"{name}.yaml").read_text(encoding="utf-8"))
    return dict(content)


def _parse_cell(line: Mapping[str, str]) -> Cell:
    value, std, ratio = (
        float(line[key]) if line.get(key) else None for key in ("value", "std", "ratio")
    )
    return Cell(line["row"], line["column"], line["method"], value, std, ratio, line["note"])


def _validate(table: PublishedTable) -> None:
    if (table.metric == "target_cost") != (table.target is not None):
        raise UserError(
            f"invalid {table.name}.target={table.target}: expected a number for metric target_cost"
            " and null for the others"
        )
    keys = [(cell.row, cell.column) for cell in table.cells]
    layout = product((row.label for row in table.rows), table.column_labels)
    for key, expected in zip_longest(keys, layout):
        if key != expected:
            raise UserError(f"invalid cell {key} in {table.name}.csv: expected {expected}")
    for cell in table.cells:
        _validate_cell(table, cell)
    selections = [((claim.row, *claim.baseline_rows), claim.columns) for claim in table.claims]
    selections += [(footnote.rows, footnote.columns) for footnote in table.footnotes]
    first_row, first_column = table.rows[0].label, table.columns[0].label
    for rows, columns in selections:
        for row, column in product(rows or (first_row,), columns or (first_column,)):
            table.cell(row, column)


def _validate_cell(table: PublishedTable, cell: Cell) -> None:
    is_number = cell.value is not None
    column = () if cell.column == table.average else table.column(cell.column).overrides
    overrides = merge_overrides(table.experiment.common, column, table.row(cell.row).overrides)
    method = _method_of(overrides)
    is_run = bool(method) and cell.note != "not given"
    has_ratio = is_number and table.ratio_to not in (None, cell.row)
    in_range = table.metric == "target_cost" or 0 <= (cell.value or 0) <= 100
    checks = [
        (cell.method == method, f"method {cell.method!r}: expected {method!r}"),
        (
            table.experiment.is_skipped(cell.row, cell.column) != is_run,
            f"skip of conf/experiment/{table.name}.yaml: expected the cells that are not run",
        ),
        (is_number or bool(cell.note), "dash: expected a note with its reason"),
        (
            (cell.std is not None) == (is_number and table.spread == "std"),
            f"std {cell.std}: expected a number for each value if spread is std",
        ),
        (
            (cell.ratio is not None) == has_ratio,
            f"ratio {cell.ratio}: expected a number for each value outside row {table.ratio_to}",
        ),
        (in_range, f"value {cell.value}: expected an accuracy in [0, 100]"),
    ]
    for holds, message in checks:
        if not holds:
            raise UserError(
                f"invalid cell ({cell.row}, {cell.column}) in {table.name}.csv: {message}"
            )


def _method_of(overrides: Iterable[str]) -> str:
    """Name and parameters of the method; empty if no method is chosen."""
    texts = [text for text in overrides if text.startswith(("method=", "method."))]
    return " ".join(text.removeprefix("method=") for text in texts)
