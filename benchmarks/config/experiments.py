"""Experiments: named lists of runs, one per published table or figure.

`experiment=fedcorr_table2` stands for the runs of conf/experiment/fedcorr_table2.yaml:

    common: dataset=cifar10 noise=rho_tau  # overrides of every run
    rows: [method=fedavg, method=fedcorr]  # overrides, or labels with overrides as below
    columns:
      rho=0.4: {tau=0.5: noise.rho=0.4 noise.tau=0.5}
    extra:  # overrides of some runs, at some scale
      - {rows: [method=fedcorr], scale: laptop, overrides: train.lr=0.01}
    skip:  # combinations that are not run
      - {rows: [method=fedavg], columns: [rho=0.4 / tau=0.5]}

There is one run per row and column. At scales other than paper, `common` does not set the
scale-dependent sections: model, training, federation, budget and evaluation are those of the
scale. A file with `defaults: [OTHER]` has the layout of another file.

Parameters of method and training that differ between runs which otherwise differ in the noise only
are chosen by the true noise. The key `oracle` of these runs lists them. A file with one noise level
sets the key itself.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field

from methods.core.errors import invalid, unknown
from methods.core.params import Tuple, build_params, parameters

CONF = Path(__file__).resolve().parents[2] / "conf"
SCALE_DEPENDENT_SECTIONS = ("model", "train", "federation", "budget", "evaluate")
HYPERPARAMETERS = ("method.", "train.")
Entries = Annotated[Tuple[Any], Field(description="a list")]


@parameters
class Layout:
    """Content of an experiment file."""

    common: str = ""
    rows: Any = ("",)
    columns: Any = ("",)
    extra: Entries = ()
    skip: Entries = ()


@dataclass(frozen=True)
class Heading:
    """A row or column: its label and its overrides."""

    group: str  # spanning header above the label, or empty
    name: str
    overrides: tuple[str, ...]

    @property
    def label(self) -> str:
        """Group and name, as used in `extra`, `skip` and the published tables."""
        return f"{self.group} / {self.name}" if self.group else self.name


@parameters
class Selection:
    """Some rows and columns of a table. An empty list selects all."""

    rows: Tuple[str] = ()
    columns: Tuple[str] = ()

    def applies(self, row: str, column: str) -> bool:
        return (not self.rows or row in self.rows) and (not self.columns or column in self.columns)


@parameters
class ExtraOverrides(Selection):
    """Overrides of selected runs that neither the row nor the column alone determines."""

    overrides: str = ""
    scale: Literal["", "paper", "laptop", "smoke"] = ""  # empty: all scales


@dataclass(frozen=True)
class Experiment:
    """Layout of an experiment: the overrides of every run."""

    name: str
    common: tuple[str, ...]
    rows: tuple[Heading, ...]
    columns: tuple[Heading, ...]
    extra: tuple[ExtraOverrides, ...]
    skip: tuple[Selection, ...]

    def overrides(self, row: str, column: str, scale: str) -> tuple[str, ...]:
        """Overrides of one run, without `scale=` itself."""
        given = self._given_overrides(row, column, scale)
        return merge_overrides(given, keys_by_noise(self, scale)[row, column])

    def _given_overrides(self, row: str, column: str, scale: str) -> tuple[str, ...]:
        dropped = SCALE_DEPENDENT_SECTIONS if scale != "paper" else ()
        common = (text for text in self.common if re.split("[.=]", text)[0] not in dropped)
        column_overrides = find_heading(self.columns, column, f"{self.name}: column").overrides
        row_overrides = find_heading(self.rows, row, f"{self.name}: row").overrides
        extra = [entry for entry in self.extra if entry.applies(row, column)]
        more = (entry.overrides.split() for entry in extra if entry.scale in ("", scale))
        return merge_overrides(common, column_overrides, row_overrides, *more)

    def is_skipped(self, row: str, column: str) -> bool:
        return any(entry.applies(row, column) for entry in self.skip)

    def run_overrides(self, scale: str) -> list[list[str]]:
        """Overrides of all runs in row-major order, without duplicates."""
        found = [
            self.overrides(row.label, column.label, scale)
            for row, column in product(self.rows, self.columns)
            if not self.is_skipped(row.label, column.label)
        ]
        return [list(run) for run in dict.fromkeys(found)]


@cache
def keys_by_noise(experiment: Experiment, scale: str) -> dict[tuple[str, str], list[str]]:
    """For each cell, `oracle=[...]` with the parameters that are chosen by the true noise."""
    groups: dict[Any, dict[tuple[str, str], dict[str, str]]] = {}
    for row, column in product(experiment.rows, experiment.columns):
        given = experiment._given_overrides(row.label, column.label, scale)
        cells = groups.setdefault((_other_than_noise(row), _other_than_noise(column)), {})
        cells[row.label, column.label] = dict(text.split("=", 1) for text in given)
    found: dict[tuple[str, str], list[str]] = {}
    for cells in groups.values():
        keys = dict.fromkeys(key for values in cells.values() for key in values)
        chosen = [key for key in keys if key.startswith(HYPERPARAMETERS)]
        varied = [key for key in chosen if len({cell.get(key) for cell in cells.values()}) > 1]
        for cell in cells:
            found[cell] = [f"oracle=[{','.join(varied)}]"] if varied else []
    return found


def _other_than_noise(heading: Heading) -> tuple[str, ...]:
    """Overrides of a heading. One that sets the noise must not set parameters of a method."""
    is_noise = [text.startswith(("noise.", "noise=")) for text in heading.overrides]
    dropped = ("noise.", "noise=", *HYPERPARAMETERS) if any(is_noise) else ()
    return tuple(text for text in heading.overrides if not text.startswith(dropped))


def experiment_names(conf: Path = CONF) -> list[str]:
    return sorted(path.stem for path in (conf / "experiment").glob("*.yaml"))


def load_experiment(name: str, conf: Path = CONF) -> Experiment:
    """Read conf/experiment/NAME.yaml."""
    if name not in experiment_names(conf):
        raise unknown("experiment", name, experiment_names(conf))
    return parse_experiment(name, _read_layout(conf / "experiment" / f"{name}.yaml"))


def _read_layout(path: Path) -> dict[str, Any]:
    """Content of a file, over that of the files in its defaults list, as Hydra composes it."""
    content: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    for base in content.pop("defaults", []):
        content = _read_layout(path.with_stem(base)) | content
    return content


def parse_experiment(name: str, content: Mapping[str, Any]) -> Experiment:
    """Layout from the content of an experiment file."""
    layout = build_params(Layout, content, "experiment")
    experiment = Experiment(
        name,
        tuple(layout.common.split()),
        parse_headings(layout.rows, "experiment.rows"),
        parse_headings(layout.columns, "experiment.columns"),
        tuple(build_params(ExtraOverrides, entry, "experiment.extra") for entry in layout.extra),
        tuple(build_params(Selection, entry, "experiment.skip") for entry in layout.skip),
    )
    for entry in (*experiment.extra, *experiment.skip):
        for label in entry.rows:
            find_heading(experiment.rows, label, f"{name}: row")
        for label in entry.columns:
            find_heading(experiment.columns, label, f"{name}: column")
    return experiment


def parse_headings(content: Any, key: str) -> tuple[Heading, ...]:
    """Rows or columns from `[overrides]`, `{name: overrides}` or `{group: {name: overrides}}`."""
    if isinstance(content, Sequence) and not isinstance(content, str):
        content = {overrides: overrides for overrides in content}
    if not isinstance(content, Mapping):
        raise invalid(key, content, "a list of overrides or a mapping of labels to overrides")
    found = []
    for label, entry in content.items():
        group, members = ("", {label: entry}) if isinstance(entry, str) else (label, entry)
        valid = isinstance(members, Mapping) and {*map(type, members.values())} <= {str}
        if not valid:
            raise invalid(f"{key}.{label}", entry, "overrides, or a mapping of labels to overrides")
        found += [
            Heading(group, name, tuple(overrides.split())) for name, overrides in members.items()
        ]
    return tuple(found)


def find_heading(headings: Iterable[Heading], label: str, what: str) -> Heading:
    by_label = {heading.label: heading for heading in headings}
    if label not in by_label:
        raise unknown(what, label, by_label)
    return by_label[label]


def merge_overrides(*layers: Iterable[str]) -> tuple[str, ...]:
    """Join overrides. Later ones win. Choosing a group drops earlier values inside that group."""
    merged: dict[str, str] = {}  # by key
    for override in (override for layer in layers for override in layer):
        key = override.partition("=")[0]
        inside = f"{key}."
        merged = {k: text for k, text in merged.items() if not k.lstrip("+~").startswith(inside)}
        if "oracle" in merged:
            marked = merged["oracle"].removeprefix("oracle=").strip("[]").split(",")
            kept = [name for name in marked if not name.startswith(inside)]
            merged["oracle"] = f"oracle=[{','.join(kept)}]"
        merged[key] = override
    return tuple(merged.values())
