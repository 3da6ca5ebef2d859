"""Suite that measures time and memory for growing federations, clients and models."""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.federation.cost import size_in_bytes
from benchmarks.speed.harness import NO_EVALUATION, Log, open_run, run_rounds

COMMON = ("train.local_epochs=1", "executor=serial", NO_EVALUATION)


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
    with open_run(*COMMON, *overrides, samples=samples) as run:
        run_rounds(run, 1)
        for _ in range(3):
            before = run.seconds["method"]
            run_rounds(run, rounds)
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
    with open_run(*COMMON, *overrides, samples=5) as run:
        before = _anonymous_memory()
        run_rounds(run, 20)
        print(round(_anonymous_memory() - before, 1), end=" ")
        print(round(size_in_bytes(run.pool.states) / 2**20, 1))


def _anonymous_memory() -> float:
    """Anonymous memory of this process in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1024
