"""Suites that time whole commands."""

import subprocess
import sys
import tempfile
from functools import partial
from typing import Any

from benchmarks.speed.clock import Log, time_interleaved


def time_parallel_sweep(repeats: int, log: Log) -> dict[str, Any]:
    """A sweep of four runs of about two minutes: joblib with two jobs, and one run at a time.

    Measured once, because it takes long.
    """
    sweep = (
        "-m",
        "seed=1,2,3,4",
        "executor=serial",
        "dataset=cifar10",
        "budget.participations=200",
    )
    joblib = ("hydra/launcher=joblib", "hydra.launcher.n_jobs=2")
    candidates = {
        "one cell at a time": partial(_run_command, *sweep),
        "two at a time, joblib": partial(_run_command, *sweep, *joblib),
    }
    return time_interleaved(candidates, "one cell at a time", 1, log, warm_up=False)


def time_start_up(repeats: int, log: Log) -> dict[str, Any]:
    """The help text, and the default run limited to its first round."""
    candidates = {
        "--help": partial(_run_command, "--help"),
        "first round of the default run": partial(_run_command, "budget.participations=5"),
    }
    return time_interleaved(candidates, "--help", min(repeats, 5), log)


def _run_command(*arguments: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, "-m", "benchmarks.run", *arguments]
        if "--help" not in arguments:
            command.append(f"runs_dir={directory}")
        subprocess.run(command, check=True, capture_output=True)
