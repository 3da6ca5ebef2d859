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

FOLDER = Path(__file__).parent
METRICS = ("best", "last10", "target_cost")
STATISTICS = ("mean", "lowest")
SPREADS = ("std", "none")
CLAIMS = ("least_difference", "least_ratio", "mean_difference")
SCALES = ("paper", "laptop", "smoke")
WORLD = ("model", "train", "federation", "budget", "evaluate")  # what a smaller scale may change


@dataclass(frozen=True)
class Heading:
    """A row or a column: its place in the printed table and what it sets."""

    group: str  # the heading above it, empty if there is none
    name: str
    overrides: tuple[str, ...]

    @property
    def label(self) -> str:
        return f"{self.group} / {self.name}" if self.group else self.name


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


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The rows and columns that something is about; none named means all."""

    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()

    def applies(self, row: str, column: str) -> bool:
        return (not self.rows or row in self.rows) and (not self.columns or column in self.columns)


@dataclass(frozen=True, kw_only=True)
class Footnote(Selection):
    """A remark."""

    text: str


@dataclass(frozen=True, kw_only=True)
class ExtraOverrides(Selection):
    """Settings of some cells that neither their row nor their column alone decides, or that no heading prints."""

    overrides: tuple[str, ...]
    scale: str = ""  # empty: every scale


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
    common: tuple[str, ...]
    rows: tuple[Heading, ...]
    columns: tuple[Heading, ...]
    cells: tuple[Cell, ...]
    target: float | None = None  # test accuracy whose cost is counted
    average: str | None = (
        None  # label of the printed column of row means, which is no run of its own
    )
    ratio_to: str | None = None  # row that the printed ratios divide by
    also: tuple[ExtraOverrides, ...] = ()  # the last layer of a cell's overrides, in this order
    same_run: tuple[
        tuple[str, str], ...
    ] = ()  # override -> its other spelling in the paper's other tables
    stated: tuple[StatedSetting, ...] = ()
    claims: tuple[Claim, ...] = ()
    footnotes: tuple[Footnote, ...] = ()

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
        return _find(self.rows, label, f"{self.name}: row")

    def column(self, label: str) -> Heading:
        return _find(self.columns, label, f"{self.name}: column")

    def cell(self, row: str, column: str) -> Cell:
        for cell in self.cells:
            if (cell.row, cell.column) == (row, column):
                return cell
        legal = (
            f"rows {[heading.label for heading in self.rows]}, columns {list(self.column_labels)}"
        )
        raise ValueError(f"{self.name}: no cell ({row!r}, {column!r}); {legal}")

    def overrides(self, row: str, column: str, scale: str = "paper") -> tuple[str, ...]:
        """The configuration of one cell's run. At another scale than the table's, common network, training, federation and
        budget give way to the scale's own; what tells rows, columns or single cells apart stays.
        """
        common = self.common if scale == self.scale else without_world(self.common)
        also = [
            part.overrides
            for part in self.also
            if part.applies(row, column) and part.scale in ("", scale)
        ]
        return compose(common, self.column(column).overrides, self.row(row).overrides, *also)


def names() -> tuple[str, ...]:
    """Names of the result tables, in the order of the papers."""
    return tuple(sorted((path.stem for path in FOLDER.glob("*.csv")), key=printed_order))


@cache
def load(name: str) -> PublishedTable:
    """One result table, complete and in printed order; anything misplaced in its files is an error."""
    if name not in names():
        raise ValueError(f"published table {name!r} does not exist; one of {', '.join(names())}")
    layout = read_yaml(name)
    legal = {field.name for field in fields(PublishedTable)} - {"name", "cells"}
    for key in layout:
        if key not in legal:
            raise ValueError(f"{name}.yaml: unknown key {key!r}; one of {', '.join(sorted(legal))}")
    layout |= {
        "common": split(layout["common"]),
        "rows": headings(layout["rows"]),
        "columns": headings(layout["columns"]),
        "also": tuple(_also(entry) for entry in layout.get("also", [])),
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


def compose(*layers: Iterable[str]) -> tuple[str, ...]:
    """Join overrides, later ones winning; choosing a group anew drops what earlier layers set inside it."""
    merged: dict[str, str] = {}
    for override in (override for layer in layers for override in layer):
        key, _, value = override.partition("=")
        merged = {old: kept for old, kept in merged.items() if not old.startswith(f"{key}.")}
        merged[key] = value
    return tuple(f"{key}={value}" for key, value in merged.items())


def without_world(overrides: Iterable[str]) -> tuple[str, ...]:
    """The overrides that a smaller scale leaves as they are."""
    return tuple(
        override
        for override in overrides
        if override.partition("=")[0].partition(".")[0] not in WORLD
    )


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


def headings(tree: dict[str, Any]) -> tuple[Heading, ...]:
    """Rows or columns from `name: overrides` or `group: {name: overrides}`."""
    found = []
    for label, entry in tree.items():
        group, members = ("", {label: entry}) if isinstance(entry, str) else (label, entry)
        found += [Heading(group, name, split(overrides)) for name, overrides in members.items()]
    return tuple(found)


def split(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _cell(line: dict[str, str]) -> Cell:
    value, std, ratio = (
        float(line[key]) if line.get(key) else None for key in ("value", "std", "ratio")
    )
    return Cell(line["row"], line["column"], line["method"], value, std, ratio, line["note"])


def _also(entry: dict[str, Any]) -> ExtraOverrides:
    return ExtraOverrides(**_tuples({**entry, "overrides": list(split(entry["overrides"]))}))


def _tuples(entry: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()}


def _find(found: tuple[Heading, ...], label: str, what: str) -> Heading:
    for heading in found:
        if heading.label == label:
            return heading
    raise ValueError(
        f"{what} {label!r} does not exist; one of {', '.join(heading.label for heading in found)}"
    )


def _validate(table: PublishedTable) -> None:
    choices = [("metric", table.metric, METRICS), ("statistic", table.statistic, STATISTICS)]
    choices += [
        ("spread", table.spread, SPREADS),
        *(("claim", claim.kind, CLAIMS) for claim in table.claims),
    ]
    choices += [("scale of also", part.scale, SCALES) for part in table.also if part.scale]
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
    selections: tuple[Selection, ...] = (*table.footnotes, *table.also)
    rows = [label for claim in table.claims for label in (claim.of, *claim.over)]
    for row in (*rows, *(label for selection in selections for label in selection.rows)):
        table.row(row)
    columns = [label for claim in table.claims for label in claim.columns]
    for column in (*columns, *(label for selection in selections for label in selection.columns)):
        table.cell(table.rows[0].label, column)


def _validate_cell(table: PublishedTable, cell: Cell) -> None:
    where = f"{table.name}.csv: cell ({cell.row!r}, {cell.column!r})"
    column = () if cell.column == table.average else table.column(cell.column).overrides
    method = method_of(compose(table.common, column, table.row(cell.row).overrides))
    if cell.method != method:
        raise ValueError(f"{where}: method {cell.method!r}; the layout says {method!r}")
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
