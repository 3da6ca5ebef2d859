"""Tuned values as data: conf/tuned/PROTOCOL/DATASET_SCALE/METHOD.yaml, with their provenance."""

import math
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.config.protocols import read_mapping
from benchmarks.config.schema import RunConfig
from benchmarks.loop.results import NUM_LAST_EVALUATIONS
from benchmarks.records.files import write_yaml
from benchmarks.records.record import package_versions
from benchmarks.tune.study import FIRST, FULL, Study
from methods.core.errors import UserError

JUDGED_ON = {"noisy": "held-out samples with given labels", "clean": "test split, clean labels"}
STATISTIC = f"mean of the last {NUM_LAST_EVALUATIONS} evaluations"
KEYS = {"overrides", "method", "protocol", "dataset", "scale", "seeds", "noise", "judged_by"}
KEYS |= {"participations", "space", "trials"}  # that the report shows
Data = dict[str, Any]


def data_dir(directory: Path, config: RunConfig) -> Path:
    """Directory of the files of one protocol, dataset and scale."""
    return directory / config.protocol / f"{config.dataset.name}_{config.scale}"


def write_tuned(directory: Path, study: Study, command: str) -> Path:
    """Write the values of the best trial and how they were found."""
    assert study.best is not None
    config, settings = study.recipe, study.settings
    hashed = config.hashed_config()
    trials = []
    for trial, values in enumerate(study.values):
        first = study.score(FIRST, trial)
        full = study.score(FULL, trial) if trial in study.trials(FULL) else None
        trials.append({"values": values, "first": _plain(first), "full": _plain(full)})
    path = data_dir(directory, config) / f"{study.method}.yaml"
    data = {
        "overrides": study.values[study.best],
        "oracle": settings.judge == "clean",
        "judged_by": f"{JUDGED_ON[settings.judge]}, {STATISTIC}",
        "method": study.method,
        "protocol": config.protocol,
        "dataset": config.dataset.name,
        "scale": config.scale,
        "noise": hashed["noise"],
        "partition": hashed["partition"],
        "validation": config.evaluate.validation,
        "seeds": list(settings.seeds),
        "participations": {"first": study.budgets[FIRST], "full": study.budgets[FULL]},
        "space": {p.key: {"low": p.low, "high": p.high, "log": p.log} for p in study.space},
        "trials": trials,  # the first one is the recipe
        "command": command,
        "versions": package_versions() | {"optuna": version("optuna")},
    }
    write_yaml(path, data)
    return path


def read_tuned(directory: Path) -> list[Data]:
    """The files of a directory, in the order of the methods' names."""
    found = []
    for path in sorted(directory.glob("*.yaml")):
        data = read_mapping(path)
        if not data.keys() >= KEYS:
            raise UserError(f"cannot read {path}: expected keys {', '.join(sorted(KEYS))}")
        found.append(data)
    return found


def _plain(score: float | None) -> float | None:
    """None for a trial that was unsuccessful or did not reach the stage."""
    return None if score is None or score == -math.inf else round(score, 6)
