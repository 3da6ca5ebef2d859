"""Suites of the speed benchmark by name. Each returns JSON data, which `show` displays."""

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from benchmarks.federation.cost import size_in_bytes
from benchmarks.loop.evaluation import evaluate
from benchmarks.speed import harness
from benchmarks.speed.baseline import BaselineFedAvg
from benchmarks.speed.harness import NO_EVALUATION, Candidates, Log, ReferenceWork
from benchmarks.speed.peers import start_peers
from methods.core import registry
from methods.core.errors import require_package
from methods.core.flat_model import FlatModel

BASELINE = "bare eager loop, flat vector, 2 processes"
OURS = "ours, processes (default)"
BASELINE_1_PROCESS = "bare eager loop, flat vector, 1 process"
TWO_WORKERS = ("executor=processes", "executor.workers=2")
GROWTH = ("train.local_epochs=1", "executor=serial", NO_EVALUATION)
METHODS = f"""
noise=rho_tau noise.rho=0.6 noise.tau=0.5 executor=serial {NO_EVALUATION} train.local_epochs=1
federation.num_clients=20 federation.clients_per_round=5 budget.participations=200
""".split()
# Numbers of local epochs that methods set themselves, reduced like train.local_epochs.
FEWER_EPOCHS = {
    "fedcnml": ("method.scoring_epochs=1",),
    "jointopt": ("method.joint_epochs=2",),
    "dividemix": ("method.divide_epochs=2",),
}


@dataclass(frozen=True)
class Rounds:
    """Suite: rounds of hand-written loops (options) and of runs (overrides)."""

    baselines: Mapping[str, Mapping[str, int]]
    runs: Mapping[str, Sequence[str]]
    common: Sequence[str] = ()  # overrides of all
    samples: int | None = None  # per client
    repeat_factor: int = 1

    def __call__(self, repeats: int, log: Log, others: Candidates | None = None) -> dict[str, Any]:
        """Time the rounds and the other candidates, relative to the first one."""
        with ExitStack() as stack:
            candidates: dict[str, Callable[[], float | None]] = {}
            for name, options in self.baselines.items():
                log(f"preparing {name}")
                work = ReferenceWork.load(*self.common, samples=self.samples)
                candidates[name] = _open_baseline(stack, work, **options).run_round
            for name, overrides in self.runs.items():
                log(f"preparing {name}")
                opened = harness.open_run(*self.common, *overrides, samples=self.samples)
                candidates[name] = partial(harness.run_rounds, stack.enter_context(opened), 1)
            candidates |= others or {}
            first, repeats = next(iter(candidates)), self.repeat_factor * repeats
            return harness.time_interleaved(candidates, first, repeats, log)


REFERENCE = Rounds({BASELINE: {}}, {OURS: TWO_WORKERS})
WITHOUT_COMPILER = {"ours, processes, executor.compile=off": (*TWO_WORKERS, "executor.compile=off")}
RAY = {"processes": TWO_WORKERS, "Ray": ("executor=ray", "executor.workers=2")}
ONE_PROCESS = Rounds({BASELINE_1_PROCESS: {"processes": 1}}, {"ours, serial": ("executor=serial",)})
# The overhead should be small if steps are long: two participations of three steps.
RESNET18 = ("model=resnet18", "train.local_epochs=1", "federation.clients_per_round=2")
# One participation at a time, as in stage 1 of FedCorr: two threads and compiled passes.
THREADS = Rounds(
    {
        "bare eager loop, 1 thread": {"processes": 1},
        "bare eager loop, 2 threads": {"processes": 1, "threads": 2},
    },
    {
        f"ours, 1 thread, {text}": (text,)
        for text in ("executor.compile=off", "executor.compile=on")
    },
    ("executor=serial", "federation.clients_per_round=1", "train.local_epochs=1", NO_EVALUATION),
    repeat_factor=3,
)


def time_peers(repeats: int, log: Log) -> dict[str, Any]:
    """Rounds of the reference configuration in other frameworks, on two processes."""
    with ExitStack() as stack:
        peers = start_peers(stack, log)
        others = {name: peer.run_round for name, peer in peers.items()}
        results = REFERENCE(repeats, log, others)
    for name, row in results.items():
        log(f"{name}: accuracy {100 * row['accuracy']:.1f} % after {repeats + 1} rounds")
    return results


def time_ray(repeats: int, log: Log) -> dict[str, Any]:
    """Rounds of the reference configuration on two Ray actors, relative to two processes."""
    require_package("ray", extra="ray")
    return Rounds({}, RAY)(repeats, log)


def _open_baseline(stack: ExitStack, work: ReferenceWork, **options: int) -> BaselineFedAvg:
    baseline = BaselineFedAvg(work, **options)
    stack.callback(baseline.close)
    return baseline


def time_evaluation(repeats: int, log: Log) -> dict[str, Any]:
    """Evaluations on 10,000 images, relative to the fastest batch size of the baseline."""

    def three_times(function: Callable[..., Any], *arguments: Any) -> None:
        for _ in range(3):  # Short durations are measured more precisely.
            function(*arguments)

    with ExitStack() as stack:
        baseline = _open_baseline(stack, ReferenceWork.load())
        run = stack.enter_context(harness.open_run(*TWO_WORKERS))
        candidates = {
            f"bare, 2 processes, batches of {size}": partial(three_times, baseline.evaluate, size)
            for size in (100, 250, 500, 1000, 2500)
        }
        names = list(candidates)
        candidates["ours"] = partial(three_times, evaluate, run.executor, run.method, run.dataset)
        all_results = harness.time_interleaved(candidates, "ours", repeats, log)
        best = min(names, key=lambda name: all_results[name]["ratio"])
        finalists = {name: candidates[name] for name in (best, "ours")}
        return harness.time_interleaved(finalists, best, 2 * repeats, log) | {"all": all_results}


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
            overrides = (*METHODS, f"method={name}", *FEWER_EPOCHS.get(name, ()))
            with (
                harness.open_run(*overrides, samples=100) as run,
                count_forward_passes() as counter,
            ):
                harness.run_rounds(run)
            # Evaluations are not a cost of the method.
            evaluated = len(run.curve) * len(run.dataset.test) * len(run.method.eval_models())
            participations = run.pool.meter.participations
            seconds[name].append(run.seconds["method"] / participations)
            passes[name] = (counter["passes"] - evaluated) / participations
    results = {}
    for name in sorted(names, key=lambda name: passes[name]):
        ratio = float(np.median(np.divide(seconds[name], seconds["fedavg"])))
        relative_passes = passes[name] / passes["fedavg"]
        results[name] = {"ratio": round(ratio, 3), "passes": round(relative_passes, 3)}
    return results


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


def time_scaling(repeats: int, log: Log) -> dict[str, Any]:
    """Seconds per round by number of clients, samples and weights; memory by number of clients."""
    series: dict[str, dict[float, dict[str, Any]]] = {
        "clients per round": {
            m: {"overrides": (f"federation.clients_per_round={m}",)} for m in (5, 10, 20, 40, 80)
        },
        "samples per client": {n: {"samples": n} for n in (50, 100, 200, 400, 500)},
        "network, million weights": {
            (3072 + 1 + width + 1 + 10) * width / 1e6: {
                "overrides": ("model=mlp", f"model.hidden=[{width},{width}]"),
                "samples": 50,
                "rounds": 1,
            }
            for width in (64, 256, 512, 1024, 1536)
        },
        "clients in all": {
            n: {"overrides": (f"federation.num_clients={n}",), "samples": 5, "rounds": 10}
            for n in (100, 1000, 2500, 5000, 10000)
        },
    }
    results = {title: _time_series(title, points, log) for title, points in series.items()}
    return results | {
        "memory": {
            method: [_measure_memory(method, n, log) for n in (100, 1000, 10000)]
            for method in ("fedavg", "feddyn", "lsg")
        }
    }


def _time_series(title: str, points: Mapping[Any, Mapping[str, Any]], log: Log) -> dict[str, Any]:
    seconds = []
    for x, options in points.items():
        log(f"{title}: {x:g}")
        seconds.append(_seconds_per_round(**options))
    fit = linear_fit(list(points), seconds)
    return {"x": list(points), "seconds": [round(value, 4) for value in seconds]} | fit


def linear_fit(x: Sequence[float], y: Sequence[float]) -> dict[str, float]:
    """Least-squares line, and its maximum deviation relative to max(y)."""
    slope, offset = map(float, np.polyfit(x, y, 1))
    deviation = np.abs(np.asarray(y) - (slope * np.asarray(x) + offset)).max() / np.max(y)
    return {"slope": slope, "offset": offset, "largest_distance": round(float(deviation), 4)}


def _seconds_per_round(
    overrides: tuple[str, ...] = (), samples: int = 100, rounds: int = 3
) -> float:
    """Median of three measurements, after one warm-up round."""
    seconds = []
    with harness.open_run(*GROWTH, *overrides, samples=samples) as run:
        harness.run_rounds(run, 1)
        for _ in range(3):
            before = run.seconds["method"]
            harness.run_rounds(run, rounds)
            seconds.append((run.seconds["method"] - before) / rounds)
    return float(np.median(seconds))


def _measure_memory(method: str, clients: int, log: Log) -> dict[str, Any]:
    """Memory that 20 rounds add to a new process, and the size of all client states, in MB."""
    log(f"memory: {method}, {clients} clients")
    code = f"from {__name__} import print_memory; print_memory({method!r}, {clients})"
    output = subprocess.check_output([sys.executable, "-c", code], stderr=subprocess.PIPE)
    own, state = map(float, output.split())
    return {"clients": clients, "own_mb": own, "state_mb": state}


def print_memory(method: str, clients: int) -> None:
    """Print the two numbers of `_measure_memory` for this process."""
    overrides = (f"method={method}", f"federation.num_clients={clients}")
    with harness.open_run(*GROWTH, *overrides, samples=5) as run:
        before = _anonymous_memory()
        harness.run_rounds(run, 20)
        print(round(_anonymous_memory() - before, 1), end=" ")
        print(round(size_in_bytes(run.pool.states) / 2**20, 1))


def _anonymous_memory() -> float:
    """Anonymous memory of this process in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1024


def time_parallel_sweep(repeats: int, log: Log) -> dict[str, Any]:
    """A sweep of four runs of about two minutes: joblib with two jobs, and one run at a time.

    Measured once, because it takes long.
    """
    sweep = "-m seed=1,2,3,4 executor=serial dataset=cifar10 budget.participations=200".split()
    joblib = ("hydra/launcher=joblib", "hydra.launcher.n_jobs=2")
    candidates = {
        "one cell at a time": partial(_run_command, *sweep),
        "two at a time, joblib": partial(_run_command, *sweep, *joblib),
    }
    return harness.time_interleaved(candidates, "one cell at a time", 1, log, warm_up=False)


def time_start_up(repeats: int, log: Log) -> dict[str, Any]:
    """The help text, and the default run limited to its first round."""
    candidates = {
        "--help": partial(_run_command, "--help"),
        "first round of the default run": partial(_run_command, "budget.participations=5"),
    }
    return harness.time_interleaved(candidates, "--help", min(repeats, 5), log)


def _run_command(*arguments: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, "-m", "benchmarks.run", *arguments]
        if "--help" not in arguments:
            command.append(f"runs_dir={directory}")
        subprocess.run(command, check=True, capture_output=True)


SUITES: dict[str, Callable[[int, Log], dict[str, Any]]] = {
    "reference": replace(REFERENCE, runs={**REFERENCE.runs, **WITHOUT_COMPILER}),
    "peers": time_peers,
    "ray": time_ray,
    "one_process": ONE_PROCESS,
    "resnet18": replace(ONE_PROCESS, common=(*RESNET18, NO_EVALUATION), samples=30),
    "evaluation": time_evaluation,
    "methods": time_methods,
    "threads": THREADS,
    "growth": time_scaling,
    "grid": time_parallel_sweep,
    "start_up": time_start_up,
}
