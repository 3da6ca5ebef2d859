"""Comparison of a published table with reproduced values: as report table and as CSV."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from itertools import product
from typing import Any, TypeVar

from benchmarks.records.record import ACCURACIES, TESTED
from reports.frame.statistics import SIGNIFICANCE_LEVEL, supported_best
from reports.published.tables import Cell, PublishedTable
from reports.tables import rendering
from reports.tables.matching import CellKey
from reports.tables.rendering import DASH, TableEntry
from reports.tables.results import ReproducedCell, Results

COMPARED_SECTIONS = ("method", "model", "train", "federation")  # may differ between rivals
V = TypeVar("V")


def comparison_table(results: Results) -> rendering.ReportTable:
    """The table as printed, each row in three lines: reproduced, published, difference."""
    table, shared = results.table, _shared_notes(results)
    paper_notes = _paper_notes(results)
    notes = _general_notes(results, shared, paper_notes["", ""])
    lowest = table.metric == "target_cost"
    by_seed = {key: cell.values or None for key, cell in results.cells.items()}
    best = supported_best(_rivals(table, by_seed), higher_is_better=not lowest)
    printed = {(cell.row, cell.column): cell.value for cell in table.cells}
    published_best = _best(_rivals(table, printed), min if lowest else max)
    columns = []
    for label in table.column_labels:
        group, _, name = label.rpartition(" / ")
        entry = TableEntry(_heading(name, table.paper), marks=notes.mark(paper_notes["", label]))
        columns.append(rendering.Column(rendering.with_greek_letters(group), entry))
    lines = []
    for row in table.rows:
        marks = notes.mark(paper_notes[row.label, ""])
        reproduced, published, difference = [], [], []
        for column in table.column_labels:
            key, cell = (row.label, column), table.cell(row.label, column)
            found = results.cell(key)
            own = [text for text in found.notes if text not in shared]
            text = _format_reproduced(results, key)
            reproduced.append(TableEntry(text, key in best, notes.mark(own)))
            text = _format_published(results, cell)
            published.append(TableEntry(text, key in published_best, notes.mark(paper_notes[key])))
            change, decimals = _difference(found, cell), 0 if table.statistic == "lowest" else 2
            text = DASH if change is None else f"{change:+.{decimals}f}"
            difference.append(TableEntry(text))
        group, name = rendering.with_greek_letters(row.group), _heading(row.name, table.paper)
        lines += [
            rendering.Line(group, TableEntry(name, marks=marks), "reproduced", tuple(reproduced)),
            rendering.Line(group, TableEntry(""), "published", tuple(published)),
            rendering.Line(group, TableEntry(""), "difference", tuple(difference)),
        ]
    title = f"{table.paper}, Table {table.table}, scale {results.scale}"
    return rendering.ReportTable(
        table.name, title, table.caption, tuple(columns), tuple(lines), notes.as_list()
    )


def comparison_csv(results: Results) -> str:
    """One line per table cell."""
    table, lines = results.table, []
    for cell in table.cells:
        key = (cell.row, cell.column)
        found = results.cell(key)
        line: dict[str, Any] = {"table": table.name, "scale": results.scale}
        line |= {"row": cell.row, "column": cell.column, "method": cell.method}
        line |= {"metric": results.metric, "reproduced": found.value, "reproduced_std": found.std}
        line |= {"seeds": " ".join(map(str, found.values))}
        line |= {"num_runs": found.num_runs if key in results.cells else None}
        line |= {"published": cell.value, "published_std": cell.std}
        line |= {"difference": _difference(found, cell)}
        line |= {"reproduced_ratio": _ratio(results, key), "published_ratio": cell.ratio}
        lines.append(line | {"notes": " ".join(filter(None, (cell.note, *found.notes)))})
    return rendering.to_csv(lines)


def _general_notes(results: Results, shared: list[str], of_paper: list[str]) -> rendering.Notes:
    """Notes about the whole table."""
    table, notes = results.table, rendering.Notes()
    if table.statistic == "lowest":
        notes.add(
            f"Reproduced: lowest cost over all seeds (multiple of {table.paper}'s cost;"
            " number of seeds that reached the target)."
        )
    else:
        notes.add(
            f"Reproduced: {TESTED}, {ACCURACIES[results.metric]}; mean ± sample standard deviation"
            " (seeds). Difference: reproduced minus published."
        )
        if results.metric != table.metric:
            notes.add(f"Published: {ACCURACIES[table.metric]}.")
    reasons = dict.fromkeys(cell.note for cell in table.cells if cell.value is None)
    dashes = f" A dash in the paper is shown as its reason: {' or '.join(reasons)}."
    notes.add(
        "Bold, published: best method per condition. Bold, reproduced: better than every other"
        f" method of the condition, p at most {SIGNIFICANCE_LEVEL:g} in paired sign-flip tests by"
        " seed after Holm's correction for the conditions; never for one seed."
        f" {DASH}: no runs.{dashes if reasons else ''}"
    )
    if results.caption:
        notes.add(f"Reproduced with {results.caption}.")
    if results.scale != table.scale:
        notes.add(
            f"Reproduced at scale {results.scale}, smaller than in the paper;"
            " absolute numbers are not comparable."
        )
    if shared:
        notes.add(f"All reproduced cells: {' '.join(shared)}")
    for text in of_paper:
        notes.add(text)
    return notes


def _shared_notes(results: Results) -> list[str]:
    """Notes that all reproduced cells have. They are printed once, without marks."""
    cells = [cell.notes for key, cell in results.cells.items() if key[1] != results.table.average]
    return [text for text in cells[0] if all(text in notes for notes in cells)] if cells else []


def _paper_notes(results: Results) -> defaultdict[CellKey, list[str]]:
    """Footnotes of the published table. An empty label stands for all."""
    notes: defaultdict[CellKey, list[str]] = defaultdict(list)
    for footnote in results.table.footnotes:
        for key in product(footnote.rows or ("",), footnote.columns or ("",)):
            notes[key].append(footnote.text)
    return notes


def _rivals(table: PublishedTable, values: Mapping[CellKey, V | None]) -> list[dict[CellKey, V]]:
    """Values of cells that differ in COMPARED_SECTIONS only, without centralized references."""
    rivals: dict[frozenset[str], dict[CellKey, V]] = defaultdict(dict)
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
        condition = frozenset(
            text for text in overrides if text.split("=")[0].split(".")[0] not in COMPARED_SECTIONS
        )
        rivals[condition][cell.row, cell.column] = value
    return [members for members in rivals.values() if len(members) > 1]


def _best(rivals: list[dict[CellKey, float]], pick: Callable[..., float]) -> set[CellKey]:
    """The cells with the best printed value of their condition."""
    return {
        key
        for members in rivals
        for key, value in members.items()
        if round(value, 2) == round(pick(members.values()), 2)
    }


def _heading(printed: str, paper: str) -> str:
    """The printed heading. The name of the paper is added to "Ours", its name for its method."""
    return f"{printed} ({paper})" if printed == "Ours" else rendering.with_greek_letters(printed)


def _format_reproduced(results: Results, key: CellKey) -> str:
    cell = results.cell(key)
    if not cell.num_runs:
        return DASH
    if results.table.metric != "target_cost":
        spread = "" if cell.std is None else f" ± {cell.std:.2f}"
        return f"{cell.value:.2f}{spread} ({cell.num_runs})"
    if cell.value is None:
        return f"not reached (0 of {cell.num_runs})"
    ratio = _ratio(results, key)
    multiple = "" if ratio is None or key[0] == results.table.ratio_to else f"{ratio:.1f}×; "
    return f"{cell.value:.0f} ({multiple}{len(cell.values)} of {cell.num_runs})"


def _format_published(results: Results, cell: Cell) -> str:
    if cell.value is None:
        return cell.note
    if results.table.metric == "target_cost":
        return f"{cell.value:.0f}" + ("" if cell.ratio is None else f" ({cell.ratio}×)")
    return f"{cell.value:.2f}" + ("" if cell.std is None else f" ± {cell.std:.2f}")


def _difference(found: ReproducedCell, cell: Cell) -> float | None:
    return None if found.value is None or cell.value is None else found.value - cell.value


def _ratio(results: Results, key: CellKey) -> float | None:
    """Cost of a cell divided by the cost of the table's reference row in the same column."""
    base = results.cell((results.table.ratio_to or "", key[1])).value
    value = results.cell(key).value
    return value / base if base and value is not None else None
