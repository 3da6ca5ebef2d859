"""Comparison of a smoke run on a device with the same run on the CPU."""

import tempfile

import torch
from rich.console import Console

from benchmarks.config.compose import compose_run
from benchmarks.loop.runner import Run
from benchmarks.tracking.tracker import Tracker


def compare_method(method: str, device: str, precision: str) -> list[str]:
    """Cells of a table row: both final accuracies, and what differs."""
    with tempfile.TemporaryDirectory() as directory:
        first = _run(method, "cpu", "fp32", f"{directory}/cpu")
        second = _run(method, device, precision, f"{directory}/device")
    pairs = list(zip(first.curve, second.curve, strict=True))
    accuracy = max(abs(a["accuracy"] - b["accuracy"]) for a, b in pairs)
    models = [
        (v, second.method.state.models[name]) for name, v in first.method.state.models.items()
    ]
    weights = max(float((a - b).abs().max()) for a, b in models)
    clients = range(first.pool.num_clients)
    labels = sum(int((first.pool.labels(k) != second.pool.labels(k)).sum()) for k in clients)
    same = all(torch.equal(a, b) for a, b in models)
    finals = [f"{run.curve[-1]['accuracy']:.4f}" for run in (first, second)]
    return [*finals, f"{accuracy:.4f}", "equal" if same else f"{weights:.2g}", str(labels)]


def _run(method: str, device: str, precision: str, directory: str) -> Run:
    executor = [f"executor.device={device}", f"executor.precision={precision}"]
    overrides = ["scale=smoke", "executor=serial", "executor.compile=off", f"runs_dir={directory}"]
    config = compose_run([f"method={method}", *overrides, *executor, "noise.rho=0.6"])
    run = Run(config, Tracker(config.run_id, config.run_dir, Console(quiet=True), live=False))
    try:
        run.run()
    finally:
        run.executor.close()
    return run
