"""Which runs belong to which cell of a published table.

A run belongs to a cell if its data set, method with all parameters, noise and partition equal those that Hydra composes
from the cell's overrides. At the paper's scale network, training, federation and budget must be equal too; at smaller
scales they may differ, and the cell's notes say how. Where cells of one table differ in nothing else (FedCorr's
Table 10 compares networks), what tells them apart must be equal at every scale.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pandas as pd

from benchmarks.config.experiments import SCALE_DEPENDENT_SECTIONS
from reports.configure import SCIENCE, NotConfigured, check_choices, configured
from reports.frame.load import Runs, flatten
from reports.published import PublishedTable, load, names

CellKey = tuple[str, str]
Flat = Mapping[str, Any]
RunConditions = tuple[tuple[str, str], ...]
ABSENT = "absent"


@dataclass(frozen=True)
class MatchedRun:
    """A run as the matching sees it."""

    config: Flat
    row: Mapping[str, Any]  # its line of the frame

    @property
    def seed(self) -> int:
        return int(self.row["seed"])

    @property
    def conditions(self) -> RunConditions:
        """Network, training, federation, budget and evaluation, to tell runs of one cell apart."""
        return tuple(
            sorted(
                (key, str(value))
                for key, value in self.config.items()
                if in_sections(*SCALE_DEPENDENT_SECTIONS)(key)
            )
        )


@dataclass
class Match:
    """The runs of one cell."""

    paper: Flat  # the cell's configuration at the paper's scale
    done: list[MatchedRun] = field(default_factory=list)
    unsuccessful: list[MatchedRun] = field(
        default_factory=list
    )  # diverged or failed, same configuration
    num_excluded: int = (
        0  # done runs of the cell in another network, budget, ... than those that are counted
    )


@dataclass(frozen=True)
class Matches:
    cells: Mapping[CellKey, Match]  # only cells with a run
    warnings: tuple[str, ...]


def match(table: PublishedTable, runs: Runs, scale: str) -> Matches:
    """The runs of every cell at one scale. Runs that miss a cell by a setting alone are named in the warnings."""
    places = [(row.label, column.label) for row in table.rows for column in table.columns]
    wanted = {place: table.overrides(*place, scale) for place in places}
    by_names = _by_names(runs, scale)
    found: dict[CellKey, Match] = {}
    refused: dict[str, list[CellKey]] = defaultdict(list)
    composed: dict[CellKey, Flat] = {}
    for place, overrides in wanted.items():
        if not table.cell(*place).method:
            continue
        try:
            check_choices(overrides)
            if _names(overrides) in by_names:
                composed[place] = configured(overrides, scale)
        except NotConfigured as error:
            refused[str(error)].append(place)
    warnings = [
        f"{table.name}: {_cells(cells)} not configured: {reason}"
        for reason, cells in refused.items()
    ]
    decisive = _distinguishing_keys(composed)
    varied = _varied(table) | _varied_cell_keys()
    misses: Counter[str] = Counter()
    for place, here in composed.items():
        must = _required_key_filter(scale, decisive[place])
        for run in by_names[_names(wanted[place])]:
            different = differences(run.config, here, must)
            if not different:
                entry = found.setdefault(
                    place, Match(configured(table.overrides(*place), table.scale))
                )
                (entry.done if run.row["status"] == "done" else entry.unsuccessful).append(run)
            # Where a heading's key differs, the run belongs to another cell or table.
            elif run.row["status"] == "done" and not any(
                key in varied or key.endswith(".name") for key in different
            ):
                misses[
                    ", ".join(
                        f"{key}={ours} (cell: {theirs})"
                        for key, (ours, theirs) in different.items()
                    )
                ] += 1
    for entry in found.values():
        _keep_one_configuration(entry)
    for reason, count in misses.items():
        line = (
            f"{table.name} at scale {scale}: {count} run{'s' * (count > 1)} left out for {reason}"
        )
        warnings.append(line)
    return Matches(found, tuple(warnings))


def differences(
    config: Flat, other: Flat, counts: Callable[[str], bool]
) -> dict[str, tuple[Any, Any]]:
    """Keys that count and differ, with both values."""
    keys = [key for key in dict.fromkeys([*other, *config]) if counts(key)]
    pairs = {key: (config.get(key, ABSENT), other.get(key, ABSENT)) for key in keys}
    return {key: (ours, theirs) for key, (ours, theirs) in pairs.items() if ours != theirs}


def in_sections(*sections: str) -> Callable[[str], bool]:
    return lambda key: key.partition(".")[0] in sections


def _by_names(runs: Runs, scale: str) -> dict[tuple[str, str], list[MatchedRun]]:
    found = defaultdict(list)
    for frame in (runs.done, runs.unsuccessful):
        for row in _rows(frame[frame["scale"] == scale]):
            found[row["dataset.name"], row["method.name"]].append(
                MatchedRun(flatten(row["config"]), row)
            )
    return dict(found)


def _names(overrides: Sequence[str]) -> tuple[str, str]:
    given = dict(text.split("=", 1) for text in overrides)
    return given["dataset"], given["method"]


def _rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(key): value for key, value in row.items()} for row in frame.to_dict("records")]


def _required_key_filter(scale: str, decisive: frozenset[str]) -> Callable[[str], bool]:
    sections = (*SCIENCE, "model", "train", "federation", "budget") if scale == "paper" else SCIENCE
    within = in_sections(*sections)
    return lambda key: within(key) or key in decisive


def _distinguishing_keys(composed: Mapping[CellKey, Flat]) -> dict[CellKey, frozenset[str]]:
    """For every cell the keys by which it differs from cells of the same data set, method, noise and partition."""
    science, world = in_sections(*SCIENCE), in_sections(*SCALE_DEPENDENT_SECTIONS)
    families: dict[Any, list[CellKey]] = defaultdict(list)
    for place, config in composed.items():
        families[frozenset((key, value) for key, value in config.items() if science(key))].append(
            place
        )
    found = {}
    for family in families.values():
        keys = [
            differences(composed[one], composed[two], world) for one in family for two in family
        ]
        for place in family:
            found[place] = frozenset(key for differing in keys for key in differing)
    return found


def _varied(table: PublishedTable) -> set[str]:
    """Keys that the table's own headings set."""
    return {
        text.partition("=")[0]
        for heading in (*table.rows, *table.columns)
        for text in heading.overrides
    }


@cache
def _varied_cell_keys() -> set[str]:
    """Keys of data set, method, noise and partition that the headings of any table set."""
    return {key for name in names() for key in _varied(load(name)) if in_sections(*SCIENCE)(key)}


def _keep_one_configuration(entry: Match) -> None:
    """Keep the runs of one network, federation, budget and training: nearest to the paper, then most seeds."""
    world = in_sections(*SCALE_DEPENDENT_SECTIONS)
    variants: dict[RunConditions, list[MatchedRun]] = defaultdict(list)
    for run in entry.done:
        variants[run.conditions].append(run)
    if not variants:
        return

    def order(item: tuple[RunConditions, list[MatchedRun]]) -> tuple[int, int, int, RunConditions]:
        config = item[1][0].config
        distance = len(differences(config, entry.paper, world))
        return distance, -len(item[1]), -int(config["budget.participations"]), item[0]

    chosen, kept = min(variants.items(), key=order)
    entry.num_excluded = len(entry.done) - len(kept)
    entry.done = sorted(kept, key=lambda run: run.seed)
    entry.unsuccessful = [run for run in entry.unsuccessful if run.conditions == chosen]


def _cells(places: Sequence[CellKey]) -> str:
    row, column = places[0]
    return (
        f"cell ({row}, {column})"
        if len(places) == 1
        else f"{len(places)} cells from ({row}, {column}) on"
    )
