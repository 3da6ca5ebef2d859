"""A published table with our numbers beside the paper's: as a grid of three lines a row, and as lines of CSV."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from reports.published import Cell, find_inconsistencies
from reports.tables.matching import CellKey
from reports.tables.rendering import (
    DASH,
    Column,
    Line,
    Notes,
    ReportTable,
    TableEntry,
    with_greek_letters,
)
from reports.tables.results import ReproducedCell, Results

FIELDS = (
    "table", "scale", "row", "column", "method", "metric", "ours", "ours_std", "seeds", "ran", "theirs", "theirs_std",
    "difference", "ours_ratio", "theirs_ratio", "notes",
)  # fmt: skip


def comparison_table(results: Results) -> ReportTable:
    """The table as it is printed, every row in three lines: reproduced, published, difference."""
    table = results.table
    notes = _general_notes(results)
    everywhere = _shared_notes(results)
    places, columns_of, rows_of = _published_notes(results)
    ours_best = _best(results, {place: ours.value for place, ours in results.cells.items()})
    theirs_best = _best(results, {(cell.row, cell.column): cell.value for cell in table.cells})
    columns = []
    for label in table.column_labels:
        above, _, name = label.rpartition(" / ")
        columns.append(
            Column(
                with_greek_letters(above),
                TableEntry(_name(name, table.paper), marks=notes.mark(columns_of[label])),
            )
        )
    lines = []
    for row in table.rows:
        printed = TableEntry(_name(row.name, table.paper), marks=notes.mark(rows_of[row.label]))
        cells = [table.cell(row.label, column) for column in table.column_labels]
        ours, theirs, gaps = [], [], []
        for cell in cells:
            place = (cell.row, cell.column)
            found = results.cells.get(place)
            own = [text for text in found.notes if text not in everywhere] if found else []
            ours.append(TableEntry(_ours(results, place), place in ours_best, notes.mark(own)))
            theirs.append(
                TableEntry(_theirs(results, cell), place in theirs_best, notes.mark(places[place]))
            )
            gaps.append(TableEntry(_format_difference(found, cell)))
        group = with_greek_letters(row.group)
        lines.append(Line(group, printed, "reproduced", tuple(ours)))
        lines.append(Line(group, TableEntry(""), "published", tuple(theirs)))
        lines.append(Line(group, TableEntry(""), "difference", tuple(gaps)))
    title = f"{table.paper}, Table {table.table}, scale {results.scale}"
    return ReportTable(
        table.name, title, table.caption, tuple(columns), tuple(lines), notes.as_list()
    )


def to_csv(results: Results) -> str:
    """One line per cell, numbers unrounded."""
    table = results.table
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, FIELDS, lineterminator="\n")
    writer.writeheader()
    for cell in table.cells:
        place = (cell.row, cell.column)
        ours = results.cells.get(place)
        line: dict[str, Any] = {
            "table": table.name,
            "scale": results.scale,
            "row": cell.row,
            "column": cell.column,
        }
        line |= {
            "method": cell.method,
            "metric": table.metric,
            "theirs": cell.value,
            "theirs_std": cell.std,
        }
        line |= {"theirs_ratio": cell.ratio, "notes": cell.note}
        if ours is not None:
            line |= {
                "ours": _round6(ours.value),
                "ours_std": _round6(ours.std),
                "ours_ratio": _round6(_ratio(results, place)),
            }
            line |= {"seeds": " ".join(map(str, ours.values)), "ran": ours.num_runs}
            line |= {"notes": " ".join(filter(None, (cell.note, *ours.notes)))}
            if ours.value is not None and cell.value is not None:
                line["difference"] = _round6(ours.value - cell.value)
        writer.writerow(line)
    return buffer.getvalue()


def _general_notes(results: Results) -> Notes:
    table, notes = results.table, Notes()
    if table.statistic == "lowest":
        notes.add(
            f"Reproduced: lowest cost of all seeds (multiple of {table.paper}'s; seeds that reached the target)."
        )
    else:
        notes.add(
            "Reproduced: mean ± sample standard deviation (seeds). Difference: reproduced minus published."
        )
    reasons = dict.fromkeys(cell.note for cell in table.cells if cell.value is None)
    printed = (
        f" Published dashes are given as their reason, {' or '.join(reasons)}." if reasons else ""
    )
    notes.add(
        f"Bold: best under equal conditions, reproduced and published apart. {DASH}: nothing ran.{printed}"
    )
    if results.scale != table.scale:
        notes.add(
            f"Reproduced at scale {results.scale}: smaller than the paper's, not to be taken for its numbers."
        )
    if everywhere := _shared_notes(results):
        notes.add(f"All that is reproduced: {' '.join(everywhere)}")
    for note in table.footnotes:
        if not note.rows and not note.columns:
            notes.add(note.text)
    for finding in find_inconsistencies(table):
        if not finding.row and not finding.column:
            notes.add(f"In print: {finding.message}.")
    return notes


def _shared_notes(results: Results) -> list[str]:
    """Notes that all of our cells share: said once, without marks."""
    cells = [
        ours.notes for place, ours in results.cells.items() if place[1] != results.table.average
    ]
    return [text for text in cells[0] if all(text in notes for notes in cells)] if cells else []


def _published_notes(
    results: Results,
) -> tuple[dict[CellKey, list[str]], dict[str, list[str]], dict[str, list[str]]]:
    """The paper's footnotes and what does not add up: by cell, by column, by row."""
    table = results.table
    places: dict[CellKey, list[str]] = defaultdict(list)
    columns: dict[str, list[str]] = defaultdict(list)
    rows: dict[str, list[str]] = defaultdict(list)
    notes = [(note.rows, note.columns, note.text) for note in table.footnotes]
    for finding in find_inconsistencies(table):
        where = ((finding.row,) if finding.row else (), (finding.column,) if finding.column else ())
        notes.append((*where, f"In print: {finding.message}."))
    for in_rows, in_columns, text in notes:
        for row in in_rows:
            for column in in_columns:
                places[row, column].append(text)
            if not in_columns:
                rows[row].append(text)
        for column in in_columns if not in_rows else ():
            columns[column].append(text)
    return places, columns, rows


def _best(results: Results, values: Mapping[CellKey, float | None]) -> set[CellKey]:
    """The best of all cells that differ in method and network alone; references on one machine take no part."""
    table = results.table
    rivals: dict[frozenset[str], dict[CellKey, float]] = defaultdict(dict)
    for cell in table.cells:
        value = values.get((cell.row, cell.column))
        if value is None or not cell.method:
            continue
        if cell.column == table.average:
            overrides: tuple[str, ...] = (table.average, *table.row(cell.row).overrides)
        else:
            overrides = table.overrides(cell.row, cell.column)
        if "partition=centralized" in overrides:
            continue
        apart = ("method", "model", "train", "federation")
        conditions = frozenset(
            text for text in overrides if text.split("=")[0].split(".")[0] not in apart
        )
        rivals[conditions][cell.row, cell.column] = round(value, 2)
    pick = min if table.metric == "target_cost" else max
    sets = [members for members in rivals.values() if len(members) > 1]
    return {
        place
        for members in sets
        for place, value in members.items()
        if value == pick(members.values())
    }


def _name(printed: str, paper: str) -> str:
    """As printed; "Ours" is the paper's method, not this suite."""
    return f"{printed} ({paper})" if printed == "Ours" else with_greek_letters(printed)


def _ours(results: Results, place: CellKey) -> str:
    ours = results.cells.get(place)
    if ours is None or not ours.num_runs:
        return DASH
    if results.table.metric == "target_cost":
        if ours.value is None:
            return f"not reached (0 of {ours.num_runs})"
        ratio = _ratio(results, place)
        times = (
            f"{ratio:.1f}×; " if ratio is not None and place[0] != results.table.ratio_to else ""
        )
        return f"{ours.value:.0f} ({times}{len(ours.values)} of {ours.num_runs})"
    spread = "" if ours.std is None else f" ± {ours.std:.2f}"
    return f"{ours.value:.2f}{spread} ({ours.num_runs})"


def _theirs(results: Results, cell: Cell) -> str:
    if cell.value is None:
        return cell.note
    if results.table.metric == "target_cost":
        return f"{cell.value:.0f}" + ("" if cell.ratio is None else f" ({cell.ratio}×)")
    return f"{cell.value:.2f}" + ("" if cell.std is None else f" ± {cell.std:.2f}")


def _format_difference(ours: ReproducedCell | None, cell: Cell) -> str:
    if ours is None or ours.value is None or cell.value is None:
        return DASH
    return (
        f"{ours.value - cell.value:+.0f}"
        if ours.statistic == "lowest"
        else f"{ours.value - cell.value:+.2f}"
    )


def _ratio(results: Results, place: CellKey) -> float | None:
    base = results.cells.get((results.table.ratio_to or "", place[1]))
    ours = results.cells[place]
    return ours.value / base.value if base and base.value and ours.value is not None else None


def _round6(value: float | None) -> float | None:
    return None if value is None else round(value, 6)
