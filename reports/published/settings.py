"""A settings table: what a paper configures, one value per data set or noise level."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from benchmarks.config.experiments import Heading, parse_headings
from reports.published.tables import (
    FOLDER,
    Footnote,
    printed_order,
    read_yaml,
    table_names,
)


@dataclass(frozen=True)
class Setting:
    """One row: what is set, and to what in every column."""

    label: str
    values: tuple[int | float | str, ...]  # one per column, as printed
    symbol: str = ""  # the paper's symbol
    key: str = ""  # the key of our configuration that holds it, or a formula of such keys; empty: none does


@dataclass(frozen=True)
class SettingsTable:
    """A printed table of settings."""

    name: str
    paper: str
    year: int
    table: str
    caption: str
    columns: tuple[Heading, ...]
    rows: tuple[Setting, ...]
    footnotes: tuple[Footnote, ...]

    def value(self, row: str, column: str) -> int | float | str:
        labels = [heading.label for heading in self.columns]
        for setting in self.rows:
            if setting.label == row and column in labels:
                return setting.values[labels.index(column)]
        legal = f"rows {[setting.label for setting in self.rows]}, columns {labels}"
        raise ValueError(f"{self.name}: no value ({row!r}, {column!r}); {legal}")


def settings_names() -> tuple[str, ...]:
    """Names of the settings tables, in the order of the papers."""
    return tuple(
        sorted(
            {path.stem for path in FOLDER.glob("*.yaml")} - set(table_names()), key=printed_order
        )
    )


@cache
def load_settings(name: str) -> SettingsTable:
    """One settings table, complete and in printed order."""
    if name not in settings_names():
        raise ValueError(
            f"settings table {name!r} does not exist; one of {', '.join(settings_names())}"
        )
    layout = read_yaml(name)
    layout["columns"] = parse_headings(layout["columns"], f"{name}.columns")
    layout["rows"] = tuple(
        Setting(**{**row, "values": tuple(row["values"])}) for row in layout["rows"]
    )
    layout["footnotes"] = tuple(Footnote(**entry) for entry in layout["footnotes"])
    for row in layout["rows"]:
        if len(row.values) != len(layout["columns"]):
            raise ValueError(
                f"{name}.yaml: row {row.label!r}: {len(row.values)} values; {len(layout['columns'])} columns"
            )
    return SettingsTable(name=name, **layout)
