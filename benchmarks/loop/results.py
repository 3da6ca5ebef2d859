"""Sections of the run record that are computed at the end of a run."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from benchmarks.executors import SerialExecutor
from benchmarks.federation.tasks import DeviceTask, Executor
from benchmarks.records.record import DeviceSection, ScenarioSection, Summary
from benchmarks.scenario.scenario import Scenario

NUM_LAST_EVALUATIONS = 10  # of `last10`; LSG's tables use the last ten rounds
Curve = Sequence[Mapping[str, Any]]


def summarize_accuracy(curve: Curve) -> Summary | None:
    """Best, selected, last and mean late accuracy; None without an evaluation."""
    if not curve:
        return None
    accuracies = [row["accuracy"] for row in curve]
    best = int(np.argmax(accuracies))
    selected = {}
    if "validation_accuracy" in curve[0]:
        row = max(curve, key=lambda row: row["validation_accuracy"])  # the first one of equals
        selected = {"selected": row["accuracy"], "selected_round": row["round"]}
    return Summary(
        best=accuracies[best],
        best_round=curve[best]["round"],
        last10=float(np.mean(accuracies[-NUM_LAST_EVALUATIONS:])),
        final=accuracies[-1],
        **selected,
    )


def last_metrics(curve: Curve) -> dict[str, float]:
    """Last value of every diagnostics metric. Non-finite values are dropped: JSON has none."""
    latest = {name: value for row in curve for name, value in row.items() if "/" in name}
    return {name: value for name, value in latest.items() if np.isfinite(value)}


def describe_scenario(scenario: Scenario) -> ScenarioSection:
    noise, sizes = scenario.noise, scenario.client_sizes
    return ScenarioSection(
        hash=scenario.hash,
        noise_convention=noise.convention,
        noise_rate=scenario.noise_rate,
        noisy_clients=int((noise.client_level > 0).sum()),
        client_sizes=[int(sizes.min()), int(sizes.max())],
    )


def describe_device(executor: Executor) -> tuple[DeviceSection, int]:
    """The device of the workers, and the peak memory of the worker processes on the host.

    Both are those of the worker that used most.
    """
    reports = [asdict(report) for report in executor.run([DeviceTask()] * executor.workers)]
    host_memory = max(report.pop("host_memory_mb") for report in reports)
    most = max(reports, key=lambda report: int(report["peak_memory_mb"]))
    for key in ("instruction_set", "arithmetic"):
        most[key] = ", ".join(sorted({report[key] for report in reports}))
    section = DeviceSection(**most)
    return section, 0 if isinstance(executor, SerialExecutor) else host_memory
