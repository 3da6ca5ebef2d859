"""Suites that compare rounds and evaluations of a run with the baseline implementation."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any

from benchmarks.loop import evaluation
from benchmarks.speed.baseline import BaselineFedAvg
from benchmarks.speed.clock import Log, time_interleaved
from benchmarks.speed.harness import (
    NO_EVALUATION,
    load_reference,
    module_builder,
    open_run,
    run_rounds,
)

BASELINE = "bare eager loop, flat vector, 2 processes"
BASELINE_1_PROCESS = "bare eager loop, flat vector, 1 process"
TWO_WORKERS = ("executor=processes", "executor.workers=2")


def time_reference(repeats: int, log: Log) -> dict[str, Any]:
    """Rounds of the reference configuration on two processes."""
    baselines: dict[str, dict[str, Any]] = {
        BASELINE: {},
        "bare compiled steps, 2 processes": {"compiled": True},
    }
    runs = {
        "ours, processes (default)": TWO_WORKERS,
        "ours, processes, train.compile=true": (*TWO_WORKERS, "train.compile=true"),
    }
    return time_rounds(baselines, runs, repeats, log)


def time_one_process(repeats: int, log: Log) -> dict[str, Any]:
    """Rounds of the reference configuration on one process."""
    baselines = {BASELINE_1_PROCESS: {"processes": 1}}
    return time_rounds(baselines, {"ours, serial": ("executor=serial",)}, min(repeats, 3), log)


def time_resnet18(repeats: int, log: Log) -> dict[str, Any]:
    """Two participations of three steps: the overhead should be small if steps are long."""
    common = (
        "model=resnet18",
        "train.local_epochs=1",
        "federation.clients_per_round=2",
        NO_EVALUATION,
    )
    options = {"processes": 1, "clients_per_round": 2, "epochs": 1, "evaluates": False}
    runs = {"ours, serial": ("executor=serial",)}
    return time_rounds({BASELINE_1_PROCESS: options}, runs, repeats, log, common, samples=30)


def time_threads(repeats: int, log: Log) -> dict[str, Any]:
    """One participation at a time, as in stage 1 of FedCorr: two threads and compiled passes."""
    common = (
        "executor=serial",
        "federation.clients_per_round=1",
        "train.local_epochs=1",
        NO_EVALUATION,
    )
    options = {"processes": 1, "clients_per_round": 1, "epochs": 1, "evaluates": False}
    baselines = {
        "bare eager loop, 1 thread": {**options, "threads": 1},
        "bare eager loop, 2 threads": {**options, "threads": 2},
    }
    runs = {
        f"ours, 1 thread, train.compile={compiled}": (f"train.compile={compiled}",)
        for compiled in ("false", "true")
    }
    return time_rounds(baselines, runs, 3 * repeats, log, common)


def time_rounds(
    baselines: Mapping[str, Mapping[str, Any]],
    runs: Mapping[str, tuple[str, ...]],
    repeats: int,
    log: Log,
    common: tuple[str, ...] = (),
    samples: int | None = None,
) -> dict[str, Any]:
    """Time rounds of baselines (options) and runs (overrides), relative to the first baseline."""
    config, dataset, scenario = load_reference(*common, samples=samples)
    with ExitStack() as stack:
        candidates: dict[str, Callable[[], Any]] = {}
        for name, options in baselines.items():
            log(f"preparing {name}")
            build_module = module_builder(config, dataset)
            baseline = BaselineFedAvg(dataset, scenario.client_indices, build_module, **options)
            stack.callback(baseline.close)
            candidates[name] = baseline.run_round
        for name, overrides in runs.items():
            log(f"preparing {name}")
            run = stack.enter_context(open_run(*common, *overrides, samples=samples))
            candidates[name] = partial(run_rounds, run, 1)
        return time_interleaved(candidates, next(iter(baselines)), repeats, log)


def time_evaluation(repeats: int, log: Log) -> dict[str, Any]:
    """Evaluations on 10,000 images, relative to the fastest batch size of the baseline."""
    config, dataset, scenario = load_reference()
    with ExitStack() as stack:
        build_module = module_builder(config, dataset)
        baseline = BaselineFedAvg(dataset, scenario.client_indices, build_module)
        stack.callback(baseline.close)
        run = stack.enter_context(open_run(*TWO_WORKERS))
        candidates: dict[str, Callable[[], Any]] = {
            f"bare, 2 processes, batches of {size}": partial(
                repeat_three_times, baseline.evaluate, size
            )
            for size in (100, 250, 500, 1000, 2500)
        }
        names = list(candidates)
        candidates["ours"] = partial(
            repeat_three_times, evaluation.evaluate, run.executor, run.method, run.dataset
        )
        all_results = time_interleaved(candidates, "ours", repeats, log)
        best = min(names, key=lambda name: all_results[name]["ratio"])
        finalists = {name: candidates[name] for name in (best, "ours")}
        return time_interleaved(finalists, best, 2 * repeats, log) | {"all": all_results}


def repeat_three_times(function: Callable[..., Any], *arguments: Any) -> None:
    """Call a function three times, so that short durations are measured more precisely."""
    for _ in range(3):
        function(*arguments)
