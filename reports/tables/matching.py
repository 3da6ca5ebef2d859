"""Match runs with the cells of a published table.

A run belongs to a cell if its protocol, hyperparameters, dataset, method with all parameters,
noise, partition and precision equal those composed from the cell's overrides. At the paper's scale,
model, training, federation and budget must be equal too. At smaller scales they may differ, and the
cell's notes list the differences. If cells of one table differ in nothing else (FedCorr's Table 10
compares models), the keys that distinguish them must be equal at every scale.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.config import experiments
from benchmarks.config.compose import compose_run
from benchmarks.config.experiments import SCALE_DEPENDENT_SECTIONS
from methods.core.errors import UserError
from reports.frame.load import Row, Runs, flatten, group_by
from reports.published.tables import PublishedTable, load_table, table_names

CellKey = tuple[str, str]  # row label, column label
FlatConfig = Mapping[str, Any]
ABSENT = "absent"
# Equal at every scale. `executor` has the precision only.
CELL_SECTIONS = (
    *("protocol", "hyperparameters", "dataset", "method", "noise", "partition", "oracle"),
    "executor",
)


@dataclass
class Match:
    """The runs of one cell."""

    paper: FlatConfig  # configuration of the cell at the paper's scale
    done: list[Row] = field(default_factory=list)
    unsuccessful: list[Row] = field(default_factory=list)  # diverged or failed
    num_excluded: int = 0  # completed runs of the cell under other conditions


def match(
    table: PublishedTable, runs: Runs, scale: str, hyperparameters: str = ""
) -> tuple[dict[CellKey, Match], list[str]]:
    """Runs of the cells that have one at this scale, and warnings, also about near misses."""
    found_names = {names[1:] for names in runs.configurations if names[0] == scale}
    more = [f"hyperparameters={hyperparameters}"] if hyperparameters else []
    overrides = {
        (cell.row, cell.column): (*table.overrides(cell.row, cell.column, scale), *more)
        for cell in table.cells
        if cell.method and cell.column != table.average
    }
    configs, warnings = _compose_cells(table.name, overrides, found_names, scale)
    distinguishing = _distinguishing_keys(configs)
    varied = _varied_keys(table) | _varied_cell_keys()
    found: dict[CellKey, Match] = {}
    near_misses: Counter[str] = Counter()
    strict = ("model", "train", "federation", "budget") if scale == "paper" else ()
    sections = (*CELL_SECTIONS, *strict)
    for key, config in configs.items():
        for seeds in runs.configurations[scale, *_names(overrides[key])]:
            different = differences(seeds[0]["config"], config, sections, distinguishing[key])
            done = [run for run in seeds if run["status"] == "done"]
            if not different:
                if key not in found:
                    found[key] = Match(compose_flat(table.overrides(*key), table.scale))
                found[key].done += done
                found[key].unsuccessful += seeds[len(done) :]
            # A run that differs in a key of a heading belongs to another cell or table.
            elif done and not any(
                name in varied or name == "protocol" or name.endswith(".name") for name in different
            ):
                values = (f"{name}={one} (cell: {two})" for name, (one, two) in different.items())
                near_misses[", ".join(values)] += len(done)
    for entry in found.values():
        _keep_one_configuration(entry)
    warnings += [
        f"{table.name} at scale {scale}: {count} run{'s' * (count > 1)} excluded for {reason}"
        for reason, count in near_misses.items()
    ]
    return found, warnings


def compose_flat(overrides: Iterable[str], scale: str) -> FlatConfig:
    """Hashed configuration of a run under dotted keys, as in a record. Raises UserError."""
    return _compose_flat(experiments.CONF, (*overrides, f"scale={scale}"))


@cache
def _compose_flat(conf_dir: Path, overrides: tuple[str, ...]) -> FlatConfig:
    """Cached, because tables share cells and an HTML report is written repeatedly."""
    config = compose_run(overrides).hashed_config()
    sections = (*CELL_SECTIONS, *SCALE_DEPENDENT_SECTIONS)
    return flatten({name: config[name] for name in sections if name in config})


def differences(
    config: FlatConfig, other: FlatConfig, sections: Sequence[str], keys: Container[str] = ()
) -> dict[str, tuple[Any, Any]]:
    """Keys of some sections, and some other keys, that differ, with both values.

    Unknown content of data does not differ.
    """
    unknown = {key for key in {*config} ^ {*other} if key.endswith(".content")}
    found = {}
    for key in dict.fromkeys([*other, *config]):
        is_compared = key.partition(".")[0] in sections or key in keys
        values = config.get(key, ABSENT), other.get(key, ABSENT)
        if is_compared and key not in unknown and values[0] != values[1]:
            found[key] = values
    return found


def in_sections(*sections: str) -> Callable[[str], bool]:
    """A filter for keys of these sections."""
    return lambda key: key.partition(".")[0] in sections


def _compose_cells(
    table_name: str,
    overrides: Mapping[CellKey, Sequence[str]],
    found_names: Container[tuple[str, ...]],
    scale: str,
) -> tuple[dict[CellKey, FlatConfig], list[str]]:
    """Configurations of the cells that may have runs, and warnings about invalid overrides."""
    configs: dict[CellKey, FlatConfig] = {}
    failed: dict[str, list[CellKey]] = defaultdict(list)
    for key, texts in overrides.items():
        try:
            if _names(texts) in found_names:
                configs[key] = compose_flat(texts, scale)
        except UserError as error:
            failed[str(error)].append(key)
    warnings = []
    for reason, keys in failed.items():
        others = f"{len(keys)} cells, the first is " if len(keys) > 1 else ""
        cell = f"{others}cell ({', '.join(keys[0])})"
        warnings.append(f"{table_name}: {cell} not configured: {reason}")
    return configs, warnings


def _names(overrides: Sequence[str]) -> tuple[str, str]:
    values = dict(text.split("=", 1) for text in overrides)
    return values["dataset"], values["method"]


def _distinguishing_keys(configs: Mapping[CellKey, FlatConfig]) -> dict[CellKey, frozenset[str]]:
    """Scale-dependent keys that differ between cells of equal dataset, method, noise, partition."""
    in_cell_sections = in_sections(*CELL_SECTIONS)
    families: dict[Any, list[CellKey]] = defaultdict(list)
    for key, config in configs.items():
        family = frozenset(item for item in config.items() if in_cell_sections(item[0]))
        families[family].append(key)
    found: dict[CellKey, frozenset[str]] = {}
    for members in families.values():
        keys = frozenset(
            name
            for one in members
            for two in members
            for name in differences(configs[one], configs[two], SCALE_DEPENDENT_SECTIONS)
        )
        found |= dict.fromkeys(members, keys)
    return found


def _varied_keys(table: PublishedTable) -> set[str]:
    """Keys that the headings of the table set."""
    return {
        text.partition("=")[0]
        for heading in (*table.rows, *table.columns)
        for text in heading.overrides
    }


@cache
def _varied_cell_keys() -> set[str]:
    """Keys of dataset, method, noise and partition that the headings of any table set."""
    keys = {key for name in table_names() for key in _varied_keys(load_table(name))}
    return set(filter(in_sections(*CELL_SECTIONS), keys))


def _keep_one_configuration(entry: Match) -> None:
    """Keep the runs of one configuration: closest to the paper, then with most seeds."""
    if not entry.done:
        return
    may_differ = in_sections(*SCALE_DEPENDENT_SECTIONS)

    def conditions(run: Row) -> tuple[tuple[str, str], ...]:
        values = run["config"].items()
        return tuple(sorted((key, str(value)) for key, value in values if may_differ(key)))

    groups = group_by(entry.done, conditions)

    def order(own: tuple[tuple[str, str], ...]) -> tuple[Any, ...]:
        config = groups[own][0]["config"]
        distance = len(differences(config, entry.paper, SCALE_DEPENDENT_SECTIONS))
        return distance, -len(groups[own]), -config["budget.participations"], own

    chosen = min(groups, key=order)
    entry.num_excluded = len(entry.done) - len(groups[chosen])
    entry.done = sorted(groups[chosen], key=lambda run: int(run["seed"]))
    entry.unsuccessful = [run for run in entry.unsuccessful if conditions(run) == chosen]
