"""Runs that are played round by round, on federations of any size cut from the data."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from benchmarks import data, models
from benchmarks.config import sweep
from benchmarks.config.schema import RunConfig
from benchmarks.data import Dataset
from benchmarks.loop.runner import Run
from benchmarks.scenario.scenario import Scenario, build_scenario
from benchmarks.tracking.tracker import Tracker

# The reference work: 10 clients a round x 500 images x 5 epochs in batches of 10, then a test.
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


def configured(*overrides: str) -> RunConfig:
    ((_, config),) = sweep.expand([*REFERENCE, *overrides])
    return config


def reference_data() -> tuple[RunConfig, Dataset, Scenario]:
    config = configured()
    dataset = data.load(config.dataset.name, config.data_dir, config.dataset.params)
    return config, dataset, build_scenario(config, dataset)


def build_module(config: RunConfig, dataset: Dataset) -> Any:
    return lambda: models.build(
        config.model.name, dataset.num_classes, dataset.shape, config.model.params
    )


@contextmanager
def opened(*overrides: str, samples: int | None = None) -> Iterator[Run]:
    """A run, set up, whose rounds the caller plays; with `samples` every client keeps only so many of its own."""
    config = configured(*overrides)
    with tempfile.TemporaryDirectory() as folder:
        world = None
        if samples is not None:
            dataset = data.load(config.dataset.name, config.data_dir, config.dataset.params)
            whole = build_scenario(config, dataset)
            world = replace(whole, client_indices=[part[:samples] for part in whole.client_indices])
        run = Run(config, Tracker("speed", Path(folder), Console(quiet=True), live=False), world)
        try:
            run.method.setup(run.spec, run.fleet, run.context("setup"))
            yield run
        finally:
            run.executor.close()


def play(run: Run, rounds: int | None = None) -> None:
    """Some rounds, or all that are left."""
    while (rounds is None or rounds > 0) and (stage := run.method.stage(run.round)) is not None:
        run.run_round(stage)
        rounds = None if rounds is None else rounds - 1


def straightness(x: Sequence[float], y: Sequence[float]) -> tuple[float, float, float]:
    """Slope and offset of the least-squares line, and the largest distance from it as a share of the largest value."""
    slope, offset = np.polyfit(x, y, 1)
    return (
        float(slope),
        float(offset),
        float(np.max(np.abs(np.asarray(y) - (slope * np.asarray(x) + offset))) / np.max(y)),
    )
