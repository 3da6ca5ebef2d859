"""Interleaved timing, and runs whose rounds are executed one by one."""

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from benchmarks import data
from benchmarks.config.compose import compose_run
from benchmarks.config.schema import RunConfig
from benchmarks.data import Dataset
from benchmarks.loop.runner import Run
from benchmarks.scenario.scenario import Scenario, build_scenario
from benchmarks.tracking.tracker import Tracker

Log = Callable[[str], None]

# A round of 10 clients with 500 images, 5 epochs in batches of 10, and an evaluation.
REFERENCE = """
dataset=cifar10 model=lenet5 noise=none evaluate.memorization_samples=0
budget.participations=1000000 federation.num_clients=100 federation.clients_per_round=10
train.local_epochs=5 train.batch_size=10 train.optimizer=sgd train.lr=0.01
train.momentum=0.5 train.weight_decay=0
""".split()
NO_EVALUATION = "evaluate.every=1000000"


def time_interleaved(
    candidates: Mapping[str, Callable[[], Any]],
    baseline: str,
    repeats: int,
    log: Log,
    warm_up: bool = True,
) -> dict[str, Any]:
    """Median seconds of each candidate, and median and quartiles of its ratio to the baseline.

    Candidates are measured in turn, and ratios are computed per repetition.
    """
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    order = list(candidates)
    for repetition in range(0 if warm_up else 1, repeats + 1):
        log(f"repetition {repetition} of {repeats}" if repetition else "warm-up")
        for name in order:
            started = time.perf_counter()
            candidates[name]()
            if repetition:
                seconds[name].append(time.perf_counter() - started)
        # Rotate the order so that no candidate always follows the same one.
        order = order[1:] + order[:1]
    results = {}
    for name, values in seconds.items():
        low, ratio, high = np.quantile(np.divide(values, seconds[baseline]), (0.25, 0.5, 0.75))
        row = {"seconds": np.median(values), "ratio": ratio, "ratio_low": low, "ratio_high": high}
        results[name] = {key: round(float(value), 4) for key, value in row.items()}
    return results


def load_reference(
    *overrides: str, samples: int | None = None
) -> tuple[RunConfig, Dataset, Scenario]:
    """Configuration, dataset and scenario. With `samples`, clients keep at most that many."""
    config = compose_run([*REFERENCE, *overrides])
    dataset = data.load(config.dataset.name, config.data_dir, config.dataset.params)
    scenario = build_scenario(config, dataset)
    client_indices = [indices[:samples] for indices in scenario.client_indices]
    return config, dataset, replace(scenario, client_indices=client_indices)


@contextmanager
def open_run(*overrides: str, samples: int | None = None) -> Iterator[Run]:
    """A run after `setup`, before its first round."""
    config, _, scenario = load_reference(*overrides, samples=samples)
    with tempfile.TemporaryDirectory() as directory:
        tracker = Tracker("speed", Path(directory), Console(quiet=True), live=False)
        run = Run(config, tracker, scenario)
        try:
            run.method.setup(run.spec, run.pool_view, run.context("setup"))
            yield run
        finally:
            run.executor.close()


def run_rounds(run: Run, rounds: int | None = None) -> None:
    """Execute some rounds, or all remaining ones."""
    while rounds != 0 and (stage := run.method.stage(run.round)) is not None:
        run.run_round(stage)
        rounds = None if rounds is None else rounds - 1
