"""A published settings table with the values that the configuration composes to."""

import ast
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from methods.core.errors import UserError, unknown
from reports.published.tables import SettingsTable
from reports.tables import rendering
from reports.tables.matching import CellKey, compose_flat
from reports.tables.rendering import DASH, TableEntry

OPERATORS: dict[type, Callable[[Any, Any], Any]] = {ast.Add: operator.add, ast.Sub: operator.sub}
OPERATORS |= {ast.Mult: operator.mul, ast.Div: operator.truediv}
DIFFERS = "Differs from the paper."


@dataclass(frozen=True)
class SettingsResults:
    """One published settings table with the configured values at one scale."""

    table: SettingsTable
    scale: str
    configured: Mapping[CellKey, Any]  # only rows with a configuration key
    warnings: tuple[str, ...]


def collect_settings(table: SettingsTable, scale: str) -> SettingsResults:
    """Configured values of every row that has a configuration key."""
    found: dict[CellKey, Any] = {}
    warnings = []
    for column in table.columns:
        try:
            config = compose_flat(column.overrides, scale)
            for row in table.rows:
                if row.key:
                    found[row.label, column.label] = eval_formula(row.key, config)
        except UserError as error:
            warnings.append(f"{table.name}: column {column.label} not configured: {error}")
    return SettingsResults(table, scale, found, tuple(warnings))


def eval_formula(formula: str, config: Mapping[str, Any]) -> Any:
    """Value of a configuration key, or of keys and numbers combined by + - * / and brackets."""

    def value(node: ast.expr) -> Any:
        if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
            return OPERATORS[type(node.op)](value(node.left), value(node.right))
        if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
            return node.value
        key = ast.unparse(node)
        if isinstance(node, (ast.Name, ast.Attribute)) and key in config:
            return config[key]
        raise unknown("key", key, config)

    return value(ast.parse(formula, mode="eval").body)


def values_match(configured: Any, published: int | float | str) -> bool:
    """Compare numbers to four digits. A configured name must be contained in the published one."""
    if isinstance(configured, (int, float)) and isinstance(published, (int, float)):
        return f"{configured:.4g}" == f"{published:.4g}"
    letters = [re.sub(r"[^a-z0-9]", "", str(text).lower()) for text in (configured, published)]
    return letters[0] in letters[1]


def settings_table(results: SettingsResults) -> rendering.ReportTable:
    """The table as printed, each row in two lines: configured, published."""
    table, notes = results.table, rendering.Notes()
    notes.add(f"Configured: value in conf/ at scale {results.scale}. {DASH}: no configuration key.")
    for footnote in table.footnotes:
        notes.add(footnote.text)
    lines = []
    for row in table.rows:
        entries = []
        for column, published in zip(table.columns, row.values, strict=True):
            value = results.configured.get((row.label, column.label))
            differs = value is not None and not values_match(value, published)
            entries.append(
                TableEntry(_format(value), marks=notes.mark([DIFFERS] if differs else []))
            )
        symbol = f"({row.symbol})" if row.symbol and row.symbol[0] != "(" else row.symbol
        label = TableEntry(rendering.with_greek_letters(f"{row.label} {symbol}".rstrip()))
        printed = tuple(TableEntry(_format(value)) for value in row.values)
        lines.append(rendering.Line("", label, "configured", tuple(entries)))
        lines.append(rendering.Line("", TableEntry(""), "published", printed))
    columns = tuple(rendering.Column("", TableEntry(column.label)) for column in table.columns)
    title = f"{table.paper}, Table {table.table}, scale {results.scale}"
    return rendering.ReportTable(
        table.name, title, table.caption, columns, tuple(lines), notes.as_list()
    )


def settings_csv(results: SettingsResults) -> str:
    """One line per table cell."""
    lines = []
    for row in results.table.rows:
        for column, published in zip(results.table.columns, row.values, strict=True):
            value = results.configured.get((row.label, column.label))
            line: dict[str, Any] = {"table": results.table.name, "scale": results.scale}
            line |= {"row": row.label, "column": column.label, "key": row.key}
            line |= {"configured": "" if value is None else _format(value), "published": published}
            lines.append(
                line | {"matches": "" if value is None else values_match(value, published)}
            )
    return rendering.to_csv(lines)


def _format(value: Any) -> str:
    if value is None:
        return DASH
    return f"{value:.4g}" if isinstance(value, float) else str(value)
