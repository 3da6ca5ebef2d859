"""A result table: its layout and configuration from YAML, its numbers from CSV, every cell checked for its place."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import yaml

from benchmarks.config.experiments import (
    Experiment,
    Heading,
    Selection,
    find_heading,
    load_experiment,
    merge_overrides,
)
from methods.core.params import parameters

FOLDER = Path(__file__).parent
METRICS = ("best", "last10", "target_cost")
STATISTICS = ("mean", "lowest")
SPREADS = ("std", "none")
CLAIMS = ("least_difference", "least_ratio", "mean_difference")


@dataclass(frozen=True)
class Cell:
    """One printed number, or dash."""

    row: str
    column: str
    method: str  # registry name and switches, "fedcorr method.mixup=false"; empty: not a method of this suite
    value: float | None  # None: a dash is printed, `note` says why
    std: float | None
    ratio: float | None  # printed quotient by the `ratio_to` row of the same column
    note: str


@parameters
class Footnote(Selection):
    """A note on some cells of a table."""

    text: str = ""


@dataclass(frozen=True)
class Claim:
    """A number of the paper's text that follows from the table: row `of` against the rows `over`."""

    where: str
    kind: str  # one of CLAIMS
    of: str
    over: tuple[str, ...]
    value: str  # as printed, for its precision
    columns: tuple[str, ...] = ()  # empty: all


@dataclass(frozen=True)
class StatedSetting:
    """A setting of the whole table as one place of the paper states it."""

    where: str
    overrides: tuple[str, ...]


@dataclass(frozen=True)
class PublishedTable:
    """A printed table of results, and the configuration of every run in it."""

    name: str
    paper: str
    year: int
    table: str  # number as printed
    caption: str
    metric: str  # one of METRICS; accuracies in percent, target_cost in client participations
    statistic: str  # over the trials, one of STATISTICS
    trials: int | None  # None: not stated
    spread: str  # one of SPREADS
    scale: str
    experiment: Experiment  # rows, columns and the overrides of every cell
    cells: tuple[Cell, ...]
    target: float | None = None  # test accuracy whose cost is counted
    average: str | None = (
        None  # label of the printed column of row means, which is no run of its own
    )
    ratio_to: str | None = None  # row that the printed ratios divide by
    same_run: tuple[
        tuple[str, str], ...
    ] = ()  # override -> its other spelling in the paper's other tables
    stated: tuple[StatedSetting, ...] = ()
    claims: tuple[Claim, ...] = ()
    footnotes: tuple[Footnote, ...] = ()

    @property
    def common(self) -> tuple[str, ...]:
        """Overrides of every cell."""
        return self.experiment.common

    @property
    def rows(self) -> tuple[Heading, ...]:
        """Rows in printed order."""
        return self.experiment.rows

    @property
    def columns(self) -> tuple[Heading, ...]:
        """Columns in printed order, without the average."""
        return self.experiment.columns

    @property
    def groups(self) -> dict[str, tuple[Heading, ...]]:
        """Columns by the heading above them, in printed order."""
        labels = dict.fromkeys(column.group for column in self.columns)
        return {
            label: tuple(column for column in self.columns if column.group == label)
            for label in labels
        }

    @property
    def column_labels(self) -> tuple[str, ...]:
        """All printed columns, the average included."""
        return (
            *(column.label for column in self.columns),
            *([self.average] if self.average else []),
        )

    def row(self, label: str) -> Heading:
        return find_heading(self.rows, label, f"{self.name}: row")

    def column(self, label: str) -> Heading:
        return find_heading(self.columns, label, f"{self.name}: column")

    def cell(self, row: str, column: str) -> Cell:
        for cell in self.cells:
            if (cell.row, cell.column) == (row, column):
                return cell
        legal = (
            f"rows {[heading.label for heading in self.rows]}, columns {list(self.column_labels)}"
        )
        raise ValueError(f"{self.name}: no cell ({row!r}, {column!r}); {legal}")

    def overrides(self, row: str, column: str, scale: str = "paper") -> tuple[str, ...]:
        """Overrides of the run of one cell."""
        return self.experiment.overrides(row, column, scale)


def table_names() -> tuple[str, ...]:
    """Names of the result tables, in the order of the papers."""
    return tuple(sorted((path.stem for path in FOLDER.glob("*.csv")), key=printed_order))


@cache
def load_table(name: str) -> PublishedTable:
    """One result table, complete and in printed order; anything misplaced in its files is an error."""
    if name not in table_names():
        raise ValueError(
            f"published table {name!r} does not exist; one of {', '.join(table_names())}"
        )
    layout = read_yaml(name)
    legal = {field.name for field in fields(PublishedTable)} - {"name", "cells", "experiment"}
    for key in layout:
        if key not in legal:
            raise ValueError(f"{name}.yaml: unknown key {key!r}; one of {', '.join(sorted(legal))}")
    layout |= {
        "experiment": load_experiment(name),
        "same_run": tuple(layout.get("same_run", {}).items()),
        "stated": tuple(
            StatedSetting(entry["where"], split(entry["overrides"]))
            for entry in layout.get("stated", [])
        ),
        "claims": tuple(Claim(**_tuples(entry)) for entry in layout.get("claims", [])),
        "footnotes": tuple(Footnote(**_tuples(entry)) for entry in layout.get("footnotes", [])),
    }
    with (FOLDER / f"{name}.csv").open(newline="", encoding="utf-8") as file:
        cells = tuple(_cell(line) for line in csv.DictReader(file))
    table = PublishedTable(name=name, cells=cells, **layout)
    _validate(table)
    return table


def method_of(overrides: Iterable[str]) -> str:
    """The method's registry name and switches; empty if no method is chosen."""
    chosen = list(overrides)
    name = [
        override.removeprefix("method=") for override in chosen if override.startswith("method=")
    ]
    return " ".join([*name, *(override for override in chosen if override.startswith("method."))])


def printed_order(name: str) -> tuple[int, int]:
    """Sort key: by paper, then by table number."""
    paper, number = name.split("_table")
    return ("fedcorr", "lsg", "fedcnml").index(paper), int(number)


def read_yaml(name: str) -> dict[str, Any]:
    return yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))


def split(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _cell(line: dict[str, str]) -> Cell:
    value, std, ratio = (
        float(line[key]) if line.get(key) else None for key in ("value", "std", "ratio")
    )
    return Cell(line["row"], line["column"], line["method"], value, std, ratio, line["note"])


def _tuples(entry: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()}


def _validate(table: PublishedTable) -> None:
    choices = [("metric", table.metric, METRICS), ("statistic", table.statistic, STATISTICS)]
    choices += [
        ("spread", table.spread, SPREADS),
        *(("claim", claim.kind, CLAIMS) for claim in table.claims),
    ]
    for key, value, legal in choices:
        if value not in legal:
            raise ValueError(f"{table.name}.yaml: {key} {value!r}; one of {', '.join(legal)}")
    if (table.metric == "target_cost") != (table.target is not None):
        raise ValueError(
            f"{table.name}.yaml: target {table.target!r}; only metric target_cost has one, and needs it"
        )
    places = [(cell.row, cell.column) for cell in table.cells]
    layout = product((row.label for row in table.rows), table.column_labels)
    for place, expected in zip([*places, None], [*layout, None], strict=False):
        if place != expected:
            raise ValueError(f"{table.name}.csv: cell {place} where the layout has {expected}")
    for cell in table.cells:
        _validate_cell(table, cell)
    rows = [label for claim in table.claims for label in (claim.of, *claim.over)]
    for row in (*rows, *(label for note in table.footnotes for label in note.rows)):
        table.row(row)
    columns = [label for claim in table.claims for label in claim.columns]
    for column in (*columns, *(label for note in table.footnotes for label in note.columns)):
        table.cell(table.rows[0].label, column)


def _validate_cell(table: PublishedTable, cell: Cell) -> None:
    where = f"{table.name}.csv: cell ({cell.row!r}, {cell.column!r})"
    column = () if cell.column == table.average else table.column(cell.column).overrides
    method = method_of(merge_overrides(table.common, column, table.row(cell.row).overrides))
    if cell.method != method:
        raise ValueError(f"{where}: method {cell.method!r}; the layout says {method!r}")
    if table.experiment.is_skipped(cell.row, cell.column) == bool(
        method and cell.note != "not given"
    ):
        raise ValueError(f"{where}: skipped in conf/experiment, or not run though printed")
    if cell.value is None and not cell.note:
        raise ValueError(f"{where}: no value and no note; a printed dash needs its reason")
    if (cell.std is not None) != (cell.value is not None and table.spread == "std"):
        raise ValueError(
            f"{where}: std {cell.std!r}; spread is {table.spread!r} and value {cell.value!r}"
        )
    if (cell.ratio is not None) != (
        cell.value is not None and table.ratio_to not in (None, cell.row)
    ):
        raise ValueError(
            f"{where}: ratio {cell.ratio!r}; ratio_to is {table.ratio_to!r} and value {cell.value!r}"
        )
    if cell.value is not None and table.metric != "target_cost" and not 0 <= cell.value <= 100:
        raise ValueError(f"{where}: value {cell.value!r}; accuracies are 0 to 100")
