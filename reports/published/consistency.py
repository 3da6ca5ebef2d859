"""What does not add up in a published table, found by computing it.

The printed value is kept; a finding says where, why, and what it should be if that follows. Accuracies are printed to
two decimals and ratios to one, so every comparison allows for the rounding of all numbers that enter it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product

from benchmarks.config.experiments import Heading, merge_overrides
from reports.published.tables import Cell, Claim, PublishedTable, load_table, table_names

HALF = 0.005  # rounding of an accuracy, a deviation or an average
HALF_RATIO = 0.05  # rounding of a ratio
FLOAT = 1e-9


@dataclass(frozen=True)
class Finding:
    """One thing that does not add up, and where."""

    table: str
    kind: str  # average | ratio | repeat | reached | claim | setting | line
    row: str  # empty with `column`: the whole table
    column: str
    printed: float | None
    expected: float | None  # None: the papers do not say which number is right
    message: str


def find_inconsistencies(table: PublishedTable) -> list[Finding]:
    """All findings in one table, compared with itself and with the tables it repeats."""
    parts: tuple[Callable[[PublishedTable], Iterator[Finding]], ...]
    parts = (_averages, _ratios, _repeats, _reached, _claims, _settings, _lines)
    return [finding for part in parts for finding in part(table)]


def identity(table: PublishedTable, cell: Cell) -> frozenset[str] | None:
    """What a cell measures, the same wherever it is printed; None for averages and methods of others."""
    if not cell.method or cell.column == table.average:
        return None
    spelling = dict(table.same_run)
    renamed = [
        spelling.get(override, override) for override in table.overrides(cell.row, cell.column)
    ]
    return frozenset(override for override in renamed if override)


def _averages(table: PublishedTable) -> Iterator[Finding]:
    if table.average is None:
        return
    for row in table.rows:
        cells = [_valued(table, row.label, column.label) for column in table.columns]
        printed, mean = _valued(table, row.label, table.average), sum(cells) / len(cells)
        if abs(mean - printed) <= 2 * HALF + FLOAT:
            continue
        suspects = list(_one_digit_off(table, cells, len(cells) * (printed - mean)))
        message = f"the printed average is {printed:.2f}, the mean of the row {mean:.2f}"
        if len(suspects) == 1:
            column, value, fixed = suspects[0]
            message += f"; {value:.2f} is above its less noisy neighbour, and {fixed:.2f} fits both"
            yield Finding(table.name, "average", row.label, column.label, value, fixed, message)
        else:
            yield Finding(
                table.name, "average", row.label, table.average, printed, round(mean, 2), message
            )


def _one_digit_off(
    table: PublishedTable, cells: list[float], missing: float
) -> Iterator[tuple[Heading, float, float]]:
    """Cells that rise where noise rises, and that one other digit would set right by `missing`."""
    slack = 2 * HALF * len(cells) + FLOAT
    for index in range(1, len(cells)):
        before, column = table.columns[index - 1], table.columns[index]
        if before.group != column.group or cells[index] <= cells[index - 1]:
            continue
        text = f"{cells[index]:.2f}"
        for place, digit in (
            (place, digit) for place in range(len(text)) for digit in "0123456789"
        ):
            if text[place] not in (".", digit):
                fixed = float(text[:place] + digit + text[place + 1 :])
                if abs(fixed - cells[index] - missing) <= slack and fixed <= cells[index - 1]:
                    yield column, cells[index], fixed


def _ratios(table: PublishedTable) -> Iterator[Finding]:
    if table.ratio_to is None:
        return
    step = math.gcd(*(int(cell.value) for cell in table.cells if cell.value is not None))
    for column in table.columns:
        base = _valued(table, table.ratio_to, column.label)
        parts = [
            (cell, cell.value, cell.ratio) for cell in table.cells if cell.column == column.label
        ]
        fractions = [
            (cell, cost, ratio)
            for cell, cost, ratio in parts
            if cost is not None and ratio is not None
        ]
        wrong = [
            (cell, cost)
            for cell, cost, ratio in fractions
            if abs(cost / base - ratio) > HALF_RATIO + FLOAT
        ]
        if not wrong:
            continue
        least = max(cost / (ratio + HALF_RATIO) for _, cost, ratio in fractions) - FLOAT
        most = min(cost / (ratio - HALF_RATIO) for _, cost, ratio in fractions) + FLOAT
        bases = range(math.ceil(least / step) * step, math.floor(most) + 1, step)
        if len(wrong) > 1 and len(bases) == 1:
            message = f"{len(wrong)} of {len(fractions)} printed ratios do not fit {base:g}; all fit {bases[0]}"
            yield Finding(
                table.name, "ratio", table.ratio_to, column.label, base, float(bases[0]), message
            )
            continue
        for cell, cost in wrong:
            message = f"the printed ratio is {cell.ratio}, {cost:g} / {base:g} is {cost / base:.2f}"
            yield Finding(
                table.name,
                "ratio",
                cell.row,
                cell.column,
                cell.ratio,
                round(cost / base, 1),
                message,
            )


def _repeats(table: PublishedTable) -> Iterator[Finding]:
    for cell in table.cells:
        others = [
            (other, twin)
            for other, twin in _twins(table, cell, table.metric)
            if other.year <= table.year
        ]
        if cell.value is None or all(_same(cell, twin) for _, twin in others):
            continue
        values = {twin.value for _, twin in others}
        printed = ", ".join(f"{_text(twin)} in {other.name}" for other, twin in others)
        message = f"{_text(cell)} here, {printed} for the same run"
        expected = values.pop() if len(values) == 1 else None
        yield Finding(table.name, "repeat", cell.row, cell.column, cell.value, expected, message)


def _reached(table: PublishedTable) -> Iterator[Finding]:
    """A target that was reached or missed against the best accuracies of the same runs."""
    if table.target is None:
        return
    for cell in table.cells:
        for other, twin in _twins(table, cell, "best"):
            if twin.value is None or twin.std is None or other.trials is None:
                continue
            # No trial lies further from the mean than this many deviations (Samuelson's inequality).
            highest = twin.value + math.sqrt(other.trials - 1) * twin.std
            if (twin.value >= table.target) if cell.value is None else (highest < table.target):
                verb = "missed" if cell.value is None else "reached"
                message = f"{table.target:g} is {verb}, yet the mean best is {_text(twin)} in {other.name}"
                yield Finding(
                    table.name, "reached", cell.row, cell.column, cell.value, None, message
                )


def _claims(table: PublishedTable) -> Iterator[Finding]:
    for claim in table.claims:
        claimed, decimals = float(claim.value), len(claim.value.partition(".")[2])
        pairs = _pairs(table, claim)
        if claim.kind == "mean_difference":
            gaps = [one - other for one, other in pairs]
            computed = sum(gaps) / len(gaps)
            slack = 2 * HALF + 0.5 * 10**-decimals + FLOAT
            holds = abs(computed - claimed) <= slack
            message = f"{claim.where} prints a mean difference of {claim.value}, the {len(gaps)} differences give "
            message += f"{computed:.2f}"
            divided = sum(gaps) / (len(gaps) - 1)
            if abs(divided - claimed) <= slack:
                message += f"; their sum divided by {len(gaps) - 1} is {divided:.3f}"
        else:
            ratio = claim.kind == "least_ratio"
            computed = min(other / one if ratio else one - other for one, other in pairs)
            holds = round(computed, decimals) >= claimed
            message = f"{claim.where} prints at least {claim.value}, the table gives {computed:.2f}"
        if not holds:
            yield Finding(table.name, "claim", claim.of, "", claimed, round(computed, 2), message)


def _settings(table: PublishedTable) -> Iterator[Finding]:
    common = dict(override.split("=") for override in table.common)
    for stated in table.stated:
        for key, value in (override.split("=") for override in stated.overrides):
            if value != common[key]:
                agreeing = [
                    other.where
                    for other in table.stated
                    if f"{key}={common[key]}" in other.overrides
                ]
                message = (
                    f"{stated.where}: {key}={value}; {' and '.join(agreeing)}: {key}={common[key]}"
                )
                yield Finding(
                    table.name, "setting", "", "", float(value), float(common[key]), message
                )


def _lines(table: PublishedTable) -> Iterator[Finding]:
    """Three equally spaced noise levels whose accuracies and deviations both lie on a straight line.

    Independent trials hardly ever do that. Named is the cell that is not repeated from an earlier paper.
    """
    for row, columns in ((row, triple) for row in table.rows for triple in _spaced(table)):
        cells = [table.cell(row.label, column) for column in columns]
        values = [cell.value for cell in cells if cell.value is not None]
        stds = [cell.std for cell in cells if cell.std is not None]
        if (
            len(values) < 3
            or len(stds) < 3
            or max(abs(_bend(values)), abs(_bend(stds))) > 4 * HALF + FLOAT
        ):
            continue
        twins = {cell: _twins(table, cell, table.metric) for cell in cells}
        own = [
            cell for cell in cells if not any(other.year < table.year for other, _ in twins[cell])
        ]
        cell = own[0] if len(own) == 1 else cells[1]
        rest = " and ".join(
            f"{_text(other)} at {other.column}" for other in cells if other is not cell
        )
        message = (
            f"{_text(cell)} lies on the straight line through {rest}, in accuracy and in deviation"
        )
        yield Finding(table.name, "line", cell.row, cell.column, cell.value, None, message)


def _spaced(table: PublishedTable) -> Iterator[list[str]]:
    """Neighbouring triples of columns that differ in noise.rho alone, by equal steps."""
    families: dict[tuple[str, ...], list[tuple[float, str]]] = {}
    for column in table.columns:
        rho = [override for override in column.overrides if override.startswith("noise.rho=")]
        if rho:
            rest = merge_overrides(override for override in column.overrides if override not in rho)
            families.setdefault(rest, []).append((float(rho[0].partition("=")[2]), column.label))
    for family in families.values():
        ordered = sorted(family)
        for triple in zip(ordered, ordered[1:], ordered[2:], strict=False):
            if abs(_bend([rho for rho, _ in triple])) < FLOAT:
                yield [label for _, label in triple]


def _bend(values: list[float]) -> float:
    return values[0] - 2 * values[1] + values[2]


def _twins(table: PublishedTable, cell: Cell, metric: str) -> list[tuple[PublishedTable, Cell]]:
    """Cells with a value in other tables that measure the same run by this metric."""
    target = table.target if metric == table.metric else None
    found = _index().get((metric, target, identity(table, cell)), [])
    return [(other, twin) for other, twin in found if other.name != table.name]


@cache
def _index() -> dict[
    tuple[str, float | None, frozenset[str] | None], list[tuple[PublishedTable, Cell]]
]:
    found: dict[
        tuple[str, float | None, frozenset[str] | None], list[tuple[PublishedTable, Cell]]
    ] = {}
    for table in map(load_table, table_names()):
        for cell in table.cells:
            run = identity(table, cell)
            if run is not None and cell.value is not None:
                found.setdefault((table.metric, table.target, run), []).append((table, cell))
    return found


def _same(cell: Cell, twin: Cell) -> bool:
    return cell.value == twin.value and (None in (cell.std, twin.std) or cell.std == twin.std)


def _pairs(table: PublishedTable, claim: Claim) -> list[tuple[float, float]]:
    columns = claim.columns or tuple(column.label for column in table.columns)
    places = product(claim.over, columns)
    values = [
        (table.cell(claim.of, column).value, table.cell(row, column).value)
        for row, column in places
    ]
    return [(one, other) for one, other in values if one is not None and other is not None]


def _valued(table: PublishedTable, row: str, column: str) -> float:
    value = table.cell(row, column).value
    if value is None:
        raise ValueError(
            f"{table.name}: cell ({row!r}, {column!r}) has no value; averages and ratios need one"
        )
    return value


def _text(cell: Cell) -> str:
    value = "-" if cell.value is None else f"{cell.value:.2f}"
    return value if cell.std is None else f"{value}±{cell.std:.2f}"
