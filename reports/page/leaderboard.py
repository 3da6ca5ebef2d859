"""Leaderboard: runs grouped by setting and method variant, aggregated over seeds."""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from benchmarks.records.record import ACCURACIES
from reports.figures import select
from reports.figures.select import SETTING_SECTIONS, VARIANT_SECTIONS, Setting, settings
from reports.frame import statistics as stats
from reports.frame.load import Row, caption_of, group_by
from reports.frame.pivot import reference_accuracies
from reports.page.rerun import rerun, to_override_value

BASELINE = "fedavg"
# Columns besides accuracies: name on the page, column of the frame, factor.
METRICS = (
    ("forgetting", "summary.forgetting", 100),
    ("clients_f1", "metrics.clients/f1", 100),
    ("samples_f1", "metrics.samples/f1", 100),
    ("labels_before", "metrics.labels/accuracy_before", 100),
    ("labels_after", "metrics.labels/accuracy_after", 100),
    ("participations", "cost.participations", 1),
    ("seconds", "time.seconds_method", 1),
)
Variants = Mapping[Setting, Sequence[Row]]  # variant -> runs by seed


def group_runs(rows: Sequence[Row]) -> dict[Setting, Variants]:
    """Setting -> variant -> runs by seed; settings with most variants first.

    The evaluation interval is part of the setting: more evaluations give a higher best accuracy.
    """

    def setting_of(row: Row) -> Setting:
        return (("scale", row["scale"]), *settings(row, (*SETTING_SECTIONS, "evaluate")))

    ordered = sorted(rows, key=lambda row: (row["seed"], row["run_id"]))
    groups = {
        setting: group_by(members, lambda row: settings(row, VARIANT_SECTIONS))
        for setting, members in group_by(ordered, setting_of).items()
    }
    order = sorted(groups, key=lambda setting: (-len(groups[setting]), setting))
    return {setting: groups[setting] for setting in order}


def stable_id(*parts: Any) -> str:
    """A short hash for links; the same in every version of the page."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:8]


def describe_settings(groups: Mapping[Setting, Variants]) -> list[dict[str, Any]]:
    """The filter values of each setting. `also` lists keys that distinguish equal descriptions."""
    described: list[dict[str, Any]] = []
    similar: dict[str, list[dict[str, str]]] = {}
    for setting, variants in groups.items():
        first = next(iter(variants.values()))[0]
        config = first["config"]
        cohort, total = config.get("federation.clients_per_round"), config["federation.num_clients"]
        names = ("dataset", "model", "partition", "noise")
        described.append(
            {
                "scale": first["scale"],
                **{name: select.section_label(first, name) for name in names},
                "budget": first["budget.participations"],
                "clients": f"{cohort} of {total}",
                "protocol": caption_of(rows[0] for rows in variants.values()),
            }
        )
        similar.setdefault(str(described[-1]), []).append(dict(setting))
    for setting, description in zip(groups, described, strict=True):
        others = similar[str(description)]
        distinct = [
            f"{key} {value}"
            for key, value in setting
            if any(other.get(key) != value for other in others)
        ]
        description |= {"id": stable_id(setting), "also": ", ".join(distinct)}
    return described


def leaderboard_entries(setting: Setting, members: Variants, accuracy: str) -> list[dict[str, Any]]:
    """One entry per variant of a setting, compared with the baseline by `accuracy`."""
    labels = select.variants([rows[0] for rows in members.values()])
    rivals = {variant: rows for variant, rows in members.items() if not is_reference(variant)}
    differences = compare_with_baseline(rivals, accuracy)
    bold = {}
    for name in ACCURACIES:
        results = {variant: _by_seed(rows, name) for variant, rows in rivals.items()}
        bold[name] = stats.supported_best(
            [{key: values for key, values in results.items() if values}]
        )
    return [
        {"id": stable_id(setting, variant), "label": label}
        | leaderboard_entry(members[variant])
        | {"versus": differences.get(variant), "reference": is_reference(variant)}
        | {"repaired": _repaired(members[variant], accuracy)}
        | {"bold": [name for name in ACCURACIES if variant in bold[name]]}
        for label, variant in zip(labels, members, strict=True)
    ]


def leaderboard_entry(rows: Sequence[Row]) -> dict[str, Any]:
    """Means over the seeds of done runs, and the status of all runs."""
    done = [row for row in rows if row["status"] == "done"]
    first, command = rows[0], rerun(rows[0]["config"], rows[0]["scale"])
    entry: dict[str, Any] = {
        "method": first["method.name"],
        "status": dict(Counter(row["status"] for row in rows)),
        "oracle": next((row["oracle"] for row in rows if row["oracle"]), ""),
        "command": command.command,
        "config": {
            key: to_override_value(value) for key, value in first["config"].items() if key != "seed"
        },
        "defaults": {key: to_override_value(value) for key, value in command.defaults.items()},
    }
    for name in ACCURACIES:
        values = [*_by_seed(done, name).values()]
        std = stats.sample_std(values)
        summary = {"mean": _mean(values), "std": std and round(std, 4), "n": len(values)}
        entry[name] = summary if values else None
    for name, column, factor in METRICS:
        entry[name] = _mean([row.get(column) for row in done], factor)
    traffic = [(row.get("cost.bytes_down"), row.get("cost.bytes_up")) for row in done]
    sums = [(down + up) / 1e6 for down, up in traffic if down is not None and up is not None]
    entry["megabytes"] = _mean(sums, digits=2)
    return entry


def compare_with_baseline(members: Variants, accuracy: str) -> dict[Setting, dict[str, Any]]:
    """Accuracy minus the baseline's, paired by seed and scenario.

    Of several baselines, one with the same training parameters and precision is used. The p-values
    are corrected for the number of variants.
    """
    is_baseline = {variant: rows[0]["method.name"] == BASELINE for variant, rows in members.items()}
    baselines = [variant for variant in members if is_baseline[variant]]
    results = {variant: _by_seed(rows, accuracy) for variant, rows in members.items()}
    paired = {}
    for variant in members if baselines else ():
        if is_baseline[variant]:
            continue
        same = [other for other in baselines if _training(other) == _training(variant)]
        chosen = max(same or baselines, key=lambda other: len(results[other]))
        paired[variant] = stats.pair(results[variant], results[chosen])
    return {
        variant: {
            "mean": _mean([*paired[variant].differences.values()]),
            "n": len(paired[variant].differences),
            "verdict": "; ".join([verdict, *paired[variant].unpaired]),
        }
        for variant, (_, verdict) in stats.corrected_tests(paired).items()
    }


def is_reference(variant: Setting) -> bool:
    """True for runs on clean labels."""
    return ("labels", "clean") in variant


def _repaired(rows: Sequence[Row], accuracy: str) -> dict[str, Any] | None:
    """Damage repaired in percent, over the seeds with reference runs."""
    found = stats.damage_repaired([reference_accuracies(rows, accuracy)])
    if found is None:
        return None
    interval = [round(100 * end, 2) for end in found.interval] or None
    return {"share": round(100 * found.share, 2), "interval": interval}


def _mean(values: Sequence[float | None], factor: float = 1, digits: int = 4) -> float | None:
    known = [factor * value for value in values if value is not None]
    return round(fmean(known), digits) if known else None


def _training(variant: Setting) -> Setting:
    return tuple((key, value) for key, value in variant if key.startswith(("train.", "executor.")))


def _by_seed(rows: Sequence[Row], name: str) -> stats.BySeed:
    """Accuracies of done runs in percent."""
    return {
        (row["seed"], str(row["scenario.hash"])): 100 * row[f"summary.{name}"]
        for row in rows
        if row["status"] == "done" and f"summary.{name}" in row
    }
