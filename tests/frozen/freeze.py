"""Digests of smoke runs and run ids of published tables. Run this file to write them again."""

import hashlib
import json
import platform
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch

ROOT = Path(__file__).parent.parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from run_helpers import SilentTracker, drop_seconds, to_comparable  # noqa: E402

from benchmarks.config import experiments, sweep  # noqa: E402
from benchmarks.config.compose import compose_run  # noqa: E402
from benchmarks.federation.devices import arithmetic_digest  # noqa: E402
from benchmarks.loop.runner import Run  # noqa: E402

FILE = Path(__file__).parent / "frozen.json"
EXECUTORS = {
    "serial": ["executor=serial"],
    "processes": ["executor=processes", "executor.workers=2"],
}
# Tuned values, the default at laptop scale, are data that another search replaces.
HYPERPARAMETERS = {"paper": "published", "laptop": "common"}
NO_DATA = FILE.parent / "no_data"  # does not exist


def environment() -> dict[str, str]:
    """Bytes of trained weights depend on these; elsewhere the digests say nothing."""
    return {
        "machine": platform.machine(),
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "arithmetic": arithmetic_digest(),
        "torch": torch.__version__.split("+")[0],
        "numpy": np.__version__,
    }


def digest_of_run(method: str, executor: str, runs_dir: str) -> str:
    """Digest of curve without times, labels and final weights of a smoke run on digits."""
    overrides = [
        f"method={method}",
        "scale=smoke",
        "noise.rho=0.6",
        f"runs_dir={runs_dir}",
        *EXECUTORS[executor],
    ]
    config = compose_run(overrides)
    run = Run(config, SilentTracker(config.run_dir))
    try:
        run.run()
    finally:
        run.executor.close()
    models = run.method.state.models
    weights = {name: models[name] for name in sorted(models)}
    labels = {k: run.pool.labels(k) for k in range(run.pool.num_clients)}
    learned = [to_comparable(weights), to_comparable(labels)]
    return digest([drop_seconds(run.curve), *learned, run.scenario.hash])


def run_ids(experiment: str, scale: str) -> list[str]:
    # The content of datasets without pinned hashes is known only where they have been downloaded.
    overrides = [f"experiment={experiment}", f"scale={scale}", f"data_dir={NO_DATA}"]
    overrides.append(f"hyperparameters={HYPERPARAMETERS[scale]}")
    return [config.run_id for _, config in sweep.expand(overrides)]


def digest(value: Any) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()[:16]


def experiment_names() -> Iterable[str]:
    return experiments.experiment_names()


def main() -> None:
    from methods.core import registry

    names = [info.name for info in registry.list_methods()]
    with tempfile.TemporaryDirectory() as folder:
        runs = {
            name: {where: digest_of_run(name, where, f"{folder}/{where}") for where in EXECUTORS}
            for name in names
        }
    ids = {
        name: {scale: run_ids(name, scale) for scale in HYPERPARAMETERS}
        for name in experiment_names()
    }
    FILE.write_text(
        json.dumps({"environment": environment(), "runs": runs, "run_ids": ids}, indent=1) + "\n"
    )


if __name__ == "__main__":
    main()
