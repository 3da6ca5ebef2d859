"""Time and memory of the commands that read records, with many finished records.

    python tests/scale/simulate.py [COUNT]

Executes one real run at smoke scale and copies it COUNT times (10,000 if not given). The copies
have the configurations and run ids of the runs of all published tables, with seeds 1, 2, ..., and
other accuracies.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.config.experiments import experiment_names
from benchmarks.config.schema import RunConfig
from benchmarks.config.sweep import expand
from benchmarks.records.files import RECORD_FILE
from methods.core.errors import UserError

ROOT = Path(__file__).parent.parent.parent
REAL_RUN = "scale=smoke method=fedcorr budget.participations=1000 evaluate.every=1".split()


def planned_configs() -> list[RunConfig]:
    """Runs of all published tables at paper scale, without duplicates."""
    found: dict[str, RunConfig] = {}
    for name in (name for name in experiment_names() if "_table" in name):
        try:
            runs = expand([f"experiment={name}", "scale=paper"])
        except UserError as error:  # such as data that is not there
            print(f"{name}: left out: {error}")
            continue
        print(f"{name}: {len(runs)} runs")
        found |= {config.run_id: config for _, config in runs}
    return list(found.values())


def write_records(runs: Path, real: Path, number: int) -> None:
    """Copy a real run. Files other than the record are links."""
    configs = planned_configs()
    seeds = -(-number // len(configs))
    print(f"{len(configs)} runs with {seeds} seeds")
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


def measure(name: str, *command: str) -> None:
    """Print wall-clock time, CPU time and peak memory of a command."""
    started = time.monotonic()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            [sys.executable, "-m", *command], cwd=ROOT, stdout=output, stderr=output
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        lines = output.read().decode().splitlines()
    seconds, cpu = time.monotonic() - started, usage.ru_utime + usage.ru_stime
    print(f"{name}: {seconds:.1f} s, {cpu:.1f} s of CPU time, {usage.ru_maxrss / 1024:.0f} MB")
    print(f"  exit code {process.returncode}, {len(lines)} lines, last: {lines[-1:]}")


def main(arguments: Sequence[str]) -> None:
    number = int(arguments[0]) if arguments else 10_000
    with tempfile.TemporaryDirectory(prefix="fln-scale-") as name:
        folder = Path(name)
        runs, real = folder / "runs", folder / "real"
        run = [sys.executable, "-m", "benchmarks.run", *REAL_RUN, f"runs_dir={real}"]
        subprocess.run(run, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
        write_records(runs, next(real.glob(f"*/{RECORD_FILE}")).parent, number)
        table2 = ["protocol=fedcorr", "dataset.name=cifar10", "partition.name=iid"]
        where = f"runs={runs}"
        measure("status", "benchmarks.status", where)
        measure("tables", "reports.build", where, f"out={folder / 'tables'}")
        measure("compare", "reports.compare", where, "baseline=fedavg", "scale=paper", *table2)
        measure("page", "reports.page", where, f"out={folder / 'page.html'}")
        sweep = ["-m", "experiment=fedcorr_table2", "seed=1,2,3,4,5", "scale=paper"]
        measure("dry run", "benchmarks.run", *sweep, "dry=true", f"runs_dir={runs}")


if __name__ == "__main__":
    main(sys.argv[1:])
