"""Runs as a grid leaves them, made from a frozen record: settings x methods x seeds, and some that did not end well."""

import copy
import csv
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import yaml

BASE = Path(__file__).parent / "records" / "good" / "fedcorr-iid-s1" / "record.json"
METHODS = (
    "fedavg",
    "fedcorr",
    "fedprox",
    "lsg",
    "arfl",
    "rofl",
    "median",
    "poc",
    "jointopt",
    "fedlsr",
)
ROOMS = ("dataset", "model", "partition", "noise", "method")
SCORES = (
    "clients/precision", "clients/recall", "clients/f1", "samples/precision", "samples/recall", "samples/f1",
    "labels/accuracy_before", "labels/accuracy_after", "memorised/wrong", "memorised/true",
)  # fmt: skip


def write_sweep(
    folder: Path,
    rhos: Iterable[float] = (0.4, 0.8),
    methods: Iterable[str] = METHODS[:4],
    seeds: Iterable[int] = (1, 2),
    tests: int = 12,
    clients: int = 8,
    classes: int = 5,
) -> list[Path]:
    """One folder per run, each with its record, curve, scene and configuration. Methods rank as they are listed, but for
    the first, which has 50 % best accuracy; every next one has half a point more. Returns the folders."""
    made = []
    for rho in rhos:
        for place, method in enumerate(methods):
            for seed in seeds:
                made.append(
                    write_run(
                        folder, rho, method, seed, 0.5 + 0.005 * place, tests, clients, classes
                    )
                )
    return made


def write_run(
    folder: Path,
    rho: float,
    method: str,
    seed: int,
    best: float,
    tests: int = 12,
    clients: int = 8,
    classes: int = 5,
) -> Path:
    record: dict[str, Any] = copy.deepcopy(json.loads(BASE.read_text()))
    config = record["config"]
    config["seed"], config["noise"]["rho"], config["method"] = seed, rho, {"name": method}
    place = folder / f"{method}-cifar100-s{seed}-{int(1000 * rho):012d}"
    generator = np.random.default_rng([seed, int(1000 * rho), sum(map(ord, method))])
    accuracies = best * (1 - np.exp(-np.linspace(0.5, 8, tests))) + generator.normal(
        0, 0.002, tests
    )
    accuracies[tests // 2] = best + 0.001 * seed
    accuracies = np.minimum(accuracies, accuracies[tests // 2])
    record |= {
        "run_id": place.name,
        "rounds": tests,
        "confusion": generator.integers(0, 100, (classes, classes)).tolist(),
    }
    record["scene"] |= {
        "hash": f"scene {rho} {seed}",
        "noise_convention": "as </script> FedCorr has it",
    }
    record["summary"] = {"best": accuracies.max(), "best_round": tests // 2 + 1, "last10": accuracies[-10:].mean(), "final": accuracies[-1]}  # fmt: skip
    record["scores"] = {name: 0.5 for name in SCORES} if method == "fedcorr" else {}
    record["cost"] = {"participations": 500, "bytes_down": 3_000_000, "bytes_up": 2_000_000}
    place.mkdir(parents=True)
    (place / "record.json").write_text(json.dumps(record))
    write_config(place, config)
    with open(place / "curve.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(
            [
                "round",
                "stage",
                "participations",
                "accuracy",
                "loss",
                "bytes_down",
                "bytes_up",
                "seconds",
                *SCORES,
            ]
        )
        for test in range(tests):
            counters = [
                300_000 * (test + 1),
                200_000 * (test + 1),
                round(0.731 * (test + 1) + generator.random(), 3),
            ]
            row = [
                test + 1,
                "first" if test < tests // 2 else "second",
                5 * (test + 1),
                accuracies[test],
                2 - accuracies[test],
            ]
            writer.writerow([*row, *counters, *generator.random(len(SCORES)).round(8)])
    counts = np.random.default_rng(seed).integers(0, 30, (clients, classes))
    rates = np.random.default_rng([seed, int(1000 * rho)]).random(clients) * (
        np.arange(clients) < rho * clients
    )
    transition = np.diag(counts.sum(axis=0))
    np.savez(
        place / "scene.npz",
        clean_counts=counts,
        client_rate=rates,
        client_level=rates,
        transition=transition,
    )
    return place


def write_config(place: Path, config: dict[str, Any]) -> None:
    """config.yaml as the runner writes it, with the folders of a machine in it."""
    raw = {key: value for key, value in config.items() if key not in ROOMS}
    for room in ROOMS:
        raw[room] = {
            "name": config[room]["name"],
            "params": {key: value for key, value in config[room].items() if key != "name"},
        }
    (place / "config.yaml").write_text(yaml.safe_dump(raw | {"runs_dir": "/home/somebody/runs"}))


def set_status(place: Path, status: str, reason: str) -> None:
    """Turn a finished run into a failed or diverged one."""
    record = json.loads((place / "record.json").read_text())
    (place / "record.json").write_text(
        json.dumps(record | {"status": status, "reason": reason, "summary": {}})
    )


def make_unfinished(place: Path) -> None:
    """Turn a finished run into one that is still going: no record, half a curve."""
    (place / "record.json").unlink()
    lines = (place / "curve.csv").read_text().splitlines(keepends=True)
    (place / "curve.csv").write_text("".join(lines[: 1 + len(lines) // 2]))
