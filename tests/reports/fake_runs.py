"""Runs for the tests of the HTML report: a sweep over noise levels, methods and seeds.

Every run is a copy of a frozen record with other values, and random curves and scenarios.
"""

import csv
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from benchmarks.config.schema import COMPONENTS

BASE = Path(__file__).parent / "records" / "good" / "fedcorr-iid-s1" / "record.json"
METHODS = (
    *("fedavg", "fedcorr", "fedprox", "lsg", "arfl"),
    *("rofl", "median", "poc", "jointopt", "fedlsr"),
)
METRICS = (
    *("clients/precision", "clients/recall", "clients/f1"),
    *("samples/precision", "samples/recall", "samples/f1"),
    *("labels/accuracy_before", "labels/accuracy_after", "memorization/wrong", "memorization/true"),
)
CURVE_COLUMNS = (
    *("round", "stage", "participations", "accuracy", "loss", "bytes_down", "bytes_up", "seconds"),
    *METRICS,
)


def write_sweep(
    runs: Path,
    rhos: Iterable[float] = (0.4, 0.8),
    methods: Iterable[str] = METHODS[:4],
    seeds: Iterable[int] = (1, 2),
    **size: int,
) -> list[Path]:
    """Write one run per noise level, method and seed. Returns the run directories.

    The best accuracy of the first method is 50 %; each further method has half a point more.
    """
    return [
        write_run(runs, rho, method, seed, 0.5 + 0.005 * index, **size)
        for rho in rhos
        for index, method in enumerate(methods)
        for seed in seeds
    ]


def write_run(
    runs: Path,
    rho: float,
    method: str,
    seed: int,
    best: float,
    tests: int = 12,
    clients: int = 8,
    classes: int = 5,
) -> Path:
    """Write one run with `tests` evaluations. Returns the run directory."""
    run_dir = runs / f"{method}-cifar100-s{seed}-{int(1000 * rho):012d}"
    run_dir.mkdir(parents=True)
    generator = np.random.default_rng([seed, int(1000 * rho), sum(map(ord, method))])
    accuracies = _accuracies(generator, best, tests, seed)
    record: dict[str, Any] = json.loads(BASE.read_text())
    record["config"] |= {"seed": seed, "method": {"name": method}}
    record["config"]["noise"]["rho"] = rho
    record |= {
        "run_id": run_dir.name,
        "rounds": tests,
        "confusion": generator.integers(0, 100, (classes, classes)).tolist(),
    }
    record["scenario"] |= {
        "hash": f"scenario {rho} {seed}",
        "noise_convention": "as </script> FedCorr has it",
    }
    record["summary"] = {
        "best": accuracies.max(),
        "best_round": tests // 2 + 1,
        "last10": accuracies[-10:].mean(),
        "final": accuracies[-1],
    }
    record["metrics"] = dict.fromkeys(METRICS, 0.5) if method == "fedcorr" else {}
    record["cost"] = {"participations": 500, "bytes_down": 3_000_000, "bytes_up": 2_000_000}
    (run_dir / "record.json").write_text(json.dumps(record))
    _write_config(run_dir, record["config"])
    _write_curve(run_dir, accuracies, generator)
    _write_scenario(run_dir, rho, seed, clients, classes)
    return run_dir


def set_status(run_dir: Path, status: str, reason: str) -> None:
    """Turn a completed run into a failed or diverged one."""
    record = json.loads((run_dir / "record.json").read_text())
    record |= {"status": status, "reason": reason, "summary": {}}
    (run_dir / "record.json").write_text(json.dumps(record))


def make_unfinished(run_dir: Path) -> None:
    """Turn a completed run into a running one: a lease, no record, half of the curve."""
    (run_dir / ".lease.1").write_text("")
    (run_dir / "record.json").unlink()
    lines = (run_dir / "curve.csv").read_text().splitlines(keepends=True)
    (run_dir / "curve.csv").write_text("".join(lines[: 1 + len(lines) // 2]))


def _accuracies(generator: np.random.Generator, best: float, tests: int, seed: int) -> np.ndarray:
    """An increasing noisy curve with its maximum in the middle."""
    values = best * (1 - np.exp(-np.linspace(0.5, 8, tests)))
    values = values + generator.normal(0, 0.002, tests)
    values[tests // 2] = best + 0.001 * seed
    return np.minimum(values, values[tests // 2])


def _write_config(run_dir: Path, config: dict[str, Any]) -> None:
    """config.yaml as the runner writes it, with local paths."""
    content = {key: value for key, value in config.items() if key not in COMPONENTS}
    for name in COMPONENTS:
        params = {key: value for key, value in config[name].items() if key != "name"}
        content[name] = {"name": config[name]["name"], "params": params}
    content["runs_dir"] = "/home/somebody/runs"
    (run_dir / "config.yaml").write_text(yaml.safe_dump(content))


def _write_curve(run_dir: Path, accuracies: np.ndarray, generator: np.random.Generator) -> None:
    with (run_dir / "curve.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(CURVE_COLUMNS)
        for count, accuracy in enumerate(accuracies, start=1):
            stage = "first" if count <= len(accuracies) // 2 else "second"
            seconds = round(0.731 * count + generator.random(), 3)
            row = [count, stage, 5 * count, accuracy, 2 - accuracy]
            row += [300_000 * count, 200_000 * count, seconds]
            writer.writerow([*row, *generator.random(len(METRICS)).round(8)])


def _write_scenario(run_dir: Path, rho: float, seed: int, clients: int, classes: int) -> None:
    counts = np.random.default_rng(seed).integers(0, 30, (clients, classes))
    rates = np.random.default_rng([seed, int(1000 * rho)]).random(clients)
    rates *= np.arange(clients) < rho * clients
    np.savez(
        run_dir / "scenario.npz",
        clean_counts=counts,
        client_rate=rates,
        client_level=rates,
        transition=np.diag(counts.sum(axis=0)),
    )
