"""Cost of the whole leaderboard: all methods in all columns of the published tables, five seeds.

    python tests/scale/cost.py [TFLOPS]

Operations of the training passes are counted by torch, seconds of a pass on one core are measured
here. TFLOPS (10 if not given) is what a GPU is assumed to achieve.
"""

import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import torch
from planned import planned_configs
from rich.console import Console
from rich.table import Table
from torch.nn.functional import cross_entropy

from benchmarks import models
from benchmarks.config.compose import compose_run
from benchmarks.config.schema import RunConfig
from benchmarks.data.registry import DATASETS
from benchmarks.devices.cost import count_pass, count_run
from methods.core import registry
from methods.core.errors import UserError

SEEDS = 5
MEASURED_SECONDS = 10.0  # of CPU time per model


def columns(configs: Sequence[RunConfig]) -> list[RunConfig]:
    """One run of FedAvg for each federated scenario and model of the published tables."""
    parts = ("dataset", "model", "partition", "noise", "federation", "budget")
    found = {repr([getattr(config, part) for part in parts]): config for config in configs}
    fedavg = compose_run(["method=fedavg"]).method
    federated = [config for config in found.values() if config.partition.name != "centralized"]
    return [replace(config, method=fedavg) for config in federated]


def method_factors() -> dict[str, float]:
    """Trained models per participation, as a share of the budget, by method."""
    names = [info.name for info in registry.list_methods()]
    runs = [compose_run([f"method={name}", "dataset=cifar10", "scale=paper"]) for name in names]
    fedavg = count_run(runs[names.index("fedavg")])
    return {name: count_run(run) / fedavg for name, run in zip(names, runs, strict=True)}


def measure_pass(config: RunConfig) -> float:
    """Operations per second of CPU time of training passes on one core."""
    info = DATASETS.get(config.dataset.name)
    assert info.shape is not None and info.num_classes is not None
    module = models.build(config.model.name, info.num_classes, info.shape, config.model.params)
    optimizer = torch.optim.SGD(module.parameters(), lr=1e-6)
    images = torch.rand(config.train.batch_size, *info.shape)
    labels = torch.zeros(len(images), dtype=torch.int64)
    passes, started = 0, 0.0
    while started == 0.0 or time.process_time() < started + MEASURED_SECONDS:
        optimizer.zero_grad()
        torch.autograd.backward(cross_entropy(module(images), labels))
        optimizer.step()
        if started:
            passes += 1
        else:  # The first pass is not measured.
            started = time.process_time()
    operations = count_pass(config.model.name, info.num_classes, info.shape, config.model.params)
    return passes * len(images) * operations / (time.process_time() - started)


def main(arguments: Sequence[str]) -> None:
    torch.set_num_threads(1)
    tflops = float(arguments[0]) if arguments else 10.0
    factors, by_model = method_factors(), dict[str, list[RunConfig]]()
    skipped: Counter[str] = Counter()
    for config in columns(planned_configs()):
        try:
            count_run(config)
            name = f"{config.model.name} ({config.dataset.name})"
            by_model.setdefault(name, []).append(config)
        except UserError as error:
            skipped[str(error)] += 1
    table = Table("model", "columns", "runs", "10^15 operations", "GFLOPS of a core")
    table.add_column("core-years")
    table.add_column(f"GPU-days at {tflops:g} TFLOPS")
    total = [0.0] * 5
    for name, configs in sorted(by_model.items()):
        operations = SEEDS * sum(factors.values()) * sum(map(count_run, configs))
        rate = measure_pass(configs[0])
        values = [len(configs), SEEDS * len(factors) * len(configs), operations / 1e15]
        values += [operations / rate / 86400 / 365, operations / tflops / 1e12 / 86400]
        total = [old + new for old, new in zip(total, values, strict=True)]
        table.add_row(name, *_texts(values, f"{rate / 1e9:.0f}"))
    table.add_row("all", *_texts(total, ""))
    console = Console(width=140)
    console.print(table)
    console.print("factors:", ", ".join(f"{name} {value:.2f}" for name, value in factors.items()))
    for reason, number in skipped.items():
        console.print(f"{number} columns without a count: {reason}")


def _texts(values: Sequence[float], rate: str) -> list[str]:
    texts = [f"{value:.0f}" for value in values[:3]] + [rate]
    return texts + [f"{value:.1f}" for value in values[3:]]


if __name__ == "__main__":
    main(sys.argv[1:])
