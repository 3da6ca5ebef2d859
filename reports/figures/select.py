"""Selection of runs: by setting, by similarity to the paper's setting, and by method variant."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from methods.core.errors import UserError
from reports.frame.load import Row, group_by
from reports.frame.pivot import format_value
from reports.tables.rendering import with_greek_letters

Setting = tuple[tuple[str, str], ...]
# Sections that all methods of a comparison share.
SETTING_SECTIONS = ("dataset", "model", "partition", "noise", "federation", "budget", "protocol")
VARIANT_SECTIONS = ("method", "train", "labels", "hyperparameters", "executor")
# The setting of the figures in the FedCorr paper.
PAPER_SETTING = {
    "dataset.name": "cifar10", "partition.name": "iid", "noise.name": "rho_tau",
    "noise.rho": "0.6", "noise.tau": "0.5",
}  # fmt: skip
# Parameter values of a complete method. Ablations and combinations have other values.
UNABLATED = {
    "method.finetuning": "true", "method.usual_training": "true", "method.correction": "true",
    "method.mixup": "true", "method.proximal": "true", "method.fraction_scheduling": "true",
    "method.final_method": "fedavg", "method.ablation": "none",
}  # fmt: skip


def extend_rows(
    rows: Iterable[Row], key: str, read: Callable[[Path], Any], notes: list[str]
) -> list[Row]:
    """Add the result of `read(run_dir)` to each row. Unreadable runs are dropped and noted."""
    kept = []
    for row in rows:
        try:
            kept.append(row | {key: read(row["run_dir"])})
        except UserError as error:
            notes.append(str(error))
    return kept


def require_rows(rows: Sequence[Row], description: str) -> Sequence[Row]:
    """Return the rows; raise a UserError if there are none."""
    if not rows:
        raise UserError(f"skipped: no run {description}")
    return rows


def settings(
    row: Row, sections: Sequence[str] = SETTING_SECTIONS, without: Sequence[str] = ()
) -> Setting:
    """Some sections of the run's configuration as sorted key-value pairs, hashable."""
    return tuple(
        (key, format_value(value))
        for key, value in sorted(row["config"].items())
        if key.partition(".")[0] in sections and key not in without
    )


def by_setting(rows: Iterable[Row], without: Sequence[str] = ()) -> dict[Setting, list[Row]]:
    """Group the runs that are comparable with each other."""
    return group_by(rows, lambda row: settings(row, without=without))


def num_matching(row: Row, values: Mapping[str, str]) -> int:
    """The number of keys that have the given value in this run."""
    return sum(format_value(row.get(key)) == value for key, value in values.items())


def by_preference(rows: Iterable[Row], setting: Mapping[str, str] = PAPER_SETTING) -> list[Row]:
    """The runs most similar to the setting first, then unablated ones, then by seed."""

    def key(row: Row) -> tuple[int, int, int, str]:
        matching = num_matching(row, setting), num_matching(row, UNABLATED)
        return -matching[0], -matching[1], row["seed"], row["run_id"]

    return sorted(rows, key=key)


def best_match(rows: Iterable[Row], setting: Mapping[str, str] = PAPER_SETTING) -> Row:
    """The run whose configuration is most similar to the setting."""
    return by_preference(rows, setting)[0]


def best_by_label(
    rows: Iterable[Row], shared: Sequence[str], label: Callable[[Row], str]
) -> dict[str, Row]:
    """The preferred run of each label. All share some sections with the first of all runs."""
    ordered = by_preference(rows)
    first = settings(ordered[0], shared)
    same = [row for row in ordered if settings(row, shared) == first]
    return {name: members[0] for name, members in group_by(same, label).items()}


def keep_first(
    labels: Sequence[str], count: int, what: str, notes: list[str], filter: str = "KEY=VALUE"
) -> list[str]:
    """The first labels. The others are noted. `what` names the parts of the figure, as `lines`."""
    if labels[count:]:
        omitted = ", ".join(labels[count:])
        notes.append(f"omitted {omitted} (at most {count} {what}); filter with {filter}")
    return list(labels[:count])


def most_frequent_variant(rows: Iterable[Row], without: Sequence[str] = ()) -> list[Row]:
    """The runs of the variant with the most runs; unablated variants win ties.

    Keys in `without` may differ between runs of a variant.
    """
    ordered = sorted(rows, key=lambda row: (-num_matching(row, UNABLATED), row["run_id"]))
    groups = group_by(ordered, lambda row: settings(row, VARIANT_SECTIONS, without))
    return max(groups.values(), key=len, default=[])


def variants(rows: Sequence[Row]) -> list[str]:
    """A label per run: the method and the parameters that differ from most of its variants."""
    usual = {}
    for name, members in group_by(rows, lambda row: str(row["method.name"])).items():
        known = {settings(row, VARIANT_SECTIONS) for row in members}
        counts = Counter(item for variant in known for item in variant)
        usual[name] = {item for item, count in counts.items() if 2 * count > len(known)}
    labels = []
    for row in rows:
        name, own = row["method.name"], settings(row, VARIANT_SECTIONS)
        unusual = [item for item in own if item not in usual[name]]
        parameters = (f"{key.rpartition('.')[2]}={value}" for key, value in unusual)
        labels.append(" ".join([name, *parameters]))
    return labels


def numeric_params(row: Row, section: str) -> str:
    """The numbers of a section, such as "ρ 0.6, τ 0.5"."""
    numbers = [
        f"{key.removeprefix(f'{section}.')} {value:g}"
        for key, value in row["config"].items()
        if key.startswith(f"{section}.") and type(value) in (int, float)
    ]
    return with_greek_letters(", ".join(numbers))


def section_label(row: Row, section: str) -> str:
    """Name and numbers of a section, such as "rho_tau (ρ 0.6, τ 0.5)"."""
    name, numbers = row[f"{section}.name"], numeric_params(row, section)
    return f"{name} ({numbers})" if numbers else str(name)


def caption(row: Row, *sections: str) -> str:
    """Labels of some sections, by default of dataset, model, partition and noise."""
    return ", ".join(section_label(row, name) for name in sections or SETTING_SECTIONS[:4])
