"""Any grid of runs at a glance: python -m reports.compare runs=runs rows=method.name cols=noise.rho baseline=fedavg"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from rich.console import Console
from rich.table import Table

from benchmarks.terminal import command
from methods.core.errors import UserError
from reports.frame.load import load_runs
from reports.frame.pivot import Pivot, matches_filter, paired, pivot, ranked, select
from reports.frame.statistics import (
    SIGNIFICANCE_LEVEL,
    bootstrap_interval,
    describe_test,
    mean,
    sample_std,
    sign_flip_test,
    sign_test,
)
from reports.tables.rendering import DASH

DEFAULTS = {
    "runs": "runs",
    "rows": "method.name",
    "cols": "noise.rho",
    "metric": "summary.best",
    "baseline": "",
    "scale": "",
    "out": "",
}
USAGE = """
python -m reports.compare [runs=FOLDER,...] [rows=KEY] [cols=KEY] [metric=KEY] [baseline=VALUE] [scale=NAME]
                          [out=FILE.md] [KEY=VALUE,... of the runs to take]

Lays out runs by two keys of their configuration: mean ± sample standard deviation (seeds), the rows' average ranks over
the columns, and with a baseline the paired differences by seed.

  rows, cols   keys such as method.name, noise.rho, partition.name (default method.name and noise.rho)
  metric       summary.best (default), summary.last10, cost.participations, scores.clients/f1, ...
  baseline     a value of the rows' key, fedavg
  scale        paper, laptop or smoke; needed where runs of several scales would share a cell
  KEY=VALUE    takes only runs with this value, as in noise.tau=0.5 dataset.name=cifar10; method.mu=1 leaves
               methods without such a parameter in
  out          also write the tables as Markdown
"""


@dataclass(frozen=True)
class Section:
    """A titled table and the lines below it."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    lines: tuple[str, ...] = ()


def main(arguments: Sequence[str] | None = None) -> int:
    return command.run_command(arguments, USAGE, DEFAULTS, compare, accepts_run_filters=True)


def compare(options: dict[str, str]) -> int:
    """Print the comparison that the options ask for, and write it where they say."""
    folders = command.split_dirs(options["runs"])
    runs = load_runs(folders)
    command.print_warnings(runs.warnings)
    if len(runs.done) == 0:
        raise UserError(f"no finished run below {', '.join(folders)}")
    conditions = {key: value for key, value in options.items() if key not in DEFAULTS}
    if options["scale"]:
        conditions["scale"] = options["scale"]
    table = pivot(
        select(runs.done, conditions), options["rows"], options["cols"], options["metric"]
    )
    sections = [layout(table, lost(runs.unsuccessful, conditions)), ranks(table)]
    if options["baseline"]:
        sections.insert(1, differences(table, options["baseline"]))
    show(sections)
    if options["out"]:
        path = Path(options["out"])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(map(markdown, sections)), encoding="utf-8")
    return 0


def lost(frame: pd.DataFrame, conditions: Mapping[str, str]) -> list[str]:
    """Diverged and failed runs that would have been compared."""
    kept = [
        row
        for row in frame.to_dict("records")
        if all(matches_filter(row, key, conditions[key]) for key in conditions)
    ]
    return [f"{row['run_id']} {row['status']}" for row in kept]


def layout(table: Pivot, left_out: Sequence[str] = ()) -> Section:
    """Means of the cells, and what a reader must know before comparing them."""
    lines = [
        f"between cells also differs {key}: {', '.join(values)}"
        for key, values in table.varying.items()
    ]
    lines += [f"not in the means: {run}" for run in left_out]
    rows = []
    for row in table.row_values:
        rows.append((row, *(_cell(table, table.values(row, col)) for col in table.col_values)))
    unit = " in percent" if table.percent else ""
    title = f"{table.metric}{unit}: mean ± sample standard deviation (seeds)"
    return Section(
        title, (f"{table.rows} \\ {table.cols}", *table.col_values), tuple(rows), tuple(lines)
    )


def differences(table: Pivot, baseline: str) -> Section:
    """Ours minus baseline, seed by seed."""
    rows, lines = [], []
    for (row, col), pairs in paired(table, baseline).items():
        values = list(pairs.differences.values())
        interval = bootstrap_interval(values) if values else None
        rows.append(
            (
                row,
                col,
                _number(table, mean(values), sign=True) if values else DASH,
                f"{_number(table, interval[0], True)} to {_number(table, interval[1], True)}"
                if interval
                else DASH,
                str(len(values)),
                f"{sign_test(values):.3g}" if values else DASH,
                f"{sign_flip_test(values):.3g}" if values else DASH,
                describe_test(values),
            )
        )
        if pairs.unpaired:
            lines.append(f"{row}, {table.cols} {col}: not paired: {'; '.join(pairs.unpaired)}")
    header = (
        table.rows,
        table.cols,
        "mean difference",
        "95 % bootstrap",
        "pairs",
        "p sign",
        "p sign-flip",
        "in words",
    )
    return Section(
        f"Paired differences from {baseline}, same seed and scene",
        header,
        tuple(rows),
        tuple(lines),
    )


def ranks(table: Pivot) -> Section:
    found, left_out = ranked(table)
    lines = (
        [f"left out, as some rows have no run there: {table.cols} {', '.join(left_out)}"]
        if left_out
        else []
    )
    title = "Average ranks over the columns (1 is best)"
    if found is None:
        lines.append("no ranks: they need two rows and a column that all rows have")
        return Section(title, (table.rows, "rank"), (), tuple(lines))
    order = sorted(zip(found.ranks, table.row_values, strict=True))
    rows = tuple((row, f"{rank:.2f}") for rank, row in order)
    if found.p is None or found.chi_square is None:
        lines.append("no test of the ranks: it needs two columns and ranks that are not all equal")
    else:
        verb = "differ" if found.p <= SIGNIFICANCE_LEVEL else "are not shown to differ"
        gap, apart = max(found.ranks) - min(found.ranks), found.critical_difference
        chi_square = f"chi-square {found.chi_square:.2f}, p {found.p:.3g}"
        lines.append(f"Friedman over {found.cells} columns: {chi_square}: the rows {verb}")
        lines.append(
            f"Nemenyi: ranks {apart:.2f} apart differ at {SIGNIFICANCE_LEVEL:g}; the widest gap is {gap:.2f}"
        )
    return Section(title, (table.rows, "rank"), rows, tuple(lines))


def show(sections: Sequence[Section]) -> None:
    console = Console()
    for section in sections:
        shown = Table(*section.header, title=section.title, title_justify="left")
        for row in section.rows:
            shown.add_row(*row)
        if section.rows:
            console.print(shown)
        for line in section.lines:
            console.print(line, highlight=False, markup=False)


def markdown(section: Section) -> str:
    lines = [f"## {section.title}", ""]
    if section.rows:
        table = [section.header, ("---",) * len(section.header), *section.rows]
        lines += [*(f"| {' | '.join(row)} |" for row in table), ""]
    return "\n".join(
        [*lines, *(f"- {line}" for line in section.lines), *([""] if section.lines else [])]
    )


def _cell(table: Pivot, values: list[float]) -> str:
    if not values:
        return DASH
    std = sample_std(values)
    return f"{_number(table, mean(values))}{'' if std is None else f' ± {_number(table, std)}'} ({len(values)})"


def _number(table: Pivot, value: float, sign: bool = False) -> str:
    return format(value, ("+" if sign else "") + (".2f" if table.percent else ".4g"))


if __name__ == "__main__":
    sys.exit(main())
