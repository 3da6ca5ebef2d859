"""Published tables as data: results in the layout of their experiment, and settings."""

import csv
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

import yaml

from benchmarks.config import experiments
from methods.core.errors import unknown
from methods.core.params import Tuple, build_params, parameters

DATA_DIR = Path(__file__).parent
PAPERS = ("fedcorr", "lsg", "fedcnml")  # in order of publication
INCONSISTENCY = "Inconsistency in the paper: "


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
class Footnote(experiments.Selection):
    """A note on some cells of a table."""

    text: str = ""


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
    experiment: experiments.Experiment  # rows, columns and the overrides of every cell
    cells: tuple[Cell, ...]
    target: float | None = None  # test accuracy of target_cost
    average: str | None = None  # label of the column of row means
    ratio_to: str | None = None  # row that the printed ratios divide by
    footnotes: tuple[Footnote, ...] = ()
    # Further statements of the paper, for the tests that compare them with the cells.
    same_run: dict[str, str] = field(default_factory=dict)  # override -> its form in other tables
    stated: Tuple[dict[str, Any]] = ()  # settings of the whole table, each with its place
    claims: Tuple[dict[str, Any]] = ()  # numbers in the text that follow from the table

    @property
    def rows(self) -> tuple[experiments.Heading, ...]:
        """Rows in printed order."""
        return self.experiment.rows

    @property
    def columns(self) -> tuple[experiments.Heading, ...]:
        """Columns in printed order, without the average."""
        return self.experiment.columns

    @property
    def column_labels(self) -> tuple[str, ...]:
        """Labels of all printed columns, including the average."""
        labels = tuple(column.label for column in self.columns)
        return (*labels, self.average) if self.average else labels

    def row(self, label: str) -> experiments.Heading:
        return experiments.find_heading(self.rows, label, f"row of {self.name}")

    def cell(self, row: str, column: str) -> Cell:
        for cell in self.cells:
            if (cell.row, cell.column) == (row, column):
                return cell
        self.row(row)
        raise unknown(f"column of {self.name}", column, self.column_labels)

    def overrides(self, row: str, column: str, scale: str = "paper") -> tuple[str, ...]:
        """Overrides of the run of one cell."""
        return self.experiment.overrides(row, column, scale)


@parameters
class SettingRow:
    """One row of a settings table."""

    label: str
    values: Tuple[int | float | str]  # one per column, as printed
    symbol: str = ""  # symbol in the paper
    key: str = ""  # configuration key or formula of keys; empty: not configurable


@parameters
class SettingsTable:
    """A published settings table."""

    name: str
    paper: str
    year: int
    table: str
    caption: str
    columns: tuple[experiments.Heading, ...]
    rows: tuple[SettingRow, ...]
    footnotes: tuple[Footnote, ...]


def table_names() -> tuple[str, ...]:
    """Names of the result tables, by paper and table number."""
    return _names("csv")


def settings_names() -> tuple[str, ...]:
    """Names of the settings tables, by paper and table number."""
    return tuple(name for name in _names("yaml") if name not in table_names())


@cache
def load_table(name: str) -> PublishedTable:
    """Read one result table. The inconsistencies of its paper are footnotes."""
    if name not in table_names():
        raise unknown("published table", name, table_names())
    content = _read_yaml(name)
    content |= {
        "experiment": experiments.load_experiment(name),
        "cells": tuple(map(_parse_cell, _read_csv(name))),
        "footnotes": _build_all(Footnote, content.get("footnotes", ()), f"{name}.footnotes"),
    }
    for line in _read_csv("inconsistencies"):
        if line["table"] == name:
            rows, columns = ((label,) if label else () for label in (line["row"], line["column"]))
            content["footnotes"] += (Footnote(rows, columns, f"{INCONSISTENCY}{line['message']}."),)
    return build_params(PublishedTable, content, name)


@cache
def load_settings(name: str) -> SettingsTable:
    """Read one settings table."""
    if name not in settings_names():
        raise unknown("settings table", name, settings_names())
    content = _read_yaml(name)
    content["columns"] = experiments.parse_headings(content["columns"], f"{name}.columns")
    for key, cls in (("rows", SettingRow), ("footnotes", Footnote)):
        content[key] = _build_all(cls, content[key], f"{name}.{key}")
    return build_params(SettingsTable, content, name)


def _names(extension: str) -> tuple[str, ...]:
    def printed_order(name: str) -> tuple[int, int]:
        paper, number = name.split("_table")
        return PAPERS.index(paper), int(number)

    names = (path.stem for path in DATA_DIR.glob(f"*_table*.{extension}"))
    return tuple(sorted(names, key=printed_order))


def _read_yaml(name: str) -> dict[str, Any]:
    content = yaml.safe_load((DATA_DIR / f"{name}.yaml").read_text(encoding="utf-8"))
    return {"name": name, **content}


def _read_csv(name: str) -> list[dict[str, str]]:
    with (DATA_DIR / f"{name}.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _build_all(cls: type[Any], entries: Any, section: str) -> tuple[Any, ...]:
    return tuple(build_params(cls, entry, section) for entry in entries)


def _parse_cell(line: Mapping[str, str]) -> Cell:
    value, std, ratio = (
        float(line[key]) if line.get(key) else None for key in ("value", "std", "ratio")
    )
    return Cell(line["row"], line["column"], line["method"], value, std, ratio, line["note"])
