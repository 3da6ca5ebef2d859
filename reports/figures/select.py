"""Which runs a figure shows: those of one setting, the one nearest to the paper's, and how variants are told apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from methods.core.errors import UserError
from reports.frame.load import flatten
from reports.frame.pivot import format_value

Row = dict[str, Any]  # a run, as reports.load has it
Setting = tuple[tuple[str, str], ...]
SETTING = (
    "dataset",
    "model",
    "partition",
    "noise",
    "federation",
    "budget",
)  # what all methods of a comparison share
VARIANT = ("method", "train")
# The setting of the FedCorr paper's figures.
PAPER = {
    "dataset.name": "cifar10",
    "partition.name": "iid",
    "noise.name": "rho_tau",
    "noise.rho": "0.6",
    "noise.tau": "0.5",
}
# A method as a whole: ablations and combinations come after it.
WHOLE = {
    f"method.{key}": value
    for key, value in {
        "finetuning": "true", "usual_training": "true", "correction": "true", "mixup": "true", "proximal": "true",
        "fraction_scheduling": "true", "final": "fedavg", "ablation": "none",
    }.items()
}  # fmt: skip


def rows_of(frame: pd.DataFrame, method: str = "") -> list[Row]:
    """The runs as rows, of one method if it is named."""
    rows: list[Row] = [
        {str(key): value for key, value in row.items()} for row in frame.to_dict("records")
    ]
    return [row for row in rows if method in ("", row["method.name"])]


def some(rows: Sequence[Row], what: str) -> Sequence[Row]:
    """The rows, or a line that says what is missing."""
    if not rows:
        raise UserError(f"not drawn: no run {what}")
    return rows


def settings(row: Row, sections: Sequence[str] = SETTING, without: Iterable[str] = ()) -> Setting:
    """Some sections of a run's configuration as something that can be compared and counted."""
    config = flatten({name: row["config"].get(name, {}) for name in sections})
    left_out = set(without)
    return tuple(
        (key, format_value(value)) for key, value in sorted(config.items()) if key not in left_out
    )


def by_setting(rows: Iterable[Row], without: Iterable[str] = ()) -> dict[Setting, list[Row]]:
    """Runs that may be compared with each other."""
    groups: dict[Setting, list[Row]] = {}
    left_out = tuple(without)
    for row in rows:
        groups.setdefault(settings(row, without=left_out), []).append(row)
    return groups


def likeness(row: Row, wishes: Mapping[str, str]) -> int:
    return sum(format_value(row.get(key)) == value for key, value in wishes.items())


def nearness(row: Row, wishes: Mapping[str, str] = PAPER) -> tuple[int, int, int, str]:
    """Sorts first what fulfils most wishes, then runs of the whole method, then by seed and name."""
    return -likeness(row, wishes), -likeness(row, WHOLE), row["seed"], row["run_id"]


def nearest(rows: Sequence[Row], wishes: Mapping[str, str] = PAPER) -> Row:
    return min(rows, key=lambda row: nearness(row, wishes))


def commonest(rows: Sequence[Row], without: Iterable[str] = ()) -> list[Row]:
    """The runs of a method's variant, apart from some keys, that has most runs; of several the whole method's."""
    left_out = tuple(without)
    ordered = sorted(rows, key=lambda row: (-likeness(row, WHOLE), row["run_id"]))
    counts = Counter(settings(row, VARIANT, left_out) for row in ordered)
    kept = counts.most_common(1)[0][0]
    return [row for row in ordered if settings(row, VARIANT, left_out) == kept]


def variants(rows: Sequence[Row]) -> list[str]:
    """A label per run: its method, and the parameters in which it departs from most variants of that method."""
    labels = []
    for row in rows:
        name = row["method.name"]
        known = {settings(other, VARIANT) for other in rows if other["method.name"] == name}
        usual = _usual([dict(variant) for variant in known])
        own = [(key, value) for key, value in settings(row, VARIANT) if usual.get(key) != value]
        labels.append(" ".join([name, *(f"{key.partition('.')[2]}={value}" for key, value in own)]))
    return labels


def _usual(known: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Values that more than half of the variants have."""
    usual = {}
    for key in {key for variant in known for key in variant}:
        value, count = Counter(variant.get(key, "") for variant in known).most_common(1)[0]
        if 2 * count > len(known):
            usual[key] = value
    return usual


def levels(row: Row, section: str) -> str:
    """The numbers of a section: rho 0.6, tau 0.5."""
    numbers = {
        key: value
        for key, value in row["config"].get(section, {}).items()
        if isinstance(value, (int, float))
    }
    return ", ".join(
        f"{key} {value:g}" for key, value in numbers.items() if not isinstance(value, bool)
    )


def section_label(row: Row, section: str) -> str:
    """A section by its name and its numbers: rho_tau (rho 0.6, tau 0.5)."""
    name, numbers = row[f"{section}.name"], levels(row, section)
    return f"{name} ({numbers})" if numbers else str(name)


def caption(row: Row, *sections: str) -> str:
    """What a panel shows, in words."""
    return ", ".join(section_label(row, section) for section in sections)
