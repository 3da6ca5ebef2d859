"""What is measured. Every part returns plain data; `show` makes tables and figures of it."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch

from benchmarks.loop import evaluation
from benchmarks.speed.baseline import BaselineFedAvg
from benchmarks.speed.clock import take_turns
from benchmarks.speed.harness import (
    build_module,
    configured,
    opened,
    play,
    reference_data,
    straightness,
)
from methods.core import registry, training
from methods.core.flat_model import FlatModel

Tell = Callable[[str], None]
BARE = "bare eager loop, flat vector, 2 processes"


def reference(repeats: int, tell: Tell) -> dict[str, Any]:
    """The reference work on two processes, a round at a time: ours and bare loops."""
    bare = {BARE: {}, "bare compiled steps, 2 processes": {"compiled": True}}
    ours = {
        "ours, processes (default)": ("executor=processes", "executor.workers=2"),
        "ours, processes, train.compile=true": (
            "executor=processes",
            "executor.workers=2",
            "train.compile=true",
        ),
    }
    return _rounds(bare, ours, BARE, repeats, tell)


def one_process(repeats: int, tell: Tell) -> dict[str, Any]:
    """The same on one process."""
    name = "bare eager loop, flat vector, 1 process"
    ours = {"ours, serial": ("executor=serial",)}
    return _rounds({name: {"processes": 1}}, ours, name, min(repeats, 3), tell)


def _rounds(
    bare: Mapping[str, dict[str, Any]],
    ours: Mapping[str, tuple[str, ...]],
    baseline: str,
    repeats: int,
    tell: Tell,
) -> dict[str, Any]:
    config, dataset, world = reference_data()
    with ExitStack() as stack:
        candidates: dict[str, Callable[[], Any]] = {}
        for name, settings in bare.items():
            tell(f"prepares: {name}")
            federation = BaselineFedAvg(
                dataset, world.client_indices, build_module(config, dataset), **settings
            )
            stack.callback(federation.close)
            candidates[name] = federation.round
        for name, overrides in ours.items():
            tell(f"prepares: {name}")
            candidates[name] = partial(play, stack.enter_context(opened(*overrides)), 1)
        return take_turns(candidates, baseline, repeats, tell)


def resnet18(repeats: int, tell: Tell) -> dict[str, Any]:
    """Two visits of three steps each, without a test: where a step is long, nothing around it may count."""
    overrides = (
        "model=resnet18",
        "train.local_epochs=1",
        "federation.clients_per_round=2",
        "evaluate.every=1000000",
    )
    config = configured(*overrides)
    _, dataset, world = reference_data()
    parts = [part[:30] for part in world.client_indices]
    name = "bare eager loop, flat vector, 1 process"
    with ExitStack() as stack:
        bare = BaselineFedAvg(
            dataset,
            parts,
            build_module(config, dataset),
            processes=1,
            clients_per_round=2,
            epochs=1,
        )
        stack.callback(bare.close)
        bare.test = lambda batch_size=500: 0.0  # type: ignore[method-assign]
        run = stack.enter_context(opened(*overrides, "executor=serial", samples=30))
        return take_turns(
            {name: bare.round, "ours, serial": lambda: play(run, 1)}, name, repeats, tell
        )


def thrice(task: Callable[..., Any], *arguments: Any) -> None:
    for _ in range(3):
        task(*arguments)


def evaluating(repeats: int, tell: Tell) -> dict[str, Any]:
    """A test of LeNet-5 on 10,000 images, against bare loops with several batch sizes; the baseline is the fastest of them."""
    config, dataset, world = reference_data()
    with ExitStack() as stack:
        bare = BaselineFedAvg(dataset, world.client_indices, build_module(config, dataset))
        stack.callback(bare.close)
        run = stack.enter_context(opened("executor=processes", "executor.workers=2"))
        candidates: dict[str, Callable[[], Any]] = {
            f"bare, 2 processes, batches of {size}": partial(thrice, bare.test, size)
            for size in (100, 250, 500, 1000, 2500)
        }
        candidates["ours"] = partial(thrice, evaluation.test, run.executor, run.method, run.dataset)
        first = take_turns(candidates, "ours", repeats, tell)
        best = min(
            (name for name in candidates if name != "ours"), key=lambda name: first[name]["ratio"]
        )
        return take_turns(
            {best: candidates[best], "ours": candidates["ours"]}, best, 2 * repeats, tell
        ) | {"all": first}


@contextmanager
def counted_passes() -> Iterator[dict[str, int]]:
    """Images that went through a network, a training pass (forward and backward) counted as three."""
    counter = {"passes": 0}
    original = FlatModel._forward

    def counting(self: FlatModel, submodule: str, x: torch.Tensor) -> torch.Tensor:
        if submodule != "head":
            counter["passes"] += len(x) * (3 if self.is_training_pass else 1)
        return original(self, submodule, x)

    FlatModel._forward = counting  # type: ignore[method-assign]
    try:
        yield counter
    finally:
        FlatModel._forward = original  # type: ignore[method-assign]


def methods(repeats: int, tell: Tell) -> dict[str, Any]:
    """Seconds per visit of every method by FedAvg's, next to the ratio of network passes: whole small runs of 200 visits to clients of 100 images."""
    import sklearn.mixture  # noqa: F401 - seconds, once, at the first mixture of a process: not what a method costs

    federation = (
        "federation.num_clients=20",
        "federation.clients_per_round=5",
        "budget.participations=200",
        "train.local_epochs=1",
    )
    common = (
        *federation,
        "noise=rho_tau",
        "noise.rho=0.6",
        "noise.tau=0.5",
        "executor=serial",
        "evaluate.every=1000000",
    )
    # The methods' own numbers of epochs are brought down with everybody's.
    own = {
        "fedcnml": ("method.scoring_epochs=1",),
        "jointopt": ("method.joint_epochs=2",),
        "dividemix": ("method.divide_epochs=2",),
    }
    names = [
        info.name for info in registry.list_methods() if info.cls.__module__.startswith("methods.")
    ]
    seconds: dict[str, list[float]] = {name: [] for name in names}
    passes: dict[str, float] = {}
    for turn in range(min(repeats, 3)):
        for name in names:
            tell(f"turn {turn + 1} of {min(repeats, 3)}: {name}")
            with (
                opened(*common, f"method={name}", *own.get(name, ()), samples=100) as run,
                counted_passes() as counter,
            ):
                play(run)
                seconds[name].append(run.seconds["method"] / run.fleet.meter.participations)
                passes[name] = (counter["passes"] - _tested(run)) / run.fleet.meter.participations
    result = {}
    for name in sorted(names, key=lambda name: passes[name]):
        ratios = sorted(a / b for a, b in zip(seconds[name], seconds["fedavg"], strict=True))
        result[name] = {
            "ratio": round(ratios[len(ratios) // 2], 3),
            "passes": round(passes[name] / passes["fedavg"], 3),
        }
    return result


def _tested(run: Any) -> int:
    """Passes of the tests, which are the same for every method but for its number of networks, and are not its own cost."""
    return len(run.curve) * len(run.dataset.test) * len(run.method.eval_models())


def first_stage(repeats: int, tell: Tell) -> dict[str, Any]:
    """FedCorr's first stage, an iteration over all clients after one to warm up: what training, passes over whole clients and the rest take of it.

    The rest is its mathematics: LID, losses, mixtures, relabelling, and all that the runner does.
    """
    inside = {"train": 0.0, "whole_set": 0.0}
    functions = {"train": "train", "whole_set": "map_client_samples"}
    originals = {name: getattr(training, functions[name]) for name in inside}

    def timed(name: str) -> Callable[..., Any]:
        def task(*arguments: Any, **keywords: Any) -> Any:
            started = time.perf_counter()
            answer = originals[name](*arguments, **keywords)
            inside[name] += time.perf_counter() - started
            return answer

        return task

    overrides = (
        "method=fedcorr",
        "noise=rho_tau",
        "noise.rho=0.6",
        "noise.tau=0.5",
        "federation.num_clients=20",
        "federation.clients_per_round=2",
    )
    with opened(
        *overrides,
        "budget.participations=400",
        "executor=serial",
        "evaluate.every=1000000",
        samples=500,
    ) as run:
        tell("two iterations over 20 clients of 500 images")
        play(run, 20)
        before = run.seconds["method"]
        for name in inside:
            setattr(training, functions[name], timed(name))
        try:
            play(run, 20)
        finally:
            for name, original in originals.items():
                setattr(training, functions[name], original)
        total = run.seconds["method"] - before
    shares = {name: round(seconds / total, 4) for name, seconds in inside.items()}
    return {
        "visits": 20,
        "seconds_per_visit": round(total / 20, 4),
        **shares,
        "mathematics": round(1 - sum(inside.values()) / total, 4),
    }


def threads(repeats: int, tell: Tell) -> dict[str, Any]:
    """One visit at a time, as in FedCorr's first stage: does a second thread inside a step help, and how does it compare with compiled passes?"""
    config, dataset, world = reference_data()
    one_visit = (
        "executor=serial",
        "federation.clients_per_round=1",
        "train.local_epochs=1",
        "evaluate.every=1000000",
    )
    with ExitStack() as stack:
        candidates: dict[str, Callable[[], Any]] = {}
        for count in (1, 2):
            bare = BaselineFedAvg(
                dataset,
                world.client_indices,
                build_module(config, dataset),
                processes=1,
                threads=count,
                clients_per_round=1,
                epochs=1,
            )
            stack.callback(bare.close)
            bare.test = lambda batch_size=500: 0.0  # type: ignore[method-assign]
            candidates[f"bare eager loop, {count} thread{'s' if count > 1 else ''}"] = bare.round
        for compiled in ("false", "true"):
            candidates[f"ours, 1 thread, train.compile={compiled}"] = partial(
                play, stack.enter_context(opened(*one_visit, f"train.compile={compiled}")), 1
            )
        return take_turns(candidates, "bare eager loop, 1 thread", 3 * repeats, tell)


def growth(repeats: int, tell: Tell) -> dict[str, Any]:
    """Seconds per round against clients per round, samples per client, size of the network, and clients in all; memory against the last."""
    small = ("train.local_epochs=1", "executor=serial", "evaluate.every=1000000")

    def seconds(*overrides: str, samples: int, rounds: int) -> float:
        best = []
        with opened(*small, *overrides, samples=samples) as run:
            play(run, 1)
            for _ in range(3):
                before = run.seconds["method"]
                play(run, rounds)
                best.append((run.seconds["method"] - before) / rounds)
        return sorted(best)[1]

    series: dict[str, Any] = {}

    def measure(title: str, points: dict[float, Callable[[], float]]) -> None:
        values = []
        for x, measured in points.items():
            tell(f"{title}: {x:g}")
            values.append(measured())
        slope, offset, distance = straightness(list(points), values)
        series[title] = {
            "x": list(points),
            "seconds": [round(value, 4) for value in values],
            "slope": slope,
            "offset": offset,
            "largest_distance": round(distance, 4),
        }

    def at(*overrides: str, samples: int = 100, rounds: int = 3) -> Callable[[], float]:
        return lambda: seconds(*overrides, samples=samples, rounds=rounds)

    measure(
        "clients per round",
        {m: at(f"federation.clients_per_round={m}") for m in (5, 10, 20, 40, 80)},
    )
    measure("samples per client", {n: at(samples=n) for n in (50, 100, 200, 400, 500)})
    sizes = {}
    for width in (64, 256, 512, 1024, 1536):
        hidden = f"[{width},{width}]"
        sizes[(3072 + 1 + width + 1 + 10) * width / 1e6] = at(
            "model=mlp", f"model.hidden={hidden}", samples=50, rounds=1
        )
    measure("network, million weights", sizes)
    measure(
        "clients in all",
        {
            n: at(f"federation.num_clients={n}", samples=5, rounds=10)
            for n in (100, 1000, 2500, 5000, 10000)
        },
    )
    series["memory"] = {
        method: [_memory(method, n, tell) for n in (100, 1000, 10000)]
        for method in ("fedavg", "feddyn", "lsg")
    }
    return series


def _memory(method: str, clients: int, tell: Tell) -> dict[str, Any]:
    """What 20 rounds of 10 visits add to a fresh process's own memory, and what the clients' state weighs in it."""
    tell(f"memory: {method}, {clients} clients")
    command = [
        sys.executable,
        "-c",
        f"from benchmarks.speed.suites import print_memory; print_memory({method!r}, {clients})",
    ]
    own, state = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return {"clients": clients, "own_mb": float(own), "state_mb": float(state)}


def print_memory(method: str, clients: int) -> None:
    from benchmarks.federation.cost import size_in_bytes

    overrides = (
        f"method={method}",
        f"federation.num_clients={clients}",
        "train.local_epochs=1",
        "executor=serial",
        "evaluate.every=1000000",
    )
    with opened(*overrides, samples=5) as run:
        before = _own_memory()
        play(run, 20)
        print(
            round(_own_memory() - before, 1),
            round(sum(size_in_bytes(state) for state in run.fleet.states.values()) / 2**20, 1),
        )


def _own_memory() -> float:
    """Anonymous memory of this process, MB."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("RssAnon")) / 1024


def two_cells_at_once(repeats: int, tell: Tell) -> dict[str, Any]:
    """A grid of four cells of some two minutes with joblib's launcher, two at a time, against one at a time; one thread each. One turn: it takes long."""
    cells = (
        "-m",
        "seed=1,2,3,4",
        "executor=serial",
        "dataset=cifar10",
        "budget.participations=200",
    )
    return take_turns(
        {
            "one cell at a time": lambda: _command(*cells),
            "two at a time, joblib": lambda: _command(
                *cells, "hydra/launcher=joblib", "hydra.launcher.n_jobs=2"
            ),
        },
        "one cell at a time",
        1,
        tell,
        warm_up=False,
    )


def start_up(repeats: int, tell: Tell) -> dict[str, Any]:
    """Seconds of whole commands: the help text, and the default run cut to its first round (the time to the first round's end and the program's)."""
    candidates = {
        "--help": lambda: _command("--help"),
        "first round of the default run": lambda: _command("budget.participations=5"),
    }
    return take_turns(candidates, "--help", min(repeats, 5), tell)


def _command(*arguments: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        place = () if "--help" in arguments else (f"runs_dir={folder}",)
        subprocess.run(
            [sys.executable, "-m", "benchmarks.run", *arguments, *place],
            check=True,
            capture_output=True,
        )


PARTS: dict[str, Callable[[int, Tell], dict[str, Any]]] = {
    "reference": reference,
    "one_process": one_process,
    "resnet18": resnet18,
    "evaluation": evaluating,
    "methods": methods,
    "first_stage": first_stage,
    "threads": threads,
    "growth": growth,
    "grid": two_cells_at_once,
    "start_up": start_up,
}
