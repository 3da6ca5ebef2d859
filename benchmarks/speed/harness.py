"""Interleaved timing, and runs whose rounds are executed one by one."""

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from torch import Tensor, nn

from benchmarks import data
from benchmarks.config.compose import compose_run
from benchmarks.config.schema import RunConfig
from benchmarks.data import Dataset
from benchmarks.loop.preflight import module_builder
from benchmarks.loop.runner import Run
from benchmarks.scenario.scenario import Scenario, build_scenario
from benchmarks.tracking.tracker import Tracker

Log = Callable[[str], None]
Candidates = Mapping[str, Callable[[], float | None]]  # they can return an accuracy
Batches = Iterator[tuple[Tensor, Tensor]]  # images and labels

# A round of 10 clients with 500 images, 5 epochs in batches of 10, and an evaluation.
REFERENCE = """
dataset=cifar10 model=lenet5 noise=none evaluate.memorization_samples=0
budget.participations=1000000 federation.num_clients=100 federation.clients_per_round=10
train.local_epochs=5 train.batch_size=10 train.optimizer=sgd train.lr=0.01
train.momentum=0.5 train.weight_decay=0
""".split()
NO_EVALUATION = "evaluate.every=1000000"


def time_interleaved(
    candidates: Candidates,
    baseline: str,
    repeats: int,
    log: Log,
    warm_up: bool = True,
) -> dict[str, Any]:
    """Median seconds of each candidate, and median and quartiles of its ratio to the baseline.

    Candidates are measured in turn, and ratios are computed per repetition.
    """
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    returned: dict[str, float | None] = {}
    order = list(candidates)
    for repetition in range(0 if warm_up else 1, repeats + 1):
        log(f"repetition {repetition} of {repeats}" if repetition else "warm-up")
        for name in order:
            started = time.perf_counter()
            returned[name] = candidates[name]()
            if repetition:
                seconds[name].append(time.perf_counter() - started)
        # Rotate the order so that no candidate always follows the same one.
        order = order[1:] + order[:1]
    results = {}
    for name, values in seconds.items():
        low, ratio, high = np.quantile(np.divide(values, seconds[baseline]), (0.25, 0.5, 0.75))
        row = {"seconds": np.median(values), "ratio": ratio, "ratio_low": low, "ratio_high": high}
        if returned[name] is not None:
            row["accuracy"] = returned[name]
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


@dataclass(frozen=True)
class ReferenceWork:
    """What a round consists of, without a loop: data, model, parameters and evaluation."""

    dataset: Dataset
    client_indices: Sequence[Tensor]
    build_module: Callable[[], nn.Module]
    clients_per_round: int = 10
    epochs: int = 5
    batch_size: int = 10
    lr: float = 0.01
    momentum: float = 0.5
    evaluates: bool = True

    @classmethod
    def load(cls, *overrides: str, samples: int | None = None) -> "ReferenceWork":
        """The work of a configuration. With `samples`, clients keep at most that many."""
        config, dataset, scenario = load_reference(*overrides, samples=samples)
        indices = [torch.from_numpy(index) for index in scenario.client_indices]
        train, cohort = config.train, config.federation.clients_per_round
        parameters = (train.local_epochs, train.batch_size, train.lr, train.momentum)
        build, evaluates = module_builder(config, dataset), NO_EVALUATION not in overrides
        return cls(dataset, indices, build, cohort, *parameters, evaluates)

    def batches(self, client: int) -> Batches:
        """One shuffled and augmented epoch."""
        index = self.client_indices[client]
        order = index[torch.randperm(len(index))]
        images = self.dataset.train.fetch(order)
        x = self.dataset.views(images, "train", torch.default_generator)
        y = torch.from_numpy(self.dataset.train_labels)[order]
        yield from zip(x.split(self.batch_size), y.split(self.batch_size), strict=True)

    def test_batches(self, images: Sequence[int] | np.ndarray, size: int = 500) -> Batches:
        """Some images of the test split."""
        labels = torch.from_numpy(self.dataset.test_labels)
        for index in torch.as_tensor(images).split(size):
            yield self.dataset.views(self.dataset.test.fetch(index), "plain", None), labels[index]


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


def run_rounds(run: Run, rounds: int | None = None) -> float | None:
    """Execute some rounds, or all remaining ones. Returns the accuracy, if there is one."""
    while rounds != 0 and (stage := run.method.stage(run.round)) is not None:
        run.run_round(stage)
        rounds = None if rounds is None else rounds - 1
    return run.curve[-1]["accuracy"] if run.curve else None
