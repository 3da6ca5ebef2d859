"""Published settings tables: configured values, one per dataset or noise level."""

from __future__ import annotations

from functools import cache

from benchmarks.config.experiments import Heading, find_heading, parse_headings
from methods.core.errors import UserError, unknown
from methods.core.params import Tuple, build_params, parameters
from reports.published.tables import (
    DATA_DIR,
    Footnote,
    build_all,
    printed_order,
    read_yaml,
    table_names,
)


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
    columns: tuple[Heading, ...]
    rows: tuple[SettingRow, ...]
    footnotes: tuple[Footnote, ...]

    def value(self, row: str, column: str) -> int | float | str:
        """The printed value of one cell."""
        rows = {setting.label: setting for setting in self.rows}
        if row not in rows:
            raise unknown(f"row of {self.name}", row, rows)
        heading = find_heading(self.columns, column, f"column of {self.name}")
        return rows[row].values[self.columns.index(heading)]


def settings_names() -> tuple[str, ...]:
    """Names of the settings tables, by paper and table number."""
    names = {path.stem for path in DATA_DIR.glob("*.yaml")} - set(table_names())
    return tuple(sorted(names, key=printed_order))


@cache
def load_settings(name: str) -> SettingsTable:
    """Read and validate one settings table."""
    if name not in settings_names():
        raise unknown("settings table", name, settings_names())
    content = read_yaml(name) | {"name": name}
    content["columns"] = parse_headings(content["columns"], f"{name}.columns")
    content["rows"] = build_all(SettingRow, content["rows"], f"{name}.rows")
    content["footnotes"] = build_all(Footnote, content["footnotes"], f"{name}.footnotes")
    table = build_params(SettingsTable, content, name)
    for row in table.rows:
        if len(row.values) != len(table.columns):
            raise UserError(
                f"invalid {name}.rows: {row.label} has {len(row.values)} values,"
                f" expected {len(table.columns)}"
            )
    return table
