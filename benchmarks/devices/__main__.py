"""List devices, compare one with the CPU, or count the operations of an experiment.

    python -m benchmarks.devices [compare=DEVICE] [methods=NAME,...] [precision=fp32]
    python -m benchmarks.devices cost=EXPERIMENT [scale=paper] [tflops=10]

Options:
  compare=DEVICE   auto, cuda, cuda:N, mps or xpu: smoke runs on the CPU and on the device, and what
                   differs. Differences by rounding are expected on a real device.
  methods=all      methods to compare
  precision=fp32   fp32, tf32 or bf16, on the device
  cost=EXPERIMENT  floating-point operations of the training passes of all runs of an experiment,
                   and the hours they take at `tflops` achieved operations per second (10^12)
"""

import os
import sys
from collections.abc import Sequence

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported, as in benchmarks.run

from benchmarks.terminal.command import Options, choose_names, require_choice, run_command
from methods.core.errors import invalid

DEFAULTS = {"compare": "", "methods": "all", "precision": "fp32"}
DEFAULTS |= {"cost": "", "scale": "paper", "tflops": "10"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Returns the exit code."""
    return run_command(arguments, str(__doc__), DEFAULTS, _run)


def _run(options: Options) -> int:
    from rich.table import Table

    from benchmarks.terminal.console import make_console

    console = make_console()
    if options["cost"]:
        from benchmarks.config.experiments import experiment_names
        from benchmarks.config.schema import SCALES
        from benchmarks.devices.cost import count_experiment

        require_choice("cost", options["cost"], experiment_names())
        require_choice("scale", options["scale"], SCALES)
        rate = _positive("tflops", options["tflops"])
        table = Table("model", "method", "runs", "10^15 operations", f"hours at {rate:g} TFLOPS")
        rows = count_experiment(options["cost"], options["scale"])
        for model, method, runs, operations in [*rows, ("all", "", *_sum(rows))]:
            hours = operations / (rate * 1e12) / 3600
            table.add_row(model, method, str(runs), f"{operations / 1e15:.1f}", f"{hours:.1f}")
        console.print(table)
        console.print("Training passes of train.local_epochs; without scoring and evaluation.")
        return 0
    if not options["compare"]:
        from benchmarks.federation.devices import available_devices, resolve_devices

        for kind in available_devices():
            console.print(", ".join(str(device) for device in resolve_devices(kind)))
        return 0
    from benchmarks.devices.compare import compare_method
    from methods.core import registry

    names = [info.name for info in registry.list_methods()]
    columns = ("method", "accuracy CPU", "device", "largest difference", "weights", "labels")
    table = Table(*columns, title=f"cpu and {options['compare']}, {options['precision']}")
    for name in choose_names("methods", options["methods"], names):
        table.add_row(name, *compare_method(name, options["compare"], options["precision"]))
    console.print(table)
    console.print(
        "largest difference: of the accuracy at one evaluation; weights: largest absolute"
    )
    console.print(
        "difference of a final weight; labels: labels that are not equal after relabeling"
    )
    return 0


def _positive(key: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise invalid(key, text, "a positive number")
    return value


def _sum(rows: Sequence[tuple[str, str, int, float]]) -> tuple[int, float]:
    return sum(row[2] for row in rows), sum(row[3] for row in rows)


if __name__ == "__main__":
    sys.exit(main())
