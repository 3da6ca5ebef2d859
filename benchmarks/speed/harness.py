"""Runs whose rounds are executed one by one, on clients with a limited number of samples."""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
from rich.console import Console
from torch import nn

from benchmarks import data, models
from benchmarks.config.compose import compose_run
from benchmarks.config.schema import RunConfig
from benchmarks.data import Dataset
from benchmarks.loop.runner import Run
from benchmarks.scenario.scenario import Scenario, build_scenario
from benchmarks.tracking.tracker import Tracker

# A round of 10 clients with 500 images, 5 epochs in batches of 10, and an evaluation.
REFERENCE = (
    "dataset=cifar10",
    "model=lenet5",
    "noise=none",
    "federation.num_clients=100",
    "federation.clients_per_round=10",
    "budget.participations=1000000",
    "train.local_epochs=5",
    "train.batch_size=10",
    "train.optimizer=sgd",
    "train.lr=0.01",
    "train.momentum=0.5",
    "train.weight_decay=0",
    "evaluate.memorised_samples=0",
)
NO_EVALUATION = "evaluate.every=1000000"


def load_reference(
    *overrides: str, samples: int | None = None
) -> tuple[RunConfig, Dataset, Scenario]:
    """Configuration, dataset and scenario. With `samples`, clients keep at most that many."""
    config = compose_run([*REFERENCE, *overrides])
    dataset = data.load(config.dataset.name, config.data_dir, config.dataset.params)
    scenario = build_scenario(config, dataset)
    client_indices = [indices[:samples] for indices in scenario.client_indices]
    return config, dataset, replace(scenario, client_indices=client_indices)


def module_builder(config: RunConfig, dataset: Dataset) -> Callable[[], nn.Module]:
    """Function that creates the model of the configuration."""
    name, params = config.model.name, config.model.params
    return lambda: models.build(name, dataset.num_classes, dataset.shape, params)


@contextmanager
def open_run(*overrides: str, samples: int | None = None) -> Iterator[Run]:
    """A run after `setup`, before its first round."""
    config, _, scenario = load_reference(*overrides, samples=samples)
    with tempfile.TemporaryDirectory() as directory:
        tracker = Tracker("speed", Path(directory), Console(quiet=True), live=False)
        run = Run(config, tracker, scenario)
        try:
            run.method.setup(run.spec, run.pool, run.context("setup"))
            yield run
        finally:
            run.executor.close()


def run_rounds(run: Run, rounds: int | None = None) -> None:
    """Execute some rounds, or all remaining ones."""
    while (rounds is None or rounds > 0) and (stage := run.method.stage(run.round)) is not None:
        run.run_round(stage)
        rounds = None if rounds is None else rounds - 1


def linear_fit(x: Sequence[float], y: Sequence[float]) -> tuple[float, float, float]:
    """Slope and offset of the least-squares line, and its maximum deviation relative to max(y)."""
    slope, offset = np.polyfit(x, y, 1)
    deviation = np.abs(np.asarray(y) - (slope * np.asarray(x) + offset)).max() / np.max(y)
    return float(slope), float(offset), float(deviation)
