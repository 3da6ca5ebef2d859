"""Compare runs by two configuration keys.

    python -m reports.compare [runs=DIR,...] [rows=KEY] [cols=KEY] [metric=KEY] [baseline=VALUE]
                              [scale=NAME] [out=FILE.md] [KEY=VALUE,...]

Prints mean ± sample standard deviation (number of seeds), average ranks of the rows over the
columns, and paired differences by seed if a baseline is given. With two columns or more:
interquartile mean and probability of improvement over columns and seeds. For an accuracy: all
accuracies, forgetting, and the damage repaired if there are reference runs.

  runs        directories with run records, separated by commas (default: runs)
  rows, cols  keys such as method.name, noise.rho, partition.name
              (default: method.name and noise.rho)
  metric      summary.last10 (default), summary.selected, summary.best, summary.forgetting (best
              minus last10), cost.participations, metrics.clients/f1, ...
  baseline    a value of the rows' key, such as fedavg
  scale       paper, laptop or smoke; required if the runs have several scales
  out         also write the tables to this Markdown file
  KEY=VALUE   only runs with this value, such as noise.tau=0.5 dataset.name=cifar10;
              method.mu=1 keeps methods without this parameter
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import pandas as pd
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.records.record import ACCURACIES, TESTED
from benchmarks.records.references import REFERENCE_METHOD
from benchmarks.terminal import command
from methods.core.errors import UserError
from reports.frame import statistics as stats
from reports.frame.load import caption_of, load_runs, rows_of
from reports.frame.pivot import (
    Pivot,
    matches_filter,
    metrics,
    paired,
    pivot,
    ranked,
    select,
    supported_cells,
)
from reports.tables.rendering import DASH, Section, sections_markdown

DEFAULTS = {
    "runs": "runs",
    "rows": "method.name",
    "cols": "noise.rho",
    "metric": "summary.last10",
    "baseline": "",
    "scale": "",
    "out": "",
}
BOLD_RULE = (
    "bold: better than every other row of the column; largest p of the paired sign-flip tests"
    f" at most {stats.SIGNIFICANCE_LEVEL:g} after Holm's correction for the columns;"
    " never for one seed"
)
REPAIR_RULE = (
    "damage repaired: (method - FedAvg) / (FedAvg on clean labels - FedAvg) in percent, by seed and"
    f" scenario; 95 % bootstrap of the seeds; {DASH} if the damage is not above 0"
)


def main(arguments: Sequence[str] | None = None) -> int:
    return command.run_command(arguments, str(__doc__), DEFAULTS, compare, accepts_run_filters=True)


def compare(options: dict[str, str]) -> int:
    """Print the comparison and write it to a file if requested."""
    dirs = command.split_dirs(options["runs"], must_exist=True)
    runs = load_runs(dirs)
    command.print_warnings(runs.warnings)
    if len(runs.done) == 0:
        raise UserError(f"no completed runs found in {', '.join(dirs)}")
    filters = {key: value for key, value in options.items() if key not in DEFAULTS}
    if options["scale"]:
        filters["scale"] = options["scale"]
    frame = select(runs.done, filters)
    table = pivot(frame, options["rows"], options["cols"], options["metric"])
    excluded = excluded_runs(runs.unsuccessful, filters)
    sections = [means_section(table, caption_of(rows_of(frame)), excluded)]
    repairs = Repairs.of(frame, table)
    if table.in_percent:
        sections.append(accuracies_section(frame, table, repairs))
    if options["baseline"]:
        sections.append(differences_section(table, options["baseline"]))
    if len(table.complete_columns) > 1 and len(table.row_values) > 1:
        sections.append(over_settings_section(table, options["baseline"], repairs))
    sections.append(ranks_section(table))
    print_sections(sections)
    if options["out"]:
        path = Path(options["out"])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(sections_markdown(sections), encoding="utf-8")
    return 0


def excluded_runs(unsuccessful: pd.DataFrame, filters: Mapping[str, str]) -> list[str]:
    """Diverged and failed runs that match the filters."""
    return [
        f"{row['run_id']} ({row['status']})"
        for row in rows_of(unsuccessful)
        if all(matches_filter(row, key, wanted) for key, wanted in filters.items())
    ]


def means_section(table: Pivot, caption: str, excluded: Sequence[str]) -> Section:
    """Means of the cells, with notes on what else differs and which runs are excluded."""
    notes = [
        f"note: {key} also differs between cells: {', '.join(values)}"
        for key, values in table.varying.items()
        if key not in ("protocol", "hyperparameters")  # in the title
    ]
    notes += [f"excluded from the means: {run}" for run in excluded]
    notes.append(BOLD_RULE)
    if table.accuracy in ACCURACIES:
        notes.insert(0, f"{table.metric}: {TESTED}, {ACCURACIES[table.accuracy]}")
    bold = supported_cells(table)
    rows = [
        (row, *(_format_mean(table, row, col, (row, col) in bold) for col in table.col_values))
        for row in table.row_values
    ]
    unit = (" (oracle)" if table.accuracy == "best" else "") + " in percent" * table.in_percent
    title = f"{table.metric}{unit}: mean ± sample standard deviation (seeds); {caption}"
    header = (f"{table.rows} \\ {table.cols}", *table.col_values)
    return Section(title, header, tuple(rows), tuple(notes))


@dataclass(frozen=True)
class Repairs:
    """Damage repaired: accuracies of runs and of their references, by cell."""

    accuracy: str
    tables: Sequence[Pivot]  # of the runs, of FedAvg on given and on clean labels

    @classmethod
    def of(cls, frame: pd.DataFrame, table: Pivot) -> "Repairs | None":
        """By the accuracy of the table, or by last10; None without reference runs."""
        name = table.accuracy if table.accuracy in ACCURACIES else "last10"
        keys = [f"summary.{name}", f"reference.given.{name}", f"reference.clean.{name}"]
        if not table.in_percent or not set(keys) <= set(metrics(frame)):
            return None
        return cls(name, [pivot(frame, table.rows, table.cols, key) for key in keys])

    def shown(self, row: str, cols: Sequence[str]) -> tuple[str, str]:
        """Share and interval in percent, over some columns."""
        settings = []
        for col in cols:
            cells = [table.cells.get((row, col), {}) for table in self.tables]
            runs = [run for run in cells[0] if all(run in cell for cell in cells)]
            settings.append([[cell[run] for cell in cells] for run in runs])
        found = stats.damage_repaired(settings)
        ends = found.interval if found else None
        interval = " to ".join(f"{100 * end:.1f}" for end in ends) if ends else DASH
        return f"{100 * found.share:.1f}" if found else DASH, interval


def accuracies_section(frame: pd.DataFrame, table: Pivot, repairs: Repairs | None) -> Section:
    """All accuracies of every cell, and of FedAvg on clean labels as a reference."""
    available, names = metrics(frame), ("selected", "last10", "best", "forgetting")

    def pivots(section: str) -> list[Pivot]:
        keys = [f"{section}.{name}" for name in names if f"summary.{name}" in available]
        return [pivot(frame, table.rows, table.cols, key) for key in keys if key in available]

    found, clean = pivots("summary"), pivots("reference.clean")
    rows = []
    for col in table.col_values:
        for row in table.row_values:
            if (row, col) in table.cells:
                means = [_format_mean(each, row, col, False) for each in found]
                rows.append((row, col, *means, *(repairs.shown(row, [col]) if repairs else ())))
        # Rows share their reference runs unless they differ in training parameters.
        shared: dict[tuple[str, ...], list[str]] = {}
        for row in table.row_values:
            if clean and (row, col) in clean[0].cells:
                means = [_format_mean(each, row, col, False) for each in clean]
                shared.setdefault((*means, DASH, DASH, DASH), []).append(row)
        for cells, members in shared.items():
            of = f" for {', '.join(members)}" if len(shared) > 1 else ""
            rows.append((f"reference{of}: {REFERENCE_METHOD}, clean labels", col, *cells))
    shown = [each.accuracy for each in found]
    notes = [f"{name}: {text}" for name, text in ACCURACIES.items() if name in shown]
    oracle = {"best": "best (oracle)"}
    header = [table.rows, table.cols, *(oracle.get(name, name) for name in shown)]
    if repairs:
        header += [f"damage repaired, {repairs.accuracy}", "95 %"]
        notes.append(REPAIR_RULE)
    title = f"Accuracies in percent, {TESTED}: mean ± sample standard deviation (seeds)"
    return Section(title, tuple(header), tuple(rows), (*notes, "forgetting: best minus last10"))


def differences_section(table: Pivot, baseline: str) -> Section:
    """Differences from the baseline, seed by seed."""
    rows, found = [], paired(table, baseline)
    tests = stats.corrected_tests(found)
    tested = sum(bool(each.differences) for each in found.values())
    notes = [f"p Holm: p sign-flip corrected for {tested} comparisons; the result is based on it"]
    for (row, col), pairs in found.items():
        rows.append((row, col, *_format_pairs(table, pairs, *tests[row, col])))
        if pairs.unpaired:
            notes.append(f"{row}, {table.cols} {col}: not paired: {'; '.join(pairs.unpaired)}")
    header = (
        *(table.rows, table.cols, "difference", "95 % bootstrap", "pairs"),
        *("p sign", "p sign-flip", "p Holm", "result"),
    )
    title = f"Paired differences from {baseline}, same seed and scenario"
    return Section(title, header, tuple(rows), tuple(notes))


def over_settings_section(table: Pivot, baseline: str, repairs: Repairs | None) -> Section:
    """Interquartile means, and probabilities of improvement over the baseline or the best row."""
    columns, sign = table.complete_columns, 1 if table.higher_is_better else -1
    scores: dict[str, stats.Scores] = {
        row: [[sign * value for value in table.values(row, col)] for col in columns]
        for row in table.row_values
    }
    order = sorted(scores, key=lambda row: -float(stats.interquartile_mean(scores[row])))
    reference = baseline or order[0]

    def improvement(*pair: stats.Scores) -> tuple[str, str]:
        interval = stats.stratified_interval(stats.improvement_probability, *pair)
        shown = " to ".join(f"{end:.2f}" for end in interval) if interval else DASH
        return f"{stats.improvement_probability(*pair):.2f}", shown

    rows = []
    for row in order:
        interval = stats.stratified_interval(stats.interquartile_mean, scores[row])
        ends = sorted(sign * float(end) for end in interval or ())
        rows.append(
            (
                row,
                _format_number(table, sign * float(stats.interquartile_mean(scores[row]))),
                " to ".join(_format_number(table, end) for end in ends) or DASH,
                *(
                    (DASH, DASH)
                    if row == reference
                    else improvement(scores[row], scores[reference])
                ),
                *(repairs.shown(row, columns) if repairs else ()),
            )
        )
    notes = (
        "interquartile mean: mean of the middle half of the results of all columns and seeds",
        "95 % intervals: bootstrap of the seeds within each column; none for a single seed",
    )
    header = [table.rows, "interquartile mean", "95 %", f"P(better than {reference})", "95 %"]
    if repairs:
        header += [f"damage repaired, {repairs.accuracy}", "95 %"]
    title = f"Over settings: {table.cols} {', '.join(columns)}"
    return Section(title, tuple(header), tuple(rows), notes)


def ranks_section(table: Pivot) -> Section:
    """Average ranks with Friedman's and Nemenyi's tests."""
    found, excluded = ranked(table)
    notes = []
    if excluded:
        columns = f"{table.cols} {', '.join(excluded)}"
        notes.append(f"excluded columns, as some rows have no run there: {columns}")
    title, header = "Average ranks over the columns (1 is best)", (table.rows, "rank")
    if found is None:
        notes.append("ranks need at least two rows and one column with results for every row")
        return Section(title, header, (), tuple(notes))
    if found.p is None or found.chi_square is None:
        notes.append("testing the ranks needs at least two columns and ranks that are not all tied")
    else:
        verdict = "differ" if found.p <= stats.SIGNIFICANCE_LEVEL else "do not differ significantly"
        notes.append(
            f"Friedman test over {found.num_settings} columns:"
            f" chi-square {found.chi_square:.2f}, p {found.p:.3g}: the rows {verdict}"
        )
        notes.append(
            f"Nemenyi critical difference at {stats.SIGNIFICANCE_LEVEL:g}:"
            f" {found.critical_difference:.2f}; largest difference of ranks:"
            f" {max(found.ranks) - min(found.ranks):.2f}"
        )
    order = sorted(zip(found.ranks, table.row_values, strict=True))
    return Section(title, header, tuple((row, f"{rank:.2f}") for rank, row in order), tuple(notes))


MIN_WIDTH = 100  # a narrower terminal wraps the lines of tables
SHORT = 12  # columns with at most so many characters per cell are not wrapped in the terminal


def print_sections(sections: Sequence[Section]) -> None:
    console = Console()
    console.width = max(console.width, MIN_WIDTH)
    for section in sections:
        shown = Table(title_justify="left", box=box.SIMPLE_HEAD, collapse_padding=True)
        for name, *cells in zip(section.header, *section.rows, strict=True):
            shown.add_column(
                name, no_wrap=max(map(len, cells), default=0) <= SHORT, overflow="fold"
            )
        for row in section.rows:
            shown.add_row(
                *(Text(cell.strip("*"), "bold" if cell.startswith("**") else "") for cell in row)
            )
        if section.rows:
            console.print(f"\n{section.title}", highlight=False, markup=False)
            console.print(shown)
        for note in section.notes:
            console.print(note, highlight=False, markup=False)


def _format_pairs(
    table: Pivot, pairs: stats.Pairs, corrected_p: float, verdict: str
) -> tuple[str, ...]:
    values = list(pairs.differences.values())
    if not values:
        return DASH, DASH, "0", DASH, DASH, DASH, verdict
    interval = stats.bootstrap_interval(values)
    return (
        _format_number(table, fmean(values), "+"),
        " to ".join(_format_number(table, end, "+") for end in interval) if interval else DASH,
        str(len(values)),
        f"{stats.sign_test(values):.3g}",
        f"{stats.sign_flip_test(values):.3g}",
        f"{corrected_p:.3g}",
        verdict,
    )


def _format_mean(table: Pivot, row: str, col: str, bold: bool) -> str:
    values = table.values(row, col)
    if not values:
        return DASH
    std = stats.sample_std(values)
    spread = "" if std is None else f" ± {_format_number(table, std)}"
    text = f"{_format_number(table, fmean(values))}{spread} ({len(values)})"
    return f"**{text}**" if bold else text


def _format_number(table: Pivot, value: float, sign: str = "") -> str:
    return format(value, sign + (".2f" if table.in_percent else ".4g"))


if __name__ == "__main__":
    sys.exit(main())
