"""Suites that measure the cost of methods."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from benchmarks.speed.harness import NO_EVALUATION, Log, open_run, run_rounds
from methods.core import registry, training
from methods.core.flat_model import FlatModel

COMMON = ("noise=rho_tau", "noise.rho=0.6", "noise.tau=0.5", "executor=serial", NO_EVALUATION)
METHODS = """
federation.num_clients=20 federation.clients_per_round=5 budget.participations=200
train.local_epochs=1
""".split()
FEDCORR = """
method=fedcorr federation.num_clients=20 federation.clients_per_round=2 budget.participations=400
""".split()
# Numbers of local epochs that methods set themselves, reduced like train.local_epochs.
FEWER_EPOCHS = {
    "fedcnml": ("method.scoring_epochs=1",),
    "jointopt": ("method.joint_epochs=2",),
    "dividemix": ("method.divide_epochs=2",),
}


def time_methods(repeats: int, log: Log) -> dict[str, Any]:
    """Seconds and model passes per participation, relative to FedAvg.

    Each method runs 200 participations of clients with 100 images.
    """
    import sklearn.mixture  # noqa: F401 - the import takes seconds and is not a cost of a method

    repeats = min(repeats, 3)
    methods = registry.list_methods()
    names = [info.name for info in methods if info.cls.__module__.startswith("methods.")]
    seconds: dict[str, list[float]] = {name: [] for name in names}
    passes: dict[str, float] = {}
    for repetition in range(repeats):
        for name in names:
            log(f"repetition {repetition + 1} of {repeats}: {name}")
            overrides = (*COMMON, *METHODS, f"method={name}", *FEWER_EPOCHS.get(name, ()))
            with open_run(*overrides, samples=100) as run, count_forward_passes() as counter:
                run_rounds(run)
            # Evaluations are not a cost of the method.
            evaluated = len(run.curve) * len(run.dataset.test) * len(run.method.eval_models())
            participations = run.pool.meter.participations
            seconds[name].append(run.seconds["method"] / participations)
            passes[name] = (counter["passes"] - evaluated) / participations
    ratios = {name: np.divide(seconds[name], seconds["fedavg"]) for name in names}
    return {
        name: {
            "ratio": round(float(np.median(ratios[name])), 3),
            "passes": round(passes[name] / passes["fedavg"], 3),
        }
        for name in sorted(names, key=lambda name: passes[name])
    }


@contextmanager
def count_forward_passes() -> Iterator[dict[str, int]]:
    """Count images in forward passes. A training pass (forward and backward) counts as three."""
    counter = {"passes": 0}
    original = FlatModel._forward

    def counting_forward(self: FlatModel, submodule: str, x: torch.Tensor) -> torch.Tensor:
        if submodule != "head":
            counter["passes"] += len(x) * (3 if self.is_training_pass else 1)
        return original(self, submodule, x)

    with patch.object(FlatModel, "_forward", counting_forward):
        yield counter


def time_fedcorr_stage1(repeats: int, log: Log) -> dict[str, Any]:
    """Fractions of the time of FedCorr's first stage: training, inference, and the rest.

    One iteration over 20 clients of 500 images is measured, after one warm-up iteration. The rest
    is LID, losses, mixtures, relabeling and the runner.
    """
    with open_run(*FEDCORR, *COMMON, samples=500) as run:
        log("two iterations over 20 clients of 500 images")
        run_rounds(run, 20)
        before = run.seconds["method"]
        with time_calls("train", "map_client_samples") as seconds:
            run_rounds(run, 20)
        total = run.seconds["method"] - before
    return {
        "visits": 20,
        "seconds_per_visit": round(total / 20, 4),
        "train": round(seconds["train"] / total, 4),
        "whole_set": round(seconds["map_client_samples"] / total, 4),
        "mathematics": round(1 - sum(seconds.values()) / total, 4),
    }


@contextmanager
def time_calls(*names: str) -> Iterator[dict[str, float]]:
    """Sum the seconds of all calls of functions of `methods.core.training`."""
    seconds = dict.fromkeys(names, 0.0)

    def timed(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **keywords: Any) -> Any:
            started = time.perf_counter()
            result = original(*arguments, **keywords)
            seconds[name] += time.perf_counter() - started
            return result

        return call

    timers: dict[str, Any] = {name: timed(name, getattr(training, name)) for name in names}
    with patch.multiple(training, **timers):
        yield seconds
