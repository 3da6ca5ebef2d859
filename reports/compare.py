"""Compare runs by two configuration keys.

    python -m reports.compare [runs=DIR,...] [rows=KEY] [cols=KEY] [metric=KEY] [baseline=VALUE]
                              [scale=NAME] [out=FILE.md] [KEY=VALUE,...]

Prints mean ± sample standard deviation (number of seeds), average ranks of the rows over the
columns, and paired differences by seed if a baseline is given. With two columns or more:
interquartile mean and probability of improvement over columns and seeds. For an accuracy:
selected, last10, best and forgetting, and the damage repaired if there are reference runs.

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
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean
from textwrap import fill
from typing import Any

import pandas as pd
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.records.record import ACCURACIES, TESTED
from benchmarks.records.references import REFERENCE_METHOD
from benchmarks.terminal import command
from reports.frame import pivot as pivots
from reports.frame import statistics as stats
from reports.frame.load import caption_of, load_finished_runs, rows_of
from reports.frame.pivot import Pivot
from reports.tables.rendering import DASH, Section, sections_markdown

DEFAULTS = {"runs": "runs", "rows": "method.name", "cols": "noise.rho", "metric": "summary.last10"}
DEFAULTS |= {"baseline": "", "scale": "", "out": ""}
BOLD_RULE = (
    "bold: better than every other row of the column; largest p of the paired sign-flip tests"
    f" at most {stats.SIGNIFICANCE_LEVEL:g} after Holm's correction for the columns;"
    " never for one seed"
)
REPAIR_RULE = (
    "damage repaired: (method - FedAvg) / (FedAvg on clean labels - FedAvg) in percent, by seed and"
    f" scenario; 95 % bootstrap of the seeds; {DASH} if the damage is not above 0"
)
MIN_WIDTH = 100  # a narrower terminal wraps the lines of tables
SHORT = 12  # columns with at most so many characters per cell are not wrapped in the terminal


def main(arguments: Sequence[str] | None = None) -> int:
    return command.run_command(arguments, str(__doc__), DEFAULTS, compare, accepts_run_filters=True)


def compare(options: command.Options) -> int:
    """Print the comparison and write it to a file if requested."""
    runs = load_finished_runs(options["runs"])
    filters = {key: value for key, value in options.items() if key not in DEFAULTS}
    if options["scale"]:
        filters["scale"] = options["scale"]
    frame, baseline = pivots.select(runs.done, filters), options["baseline"]
    table = pivots.pivot(frame, options["rows"], options["cols"], options["metric"])
    if baseline:
        command.require_choice("baseline", baseline, table.row_values)
    excluded = [
        f"{run['run_id']} ({run['status']})"
        for run in rows_of(runs.unsuccessful)
        if all(pivots.matches_filter(run, key, wanted) for key, wanted in filters.items())
    ]
    sections = [means_section(table, caption_of(rows_of(frame)), excluded)]
    repaired = repaired_accuracy(frame, table)
    if table.in_percent:
        sections.append(accuracies_section(frame, table, repaired))
    if baseline:
        sections.append(differences_section(table, baseline))
    if len(table.common) > 1 and len(table.row_values) > 1:
        sections.append(over_settings_section(table, baseline, repaired))
    sections.append(ranks_section(table))
    print_sections(sections)
    if options["out"]:
        path = Path(options["out"])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(sections_markdown(sections), encoding="utf-8")
    return 0


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
    groups = []
    for col in table.col_values:
        cells = {(row, col): table.by_seed(row, col) for row in table.row_values}
        groups.append({key: values for key, values in cells.items() if values})
    bold = stats.supported_best(groups, table.higher_is_better)
    rows = []
    for row in table.row_values:
        means = {(row, col): _format_mean(table, row, col) for col in table.col_values}
        rows.append((row, *(f"**{text}**" if key in bold else text for key, text in means.items())))
    unit = (" (oracle)" if table.accuracy == "best" else "") + " in percent" * table.in_percent
    title = f"{table.metric}{unit}: mean ± sample standard deviation (seeds); {caption}"
    return Section(title, (f"{table.rows} \\ {table.cols}", *table.col_values), rows, notes)


def repaired_accuracy(frame: pd.DataFrame, table: Pivot) -> str:
    """The accuracy by which the damage repaired is computed; empty without reference runs."""
    name = table.accuracy if table.accuracy in ACCURACIES else "last10"
    has_references = f"reference.clean.{name}" in pivots.metrics(frame)
    return name if table.in_percent and has_references else ""


def accuracies_section(frame: pd.DataFrame, table: Pivot, repaired: str) -> Section:
    """Accuracies of every cell, and of FedAvg on clean labels as a reference."""
    shown_names, available = ("selected", "last10", "best", "forgetting"), pivots.metrics(frame)
    names = [name for name in shown_names if f"summary.{name}" in available]

    rows: list[tuple[str, ...]] = []
    for col in table.col_values:
        shown = [row for row in table.row_values if table.values(row, col)]
        for row in shown:
            shares = _format_repaired(table, row, [col], repaired)
            means = [_format_mean(table, row, col, f"summary.{name}") for name in names]
            rows.append((row, col, *means, *shares))
        groups = _shared_references(table, shown if repaired else (), col, names)
        for members, found in groups:
            of = f" for {', '.join(members)}" if len(groups) > 1 else ""
            cells = [_format_values(table, [*found[name].values()]) for name in names]
            label = f"reference{of}: {REFERENCE_METHOD}, clean labels"
            rows.append((label, col, *cells, DASH, DASH))
    notes = [f"{name}: {text}" for name, text in ACCURACIES.items() if name in names]
    notes += [REPAIR_RULE] if repaired else []
    header = (table.rows, table.cols, *names, *_repaired_header(repaired))
    header = tuple("best (oracle)" if name == "best" else name for name in header)
    title = f"Accuracies in percent, {TESTED}: mean ± sample standard deviation (seeds)"
    return Section(title, header, rows, [*notes, "forgetting: best minus last10"])


def differences_section(table: Pivot, baseline: str) -> Section:
    """Differences from the baseline, seed by seed."""
    found = {
        (row, col): stats.pair(table.by_seed(row, col), table.by_seed(baseline, col))
        for row in table.row_values
        for col in table.col_values
        if row != baseline and table.values(row, col)
    }
    tests, rows = stats.corrected_tests(found), []
    tested = sum(bool(pairs.differences) for pairs in found.values())
    notes = [f"p Holm: p sign-flip corrected for {tested} comparisons; the result is based on it"]
    for (row, col), pairs in found.items():
        p, verdict = tests[row, col]
        values = list(pairs.differences.values())
        cells = [DASH, DASH, "0", DASH, DASH, DASH]
        if values:
            tested_p = (stats.sign_test(values), stats.sign_flip_test(values), p)
            cells = [
                format(fmean(values), f"+{_number_format(table)}"),
                _format_interval(stats.bootstrap_interval(values), f"+{_number_format(table)}"),
                str(len(values)),
                *(f"{p:.3g}" for p in tested_p),
            ]
        rows.append((row, col, *cells, verdict))
        if pairs.unpaired:
            notes.append(f"{row}, {table.cols} {col}: not paired: {'; '.join(pairs.unpaired)}")
    header = ("difference", "95 % bootstrap", "pairs", "p sign", "p sign-flip", "p Holm", "result")
    title = f"Paired differences from {baseline}, same seed and scenario"
    return Section(title, (table.rows, table.cols, *header), rows, notes)


def over_settings_section(table: Pivot, baseline: str, repaired: str) -> Section:
    """Interquartile means, and probabilities of improvement over the baseline or the best row."""
    common, sign = table.common, 1 if table.higher_is_better else -1
    columns = [*common]
    scores: dict[str, stats.Scores] = {
        row: [[sign * value for value in values[row]] for values in common.values()]
        for row in table.row_values
    }
    means = {row: float(stats.interquartile_mean(scores[row])) for row in scores}
    order = sorted(scores, key=lambda row: -means[row])
    reference, number = baseline or order[0], _number_format(table)
    rows: list[tuple[str, ...]] = []
    for row in order:
        interval = stats.stratified_interval(stats.interquartile_mean, scores[row])
        ends = sorted(sign * float(end) for end in interval)
        cells = [format(sign * means[row], number), _format_interval(ends, number)]
        if row == reference:
            cells += [DASH, DASH]
        else:
            pair = scores[row], scores[reference]
            interval = stats.stratified_interval(stats.improvement_probability, *pair)
            probability = f"{stats.improvement_probability(*pair):.2f}"
            cells += [probability, _format_interval(interval, ".2f")]
        rows.append((row, *cells, *_format_repaired(table, row, columns, repaired)))
    notes = (
        "interquartile mean: mean of the middle half of the results of all columns and seeds",
        "95 % intervals: bootstrap of the seeds within each column; none for a single seed",
        *_notes_on_seeds(table),
    )
    header = (table.rows, "interquartile mean", "95 %", f"P(better than {reference})", "95 %")
    title = f"Over settings: {table.cols} {', '.join(columns)}"
    return Section(title, (*header, *_repaired_header(repaired)), rows, notes)


def ranks_section(table: Pivot) -> Section:
    """Average ranks over the columns, with Friedman's and Nemenyi's tests."""
    title, header = "Average ranks over the columns (1 is best)", (table.rows, "rank")
    common, notes = table.common, _notes_on_seeds(table)
    if excluded := [col for col in table.col_values if col not in common]:
        columns = f"{table.cols} {', '.join(excluded)}"
        notes.append(f"excluded columns, as the rows have no seed in common there: {columns}")
    if not common or len(table.row_values) < 2:
        notes.append("ranks need at least two rows, and a column in which they share a seed")
        return Section(title, header, (), notes)
    means = [[fmean(values[row]) for row in table.row_values] for values in common.values()]
    found = stats.ranking(means, table.higher_is_better)
    if found.p is None:
        notes.append("testing the ranks needs at least two columns and ranks that are not all tied")
    else:
        verdict = "differ" if found.p <= stats.SIGNIFICANCE_LEVEL else "do not differ significantly"
        notes += [
            f"Friedman test over {found.num_settings} columns:"
            f" chi-square {found.chi_square:.2f}, p {found.p:.3g}: the rows {verdict}",
            f"Nemenyi critical difference at {stats.SIGNIFICANCE_LEVEL:g}:"
            f" {found.critical_difference:.2f}; largest difference of ranks:"
            f" {max(found.ranks) - min(found.ranks):.2f}",
        ]
    order = sorted(zip(found.ranks, table.row_values, strict=True))
    return Section(title, header, [(row, f"{rank:.2f}") for rank, row in order], notes)


def print_sections(sections: Sequence[Section]) -> None:
    console = Console()
    console.width = max(console.width, MIN_WIDTH)
    for section in sections:
        shown = Table(title_justify="left", box=box.SIMPLE_HEAD, collapse_padding=True)
        for name, *cells in zip(section.header, *section.rows, strict=True):
            is_short = max(map(len, cells), default=0) <= SHORT
            words = (word for cell in cells for word in cell.split() if len(word) <= SHORT)
            width = max(map(len, words), default=0)  # words are not broken
            title = fill(name, SHORT, break_long_words=False)
            shown.add_column(title, no_wrap=is_short, overflow="fold", min_width=width)
        for row in section.rows:
            styles = ["bold" if cell.startswith("**") else "" for cell in row]
            shown.add_row(*(Text(cell.strip("*"), s) for cell, s in zip(row, styles, strict=True)))
        if section.rows:
            console.print(f"\n{section.title}", highlight=False, markup=False)
            console.print(shown)
        for note in section.notes:
            console.print(note, highlight=False, markup=False)


def _notes_on_seeds(table: Pivot) -> list[str]:
    """Columns in which some rows have seeds that others lack."""
    notes, rows = [], table.row_values
    for col, values in table.common.items():
        used, most = len(values[rows[0]]), max(len(table.values(row, col)) for row in rows)
        if used < most:
            notes.append(f"{table.cols} {col}: only the {used} of {most} seeds that all rows have")
    return notes


def _repaired_header(accuracy: str) -> tuple[str, ...]:
    return (f"damage repaired, {accuracy}", "95 %") if accuracy else ()


def _format_repaired(table: Pivot, row: str, cols: Sequence[str], accuracy: str) -> tuple[str, ...]:
    """Damage repaired and its interval in percent over some columns; nothing without `accuracy`."""
    if not accuracy:
        return ()
    runs = [pivots.reference_accuracies(table.cells[row, col], accuracy) for col in cols]
    found = stats.damage_repaired(runs)
    if found is None:
        return DASH, DASH
    interval = [100 * end for end in found.interval]
    return f"{100 * found.share:.1f}", _format_interval(interval, ".1f")


def _shared_references(
    table: Pivot, rows: Iterable[str], col: str, names: Sequence[str]
) -> list[tuple[list[str], dict[str, stats.BySeed]]]:
    """Accuracies of the reference runs, for groups of rows that have the same ones."""
    groups: list[tuple[list[str], dict[str, stats.BySeed]]] = []
    for row in rows:
        own = {name: table.by_seed(row, col, f"reference.clean.{name}") for name in names}
        for members, found in groups:
            joint = {name: {**found[name], **own[name]} for name in names}
            if all(joint[name] == {**own[name], **found[name]} for name in names):
                members.append(row)
                found.update(joint)
                break
        else:
            groups += [([row], own)] if any(own.values()) else []
    return groups


def _format_mean(table: Pivot, row: str, col: str, metric: str = "") -> str:
    return _format_values(table, table.values(row, col, metric))


def _format_values(table: Pivot, values: Sequence[float]) -> str:
    if not values:
        return DASH
    number, std = _number_format(table), stats.sample_std(values)
    spread = "" if std is None else f" ± {std:{number}}"
    return f"{fmean(values):{number}}{spread} ({len(values)})"


def _format_interval(ends: Iterable[Any], number: str) -> str:
    return " to ".join(f"{end:{number}}" for end in ends) or DASH


def _number_format(table: Pivot) -> str:
    return ".2f" if table.in_percent else ".4g"


if __name__ == "__main__":
    sys.exit(main())
