"""Reproduced values of a published table, with differences from the paper's configuration."""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean

from benchmarks.config.experiments import SCALE_DEPENDENT_SECTIONS
from benchmarks.records.files import CURVE_FILE, RECORD_FILE
from benchmarks.records.readers import read_curve
from methods.core.errors import UserError
from reports.frame.load import Row, Runs, caption_of
from reports.frame.statistics import sample_std
from reports.published.tables import PublishedTable
from reports.tables.matching import CellKey, Match, differences, match

TOLERANCE = 1e-9
SECTION_TITLES = {"train": "Training", "evaluate": "Evaluation"}  # others have their own name


@dataclass(frozen=True)
class ReproducedCell:
    """Values of one cell: percent, or participations if the table reports costs."""

    values: Mapping[int, float]  # by seed
    num_runs: int  # completed runs; larger than the number of values if a target was not reached
    statistic: str  # of the published table
    notes: tuple[str, ...]

    @property
    def value(self) -> float | None:
        if not self.values:
            return None
        numbers = list(self.values.values())
        return min(numbers) if self.statistic == "lowest" else fmean(numbers)

    @property
    def std(self) -> float | None:
        return None if self.statistic == "lowest" else sample_std(list(self.values.values()))


@dataclass(frozen=True)
class Results:
    """One published table with its reproduced cells at one scale."""

    table: PublishedTable
    scale: str
    metric: str  # of the reproduced cells
    cells: Mapping[CellKey, ReproducedCell]  # only cells with a run
    warnings: tuple[str, ...] = ()
    caption: str = ""  # protocols and hyperparameters of the runs

    def cell(self, key: CellKey) -> ReproducedCell:
        """A reproduced cell; without values if it has no run."""
        return self.cells.get(key, ReproducedCell({}, 0, self.table.statistic, ()))


def collect_results(
    table: PublishedTable, runs: Runs, scale: str, accuracy: str = "", hyperparameters: str = ""
) -> Results:
    """Reproduced values of a published table, from runs of one scale only.

    Tables of accuracies have the one that the paper reports, or `accuracy`. Runs have the default
    hyperparameters of the scale, or `hyperparameters`.
    """
    matches, warnings = match(table, runs, scale, hyperparameters)
    metric = accuracy if accuracy and table.target is None else table.metric
    cells = {
        key: _reproduced_cell(table, metric, found, warnings) for key, found in matches.items()
    }
    for row in table.rows if table.average is not None else ():
        inner = [cells[key] for key in cells if key[0] == row.label]
        # The average needs all columns, and is over the seeds that all have.
        seeds = set.intersection(*(set(cell.values) for cell in inner)) if inner else set()
        if seeds and len(inner) == len(table.columns):
            means = {seed: fmean([cell.values[seed] for cell in inner]) for seed in sorted(seeds)}
            average = ReproducedCell(means, len(means), table.statistic, ())
            cells[row.label, str(table.average)] = average
    caption = caption_of(run for found in matches.values() for run in found.done)
    return Results(table, scale, metric, cells, tuple(warnings), caption)


def cost_to_reach(run: Row, target: float) -> float | None:
    """Participations until the test accuracy first reached `target` percent; None if it did not."""
    curve = read_curve(run["run_dir"])
    if len(curve) == 0 or abs(curve["accuracy"].iloc[-1] - run["summary.final"]) > TOLERANCE:
        path = run["run_dir"] / CURVE_FILE
        raise UserError(f"{path}: last accuracy differs from {RECORD_FILE}; excluded")
    reached = curve[curve["accuracy"] >= target / 100 - TOLERANCE]
    return float(reached["participations"].iloc[0]) if len(reached) else None


def difference_notes(found: Match) -> tuple[str, ...]:
    """Differences from the paper's configuration, one note per section, and excluded runs."""
    notes = []
    for section in SCALE_DEPENDENT_SECTIONS if found.done else ():
        different = differences(found.done[0]["config"], found.paper, [section])
        name = f"{section}.name"
        if name in different:  # the parameters of another model are not comparable
            different = {name: different[name]}
        if different:
            texts = [
                f"{'' if key == name else key.partition('.')[2] + ' '}{value} instead of {paper}"
                for key, (value, paper) in different.items()
            ]
            title = SECTION_TITLES.get(section, section.capitalize())
            notes.append(f"{title}: {', '.join(texts)}.")
    oracles = dict.fromkeys(run["oracle"] for run in found.done)
    notes += [f"Oracle: {oracle}." for oracle in oracles if oracle]
    if found.unsuccessful:
        seeds = [f"seed {run['seed']} ({run['status']})" for run in found.unsuccessful]
        notes.append(f"Excluded: {', '.join(seeds)}.")
    if count := found.num_excluded:
        runs = "1 run" if count == 1 else f"{count} runs"
        notes.append(f"Excluded: {runs} with another model, training, federation or budget.")
    return tuple(notes)


def _reproduced_cell(
    table: PublishedTable, metric: str, found: Match, warnings: list[str]
) -> ReproducedCell:
    results: dict[int, float | None] = {}  # None: target not reached
    for run in found.done:
        try:
            if table.target is not None:
                results[run["seed"]] = cost_to_reach(run, table.target)
            elif f"summary.{metric}" in run:
                results[run["seed"]] = 100 * float(run[f"summary.{metric}"])
        except UserError as error:
            warnings.append(str(error))
    values = {seed: value for seed, value in results.items() if value is not None}
    return ReproducedCell(values, len(results), table.statistic, difference_notes(found))
