"""Runs sorted for the page: settings that may be compared within, in them cells (a method's variant), in them seeds."""

from __future__ import annotations

import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from reports.figures.select import SETTING, VARIANT, Row, Setting, levels, settings, variants
from reports.frame.load import flatten
from reports.frame.statistics import PairedValue, describe_test, mean, pair, sample_std
from reports.page.rerun import rerun, written
from reports.tables.rendering import with_greek_letters

BASELINE = "fedavg"
ACCURACIES = ("best", "last10", "final")
# What the leaderboard shows besides accuracies: name on the page, column of the frame, factor.
MEASURES = (
    ("clients_f1", "scores.clients/f1", 100),
    ("samples_f1", "scores.samples/f1", 100),
    ("labels_before", "scores.labels/accuracy_before", 100),
    ("labels_after", "scores.labels/accuracy_after", 100),
    ("participations", "cost.participations", 1),
    ("seconds", "time.seconds_method", 1),
)
Key = tuple[Setting, Setting]


def number(value: Any) -> float | None:
    """A finite number, or None: frames have NaN where a record has nothing."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return value


def grouped(rows: Sequence[Row]) -> dict[Setting, dict[Setting, list[Row]]]:
    """Setting to variant to runs by seed. How often is tested is part of the setting: more tests, a higher best."""
    found: dict[Setting, dict[Setting, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in sorted(rows, key=lambda row: (row["seed"], row["run_id"])):
        setting = (("scale", row["scale"]), *settings(row, (*SETTING, "evaluate")))
        found[setting][settings(row, VARIANT)].append(row)
    return found


def identity(*parts: Any) -> str:
    """A short name that stays the same when the page is written again, for links into it."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:8]


def describe_settings(groups: Sequence[Setting], firsts: Sequence[Row]) -> list[dict[str, Any]]:
    """The parts that are filtered by, and in `also` what else tells a setting from others of the same description."""
    described = []
    for setting, row in zip(groups, firsts, strict=True):
        federation = row["config"]["federation"]
        described.append(
            {
                "id": identity(setting),
                "scale": row["scale"],
                "dataset": _label(row, "dataset"),
                "model": _label(row, "model"),
                "partition": _label(row, "partition"),
                "noise": _label(row, "noise"),
                "budget": row["budget.participations"],
                "clients": f"{federation.get('clients_per_round')} of {federation.get('num_clients')}",
            }
        )
    texts = [tuple(value for key, value in entry.items() if key != "id") for entry in described]
    for place, text in enumerate(texts):
        alike = [dict(groups[other]) for other, same in enumerate(texts) if same == text]
        own = dict(groups[place])
        apart = [key for key in own if any(other.get(key) != own[key] for other in alike)]
        described[place]["also"] = ", ".join(f"{key} {own[key]}" for key in apart)
    return described


def cell(setting: Setting, variant: Setting, label: str, rows: Sequence[Row]) -> dict[str, Any]:
    """A line of the leaderboard: means over the seeds that are done, and how the others ended."""
    done = [row for row in rows if row["status"] == "done"]
    again = rerun(rows[0]["config"], rows[0]["scale"])
    found: dict[str, Any] = {
        "id": identity(setting, variant),
        "label": label,
        "method": rows[0]["method.name"],
        "status": dict(Counter(row["status"] for row in rows)),
        "oracle": next((row["oracle"] for row in rows if row["oracle"]), ""),
        "command": again.command,
        "config": {key: written(value) for key, value in _flat(rows[0]).items()},
        "differs": {key: written(value) for key, value in again.differs.items()},
    }
    for name in ACCURACIES:
        found[name] = spread([100 * row[f"summary.{name}"] for row in done])
    for name, column, factor in MEASURES:
        values = [factor * value for row in done if (value := number(row.get(column))) is not None]
        found[name] = round(mean(values), 4) if values else None
    traffic = [value for row in done if (value := traffic_of(row)) is not None]
    found["megabytes"] = round(mean(traffic), 2) if traffic else None
    return found


def traffic_of(row: Row) -> float | None:
    """Megabytes in both directions."""
    down, up = number(row.get("cost.bytes_down")), number(row.get("cost.bytes_up"))
    return None if down is None or up is None else (down + up) / 1e6


def spread(values: Sequence[float]) -> dict[str, Any] | None:
    """Mean, sample standard deviation, number of seeds."""
    if not values:
        return None
    std = sample_std(values)
    return {
        "mean": round(mean(values), 4),
        "std": None if std is None else round(std, 4),
        "n": len(values),
    }


def versus_baseline(variants_of: dict[Setting, list[Row]]) -> dict[Setting, dict[str, Any]]:
    """Best accuracy minus the baseline's in the same scene, by seed; of several baselines the one trained alike."""
    baselines = [
        variant for variant, rows in variants_of.items() if rows[0]["method.name"] == BASELINE
    ]
    found = {}
    for variant, rows in variants_of.items():
        if rows[0]["method.name"] == BASELINE or not baselines:
            continue
        training = _training(variant)
        alike = [other for other in baselines if _training(other) == training]
        chosen = max(alike or baselines, key=lambda other: len(_outcomes(variants_of[other])))
        pairs = pair(_outcomes(rows), _outcomes(variants_of[chosen]))
        values = list(pairs.differences.values())
        found[variant] = {
            "mean": round(mean(values), 4) if values else None,
            "n": len(values),
            "words": "; ".join([describe_test(values), *pairs.unpaired]),
        }
    return found


def labels(variants_of: dict[Setting, list[Row]]) -> list[str]:
    return variants([rows[0] for rows in variants_of.values()])


def _training(variant: Setting) -> Setting:
    return tuple((key, value) for key, value in variant if key.startswith("train."))


def _outcomes(rows: Sequence[Row]) -> dict[int, PairedValue]:
    done = [row for row in rows if row["status"] == "done"]
    return {
        row["seed"]: PairedValue(100 * row["summary.best"], str(row["scene.hash"])) for row in done
    }


def _label(row: Row, section: str) -> str:
    numbers = levels(row, section)
    return (
        f"{row[f'{section}.name']} ({with_greek_letters(numbers)})"
        if numbers
        else str(row[f"{section}.name"])
    )


def _flat(row: Row) -> dict[str, Any]:
    return {
        key: value
        for key, value in flatten(row["config"]).items()
        if key not in ("seed", "protocol")
    }
