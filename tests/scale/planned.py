"""Runs of all published tables at paper scale, and records of such runs that were not executed."""

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.config.experiments import experiment_names
from benchmarks.config.schema import RunConfig
from benchmarks.config.sweep import expand
from benchmarks.records.files import RECORD_FILE


def planned_configs() -> list[RunConfig]:
    """Runs of all published tables at paper scale with one seed, without duplicates."""
    names = [name for name in experiment_names() if "_table" in name]
    runs = [run for name in names for run in expand([f"experiment={name}", "scale=paper"])]
    return list({config.run_id: config for _, config in runs}.values())


def write_records(runs: Path, real: Path, number: int) -> None:
    """Copy a real run. Files other than the record are links."""
    configs = planned_configs()
    print(f"{number} records: {len(configs)} runs with seeds 1 to {-(-number // len(configs))}")
    copies: Iterator[RunConfig] = (
        replace(config, seed=seed, runs_dir=runs) for seed in count(1) for config in configs
    )
    record = json.loads((real / RECORD_FILE).read_text())
    generator = np.random.default_rng(0)
    for config in islice(copies, number):
        config.run_dir.mkdir(parents=True)
        for path in real.iterdir():
            if path.name != RECORD_FILE:
                os.link(path, config.run_dir / path.name)
        content = vary(record, config, generator)
        (config.run_dir / RECORD_FILE).write_text(json.dumps(content))


def vary(record: dict[str, Any], config: RunConfig, generator: np.random.Generator) -> Any:
    """The record with another configuration, scenario and accuracy."""
    hashed = config.hashed_config()
    parts = ("seed", "dataset", "partition", "noise", "federation")
    scenario = {"hash": str(hash(json.dumps([hashed[part] for part in parts])))}
    accuracy = float(generator.uniform(0.3, 0.8))
    names = ("best", "last10")  # the final one is that of the learning curve
    return record | {
        "config": hashed,
        "run_id": config.run_id,
        "scenario": record["scenario"] | scenario,
        "summary": record["summary"] | dict.fromkeys(names, accuracy),
    }


if __name__ == "__main__":
    write_records(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
