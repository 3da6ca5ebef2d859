"""A published table of settings beside what our configuration composes to."""

from __future__ import annotations

import ast
import csv
import io
import operator
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from reports.configure import NotConfigured, configured
from reports.published import SettingsTable
from reports.tables.rendering import (
    DASH,
    Column,
    Line,
    Notes,
    ReportTable,
    TableEntry,
    with_greek_letters,
)

FIELDS = ("table", "scale", "row", "column", "key", "ours", "theirs", "same")
OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
DIFFERS = "Differs from the paper."


@dataclass(frozen=True)
class SettingsResults:
    table: SettingsTable
    scale: str
    ours: Mapping[tuple[str, str], Any]  # row and column label -> value; only where a key holds it
    warnings: tuple[str, ...]


def collect_settings(table: SettingsTable, scale: str) -> SettingsResults:
    """What our configuration says, for every row that names a key of it."""
    ours: dict[tuple[str, str], Any] = {}
    warnings = []
    for column in table.columns:
        try:
            config = configured(column.overrides, scale)
            for row in table.rows:
                if row.key:
                    ours[row.label, column.label] = eval_formula(row.key, config)
        except NotConfigured as error:
            warnings.append(f"{table.name}: column {column.label} not configured: {error}")
    return SettingsResults(table, scale, ours, tuple(warnings))


def eval_formula(formula: str, config: Mapping[str, Any]) -> Any:
    """A key of the configuration, or numbers of it combined by + - * / and brackets."""

    def value(node: ast.expr) -> Any:
        if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
            return OPERATORS[type(node.op)](value(node.left), value(node.right))
        if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
            return node.value
        key = ast.unparse(node)
        if isinstance(node, (ast.Name, ast.Attribute)) and key in config:
            return config[key]
        raise NotConfigured(f"{key} is not a key of the configuration")

    return value(ast.parse(formula, mode="eval").body)


def values_match(ours: Any, theirs: int | float | str) -> bool:
    """Numbers to four digits; names by their letters and digits, our shorter spelling inside the paper's."""
    if isinstance(ours, (int, float)) and isinstance(theirs, (int, float)):
        return f"{ours:.4g}" == f"{theirs:.4g}"
    letters = [re.sub(r"[^a-z0-9]", "", str(text).lower()) for text in (ours, theirs)]
    return letters[0] in letters[1]


def settings_table(results: SettingsResults) -> ReportTable:
    table, notes = results.table, Notes()
    notes.add(
        f"Configured: what conf/ composes to at scale {results.scale}. {DASH}: no setting of it."
    )
    for footnote in table.footnotes:
        notes.add(footnote.text)
    lines = []
    for row in table.rows:
        ours = []
        for column, theirs in zip(table.columns, row.values, strict=True):
            found = results.ours.get((row.label, column.label))
            differs = found is not None and not values_match(found, theirs)
            ours.append(TableEntry(_text(found), marks=notes.mark([DIFFERS] if differs else [])))
        symbol = (
            f" ({row.symbol})"
            if row.symbol and not row.symbol.startswith("(")
            else f" {row.symbol}".rstrip()
        )
        lines.append(
            Line("", TableEntry(with_greek_letters(row.label + symbol)), "configured", tuple(ours))
        )
        lines.append(
            Line(
                "",
                TableEntry(""),
                "published",
                tuple(TableEntry(_text(value)) for value in row.values),
            )
        )
    columns = tuple(Column("", TableEntry(column.label)) for column in table.columns)
    title = f"{table.paper}, Table {table.table}, scale {results.scale}"
    return ReportTable(table.name, title, table.caption, columns, tuple(lines), notes.as_list())


def settings_csv(results: SettingsResults) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(FIELDS)
    for row in results.table.rows:
        for column, theirs in zip(results.table.columns, row.values, strict=True):
            ours = results.ours.get((row.label, column.label))
            verdict = "" if ours is None else values_match(ours, theirs)
            place = (results.table.name, results.scale, row.label, column.label)
            writer.writerow((*place, row.key, "" if ours is None else _text(ours), theirs, verdict))
    return buffer.getvalue()


def _text(value: Any) -> str:
    if value is None:
        return DASH
    return f"{value:.4g}" if isinstance(value, float) else str(value)
