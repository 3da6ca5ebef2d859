"""Checks of the published tables: files that fit their experiment, and numerical inconsistencies.

Printed values are kept. A finding names the cell and the reason, and the correct value if it can be
derived. Accuracies are printed with two decimals and ratios with one. Every comparison allows for
the rounding of all numbers that enter it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product, zip_longest
from typing import Literal

from benchmarks.config.experiments import Heading, find_heading, merge_overrides
from methods.core.errors import UserError
from methods.core.params import Tuple, build_params, parameters
from reports.published.tables import Cell, PublishedTable, SettingsTable, load_table, table_names

ACCURACY_ROUNDING = 0.005  # of an accuracy, a standard deviation or an average
RATIO_ROUNDING = 0.05
TOLERANCE = 1e-9
RunKey = frozenset[str]


@parameters
class Claim:
    """A number in the paper's text that follows from the table: `row` against `baseline_rows`."""

    where: str
    kind: Literal["least_difference", "least_ratio", "mean_difference"]
    row: str
    baseline_rows: Tuple[str]
    value: str  # as printed, with its precision
    columns: Tuple[str] = ()  # empty: all


@parameters
class StatedSetting:
    """A setting of the whole table as stated at one place of the paper."""

    where: str
    overrides: str


@dataclass(frozen=True)
class Finding:
    """One inconsistency. Row and column are both empty if it concerns the whole table."""

    row: str
    column: str
    message: str


def find_inconsistencies(table: PublishedTable) -> list[Finding]:
    """Inconsistencies within one table, and with the tables that report the same runs."""
    checks = (
        *(_averages, _ratios, _repeated_values, _reached_targets),
        *(_claims, _stated_settings, _collinear_values),
    )
    return [finding for check in checks for finding in check(table)]


def run_key(table: PublishedTable, cell: Cell) -> RunKey | None:
    """Key of the run of a cell, equal in all tables; None for averages and other methods."""
    if not cell.method or cell.column == table.average:
        return None
    overrides = [table.same_run.get(text, text) for text in table.overrides(cell.row, cell.column)]
    # Fed-CNML prints runs of FedCorr's tables again.
    return frozenset(text for text in overrides if text and not text.startswith("protocol="))


def _averages(table: PublishedTable) -> Iterator[Finding]:
    """Printed averages that differ from the mean of their row."""
    if table.average is None:
        return
    for row in table.rows:
        values = [_require_value(table, row.label, column.label) for column in table.columns]
        printed, mean = _require_value(table, row.label, table.average), sum(values) / len(values)
        if abs(mean - printed) <= 2 * ACCURACY_ROUNDING + TOLERANCE:
            continue
        suspects = list(_one_digit_off(table, values, len(values) * (printed - mean)))
        message = f"the printed average is {printed:.2f}, the mean of the row is {mean:.2f}"
        label = table.average
        if len(suspects) == 1:
            column, value, corrected = suspects[0]
            label = column.label
            message += (
                f"; {value:.2f} exceeds the value at the next lower noise level,"
                f" {corrected:.2f} is consistent with both"
            )
        yield Finding(row.label, label, message)


def _one_digit_off(
    table: PublishedTable, values: list[float], missing: float
) -> Iterator[tuple[Heading, float, float]]:
    """Values that increase with the noise and are corrected by `missing` if one digit changes."""
    slack = 2 * ACCURACY_ROUNDING * len(values) + TOLERANCE
    for index in range(1, len(values)):
        before, column = table.columns[index - 1], table.columns[index]
        if before.group != column.group or values[index] <= values[index - 1]:
            continue
        text = f"{values[index]:.2f}"
        for position, digit in product(range(len(text)), "0123456789"):
            if text[position] not in (".", digit):
                corrected = float(text[:position] + digit + text[position + 1 :])
                fits = abs(corrected - values[index] - missing) <= slack
                if fits and corrected <= values[index - 1]:
                    yield column, values[index], corrected


def _ratios(table: PublishedTable) -> Iterator[Finding]:
    """Printed ratios that differ from the quotient of the printed costs."""
    if table.ratio_to is None:
        return
    step = math.gcd(*(int(cell.value) for cell in table.cells if cell.value is not None))
    for column in table.columns:
        base = _require_value(table, table.ratio_to, column.label)
        printed = [
            (cell, cell.value, cell.ratio)
            for cell in table.cells
            if cell.column == column.label and cell.value is not None and cell.ratio is not None
        ]
        wrong = [
            (cell, cost)
            for cell, cost, ratio in printed
            if abs(cost / base - ratio) > RATIO_ROUNDING + TOLERANCE
        ]
        if not wrong:
            continue
        low = max(cost / (ratio + RATIO_ROUNDING) for _, cost, ratio in printed) - TOLERANCE
        high = min(cost / (ratio - RATIO_ROUNDING) for _, cost, ratio in printed) + TOLERANCE
        bases = range(math.ceil(low / step) * step, math.floor(high) + 1, step)
        if len(wrong) > 1 and len(bases) == 1:
            message = f"{len(wrong)} of {len(printed)} printed ratios do not fit {base:g};"
            yield Finding(table.ratio_to, column.label, f"{message} all fit {bases[0]}")
            continue
        for cell, cost in wrong:
            message = f"the printed ratio is {cell.ratio}, {cost:g} / {base:g} is {cost / base:.2f}"
            yield Finding(cell.row, cell.column, message)


def _repeated_values(table: PublishedTable) -> Iterator[Finding]:
    """Values that differ from those of the same run in other tables, not of later papers."""
    for cell in table.cells:
        others = [
            (other, same)
            for other, same in _same_run_cells(table, cell, table.metric)
            if other.year <= table.year
        ]
        if cell.value is None or all(_equal(cell, same) for _, same in others):
            continue
        printed = ", ".join(f"{_format(same)} in {other.name}" for other, same in others)
        message = f"{_format(cell)} here, {printed} for the same run"
        yield Finding(cell.row, cell.column, message)


def _reached_targets(table: PublishedTable) -> Iterator[Finding]:
    """Targets that contradict the best accuracies of the same runs."""
    if table.target is None:
        return
    for cell in table.cells:
        for other, same in _same_run_cells(table, cell, "best"):
            if same.value is None or same.std is None or other.trials is None:
                continue
            # Samuelson's inequality: largest distance of one trial from the mean.
            highest = same.value + math.sqrt(other.trials - 1) * same.std
            missed = cell.value is None
            if (same.value >= table.target) if missed else (highest < table.target):
                message = (
                    f"{table.target:g} is {'not reached' if missed else 'reached'},"
                    f" but the mean best accuracy is {_format(same)} in {other.name}"
                )
                yield Finding(cell.row, cell.column, message)


def _claims(table: PublishedTable) -> Iterator[Finding]:
    """Numbers in the text that do not follow from the table."""
    for claim in _claims_of(table):
        claimed, decimals = float(claim.value), len(claim.value.partition(".")[2])
        pairs = _claim_pairs(table, claim)
        if claim.kind == "mean_difference":
            differences = [one - other for one, other in pairs]
            total, count = sum(differences), len(differences)
            slack = 2 * ACCURACY_ROUNDING + 0.5 * 10**-decimals + TOLERANCE
            holds = abs(total / count - claimed) <= slack
            message = (
                f"{claim.where} states a mean difference of {claim.value},"
                f" the {count} differences give {total / count:.2f}"
            )
            if abs(total / (count - 1) - claimed) <= slack:
                message += f"; their sum divided by {count - 1} is {total / (count - 1):.3f}"
        else:
            is_ratio = claim.kind == "least_ratio"
            least = min(other / one if is_ratio else one - other for one, other in pairs)
            holds = round(least, decimals) >= claimed
            message = f"{claim.where} states at least {claim.value}, the table gives {least:.2f}"
        if not holds:
            yield Finding(claim.row, "", message)


def _stated_settings(table: PublishedTable) -> Iterator[Finding]:
    """Settings that the paper states differently at different places."""
    common = dict(text.split("=") for text in table.experiment.common)
    settings = [build_params(StatedSetting, each, f"{table.name}.stated") for each in table.stated]
    for stated in settings:
        for key, value in (text.split("=") for text in stated.overrides.split()):
            if value != common[key]:
                used = f"{key}={common[key]}"
                agreeing = [other.where for other in settings if used in other.overrides.split()]
                yield Finding(
                    "", "", f"{stated.where}: {key}={value}; {' and '.join(agreeing)}: {used}"
                )


def _collinear_values(table: PublishedTable) -> Iterator[Finding]:
    """Three equally spaced noise levels with collinear accuracies and standard deviations.

    This is very unlikely for independent trials. The finding is the cell that does not come from
    an earlier paper.
    """
    for row, columns in product(table.rows, _equally_spaced(table)):
        cells = [table.cell(row.label, column) for column in columns]
        values = [cell.value for cell in cells if cell.value is not None]
        stds = [cell.std for cell in cells if cell.std is not None]
        if len(values) < 3 or len(stds) < 3:
            continue
        deviation = max(abs(_second_difference(values)), abs(_second_difference(stds)))
        if deviation > 4 * ACCURACY_ROUNDING + TOLERANCE:
            continue
        own = [
            cell
            for cell in cells
            if all(
                other.year >= table.year for other, _ in _same_run_cells(table, cell, table.metric)
            )
        ]
        cell = own[0] if len(own) == 1 else cells[1]
        rest = [f"{_format(other)} at {other.column}" for other in cells if other is not cell]
        message = (
            f"{_format(cell)} lies on the straight line through {' and '.join(rest)},"
            " in accuracy and in standard deviation"
        )
        yield Finding(cell.row, cell.column, message)


def _equally_spaced(table: PublishedTable) -> Iterator[list[str]]:
    """Adjacent triples of columns that differ in noise.rho only, by equal steps."""
    families: dict[tuple[str, ...], list[tuple[float, str]]] = {}
    for column in table.columns:
        rho = [text for text in column.overrides if text.startswith("noise.rho=")]
        if rho:
            rest = merge_overrides(text for text in column.overrides if text not in rho)
            families.setdefault(rest, []).append((float(rho[0].partition("=")[2]), column.label))
    for family in families.values():
        ordered = sorted(family)
        for triple in zip(ordered, ordered[1:], ordered[2:], strict=False):
            if abs(_second_difference([rho for rho, _ in triple])) < TOLERANCE:
                yield [label for _, label in triple]


def _second_difference(values: list[float]) -> float:
    return values[0] - 2 * values[1] + values[2]


def _same_run_cells(
    table: PublishedTable, cell: Cell, metric: str
) -> list[tuple[PublishedTable, Cell]]:
    """Cells with a value in other tables that report the same run by this metric."""
    target = table.target if metric == table.metric else None
    found = _cells_by_run().get((metric, target, run_key(table, cell)), [])
    return [(other, same) for other, same in found if other.name != table.name]


@cache
def _cells_by_run() -> dict[
    tuple[str, float | None, RunKey | None], list[tuple[PublishedTable, Cell]]
]:
    found: dict[tuple[str, float | None, RunKey | None], list[tuple[PublishedTable, Cell]]] = {}
    for table in map(load_table, table_names()):
        for cell in table.cells:
            key = run_key(table, cell)
            if key is not None and cell.value is not None:
                found.setdefault((table.metric, table.target, key), []).append((table, cell))
    return found


def _equal(cell: Cell, other: Cell) -> bool:
    return cell.value == other.value and (None in (cell.std, other.std) or cell.std == other.std)


def _claim_pairs(table: PublishedTable, claim: Claim) -> list[tuple[float, float]]:
    columns = claim.columns or tuple(column.label for column in table.columns)
    values = [
        (table.cell(claim.row, column).value, table.cell(row, column).value)
        for row, column in product(claim.baseline_rows, columns)
    ]
    return [(one, other) for one, other in values if one is not None and other is not None]


def _require_value(table: PublishedTable, row: str, column: str) -> float:
    value = table.cell(row, column).value
    if value is None:
        raise UserError(
            f"missing value of cell ({row}, {column}) in {table.name}.csv:"
            " averages and ratios need a number"
        )
    return value


def _format(cell: Cell) -> str:
    value = "-" if cell.value is None else f"{cell.value:.2f}"
    return value if cell.std is None else f"{value}±{cell.std:.2f}"


def _claims_of(table: PublishedTable) -> list[Claim]:
    return [build_params(Claim, entry, f"{table.name}.claims") for entry in table.claims]


def validate(table: PublishedTable) -> None:
    """Raise UserError if the table does not fit its experiment."""
    if (table.metric == "target_cost") != (table.target is not None):
        raise UserError(
            f"invalid {table.name}.target={table.target}: expected a number for metric target_cost"
            " and null for the others"
        )
    keys = [(cell.row, cell.column) for cell in table.cells]
    layout = product((row.label for row in table.rows), table.column_labels)
    for key, expected in zip_longest(keys, layout):
        if key != expected:
            raise UserError(f"invalid cell {key} in {table.name}.csv: expected {expected}")
    for cell in table.cells:
        _validate_cell(table, cell)
    selections = [((claim.row, *claim.baseline_rows), claim.columns) for claim in _claims_of(table)]
    selections += [(footnote.rows, footnote.columns) for footnote in table.footnotes]
    first_row, first_column = table.rows[0].label, table.columns[0].label
    for rows, columns in selections:
        for row, column in product(rows or (first_row,), columns or (first_column,)):
            table.cell(row, column)


def _validate_cell(table: PublishedTable, cell: Cell) -> None:
    is_number = cell.value is not None
    column = (
        ()
        if cell.column == table.average
        else find_heading(table.columns, cell.column, "column").overrides
    )
    overrides = merge_overrides(table.experiment.common, column, table.row(cell.row).overrides)
    method = _method_of(overrides)
    is_run = bool(method) and cell.note != "not given"
    has_ratio = is_number and table.ratio_to not in (None, cell.row)
    in_range = table.metric == "target_cost" or 0 <= (cell.value or 0) <= 100
    checks = [
        (cell.method == method, f"method {cell.method!r}: expected {method!r}"),
        (
            table.experiment.is_skipped(cell.row, cell.column) != is_run,
            f"skip of conf/experiment/{table.name}.yaml: expected the cells that are not run",
        ),
        (is_number or bool(cell.note), "dash: expected a note with its reason"),
        (
            (cell.std is not None) == (is_number and table.spread == "std"),
            f"std {cell.std}: expected a number for each value if spread is std",
        ),
        (
            (cell.ratio is not None) == has_ratio,
            f"ratio {cell.ratio}: expected a number for each value outside row {table.ratio_to}",
        ),
        (in_range, f"value {cell.value}: expected an accuracy in [0, 100]"),
    ]
    for holds, message in checks:
        if not holds:
            raise UserError(
                f"invalid cell ({cell.row}, {cell.column}) in {table.name}.csv: {message}"
            )


def _method_of(overrides: Iterable[str]) -> str:
    """Name and parameters of the method; empty if no method is chosen."""
    texts = [text for text in overrides if text.startswith(("method=", "method."))]
    return " ".join(text.removeprefix("method=") for text in texts)


def settings_value(table: SettingsTable, row: str, column: str) -> int | float | str:
    """The printed value of one cell of a settings table."""
    labels = [heading.label for heading in table.columns]
    (values,) = [setting.values for setting in table.rows if setting.label == row]
    return values[labels.index(column)]
