"""Our side of a published table: for every cell its runs' numbers, and what differs from the paper's configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.config.experiments import SCALE_DEPENDENT_SECTIONS
from methods.core.errors import UserError
from reports.frame.load import Runs, read_curve
from reports.frame.statistics import mean, sample_std
from reports.published import PublishedTable
from reports.tables.matching import CellKey, Match, MatchedRun, differences, in_sections, match

TITLES = {
    "model": "Network",
    "train": "Training",
    "federation": "Federation",
    "budget": "Budget",
    "evaluate": "Evaluation",
}
TOLERANCE = 1e-9


@dataclass(frozen=True)
class ReproducedCell:
    """One cell: percent, or client participations where the table counts costs."""

    values: Mapping[int, float]  # by seed
    num_runs: int  # runs that ended; fewer values where a target was not reached
    statistic: str  # of the published table
    notes: tuple[str, ...]

    @property
    def value(self) -> float | None:
        if not self.values:
            return None
        numbers = list(self.values.values())
        return min(numbers) if self.statistic == "lowest" else mean(numbers)

    @property
    def std(self) -> float | None:
        return None if self.statistic == "lowest" else sample_std(list(self.values.values()))


@dataclass(frozen=True)
class Results:
    """One table at one scale."""

    table: PublishedTable
    scale: str
    cells: Mapping[CellKey, ReproducedCell]  # only cells with a run
    warnings: tuple[str, ...]


def collect_results(table: PublishedTable, runs: Runs, scale: str) -> Results:
    """Our numbers for a published table, from runs of one scale alone."""
    matches = match(table, runs, scale)
    warnings = list(matches.warnings)
    cells = {place: _cell(table, entry, warnings) for place, entry in matches.cells.items()}
    if table.average is not None:
        for row in table.rows:
            inner = [cells.get((row.label, column.label)) for column in table.columns]
            if (
                average := _average([cell for cell in inner if cell], len(inner), table.statistic)
            ) is not None:
                cells[row.label, table.average] = average
    return Results(table, scale, cells, tuple(warnings))


def cost_to_reach(run: MatchedRun, target: float) -> float | None:
    """Client participations until the test accuracy first reached `target` percent; None if it never did."""
    curve = read_curve(run.row["run_dir"])
    if len(curve) == 0 or abs(curve["accuracy"].iloc[-1] - run.row["summary.final"]) > TOLERANCE:
        raise UserError(
            f"{run.row['run_dir'] / 'curve.csv'}: does not end as record.json says; left out"
        )
    reached = curve[curve["accuracy"] >= target / 100 - TOLERANCE]
    return float(reached["participations"].iloc[0]) if len(reached) else None


def difference_notes(entry: Match) -> tuple[str, ...]:
    """How the runs differ from the paper's cell, a note per section of the configuration; and what else to know."""
    notes = []
    for run in entry.done[:1]:
        for section in SCALE_DEPENDENT_SECTIONS:
            different = differences(run.config, entry.paper, in_sections(section))
            if (
                f"{section}.name" in different
            ):  # another network: its own parameters say nothing more
                different = {f"{section}.name": different[f"{section}.name"]}
            if different:
                parts = [
                    f"{_plain(key)}{ours} instead of {theirs}"
                    for key, (ours, theirs) in different.items()
                ]
                notes.append(f"{TITLES[section]}: {', '.join(parts)}.")
    for oracle in dict.fromkeys(run.row["oracle"] for run in entry.done):
        if oracle:
            notes.append(f"Oracle: {oracle}.")
    lost = [f"seed {run.seed} ({run.row['status']})" for run in entry.unsuccessful]
    if lost:
        notes.append(f"Not counted: {', '.join(lost)}.")
    if entry.num_excluded:
        notes.append(
            f"Not counted: {entry.num_excluded} run(s) of the cell with another network, training or budget."
        )
    return tuple(notes)


def _cell(table: PublishedTable, entry: Match, warnings: list[str]) -> ReproducedCell:
    values: dict[int, float] = {}
    ran = 0
    for run in entry.done:
        try:
            value = _metric(table, run)
        except UserError as error:
            warnings.append(str(error))
            continue
        ran += 1
        if value is not None:
            values[run.seed] = value
    return ReproducedCell(values, ran, table.statistic, difference_notes(entry))


def _metric(table: PublishedTable, run: MatchedRun) -> float | None:
    if table.target is not None:
        return cost_to_reach(run, table.target)
    return 100 * float(run.row[f"summary.{table.metric}"])


def _average(cells: list[ReproducedCell], columns: int, statistic: str) -> ReproducedCell | None:
    """The row's mean by seed, over the seeds that all of its columns have."""
    if len(cells) < columns:
        return None
    seeds = set.intersection(*(set(cell.values) for cell in cells))
    if not seeds:
        return None
    means = {seed: mean([cell.values[seed] for cell in cells]) for seed in sorted(seeds)}
    return ReproducedCell(means, len(means), statistic, ())


def _plain(key: str) -> str:
    known = {"model.name": "", "budget.participations": "client participations "}
    return known.get(key, f"{key.partition('.')[2]} ")
