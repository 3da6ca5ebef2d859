"""The command: `python -m benchmarks.run [-m] key=value ...`. One run, or a grid of cells (-m), each with a record under runs/."""

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from methods.core.errors import UserError

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from benchmarks.records.record import Record

CONF = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "conf")
HELP = """Federated learning under label noise: one run, or a grid with -m.

  python -m benchmarks.run                                              one run with the defaults
  python -m benchmarks.run method=fedprox noise.rho=0.4 dataset=cifar10 another one
  python -m benchmarks.run -m method=fedavg,fedprox noise.rho=0.4,0.8   a grid of four cells
  python -m benchmarks.run ... dry=true                                 print the cells and what is done, run nothing
  python -m benchmarks.run ... --cfg                                    print the configuration, run nothing
  python -m benchmarks.methods | benchmarks.data | benchmarks.scenario     tables of methods and data sets; a look at a scene
"""


def run_experiment(raw: "DictConfig") -> "Record | None":
    """Compose -> check -> run -> record. The importable form of the command."""
    from rich.console import Console

    from benchmarks.config.sweep import checked
    from benchmarks.loop.lock import RunLockedError
    from benchmarks.loop.runner import execute_run
    from benchmarks.terminal.run_tables import status_line
    from benchmarks.tracking.factory import make_tracker

    config = checked(raw)
    tracker = make_tracker(config, Console())
    record, line = None, ""
    try:
        record = execute_run(config, tracker)
        line = status_line(record)
    except RunLockedError as error:
        line = f"skipped: {error}"
    finally:
        tracker.close()
    tracker.report(line)
    return record


def job(raw: "DictConfig") -> None:
    run_experiment(raw)


def main(arguments: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    # One thread per process keeps results the same everywhere; must be set before numpy and torch are imported.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ["HYDRA_FULL_ERROR"] = (
        "1"  # hydra's errors reach us as exceptions; they are shown as one line below
    )
    try:
        return _main(arguments)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped; the same command goes on from the last checkpoint", file=sys.stderr)
        return 130


def _main(arguments: list[str]) -> int:
    if {"--help", "-h"} & set(arguments):
        print(HELP + _groups())
        return 0
    multirun = bool({"-m", "--multirun"} & set(arguments))
    overrides = [argument for argument in arguments if argument not in ("-m", "--multirun")]
    for argument in overrides:
        if argument != "--cfg" and (argument.startswith("-") or argument.find("=") < 1):
            raise UserError(f"{argument!r} is not legal; legal: key=value, -m, --cfg, --help")
    show = "--cfg" in overrides
    overrides = [argument for argument in overrides if argument != "--cfg"]

    from benchmarks.config import sweep
    from benchmarks.loop.preflight import validate_runs
    from benchmarks.terminal import run_tables

    cells = sweep.expand(overrides)
    if not multirun and len(cells) > 1:
        raise UserError(
            f"{' '.join(sweep.sweeps(overrides))} makes {len(cells)} cells; legal: one value per key, or -m for a grid"
        )
    if show:
        run_tables.print_configurations(cells)
        return 0
    already = run_tables.finished_run_ids(cells)
    if cells[0][1].dry:
        run_tables.print_planned_runs(cells, already)
        return 0
    validate_runs(cells)
    sweep.launch(job, cells, overrides)
    return (
        run_tables.print_results_table(cells, already)
        if multirun
        else run_tables.print_run_summary(cells[0][1], cells[0][1].run_id in already)
    )


def _groups() -> str:
    """The choices of every configuration group, read from the folder names: no heavy import for a help text."""
    lines = []
    for group in (
        "method",
        "dataset",
        "scale",
        "model",
        "partition",
        "noise",
        "executor",
        "tracking",
        "experiment",
    ):
        folder = os.path.join(CONF, group)
        names = (
            sorted(
                name.removesuffix(".yaml") for name in os.listdir(folder) if name.endswith(".yaml")
            )
            if os.path.isdir(folder)
            else []
        )
        if names:
            lines.append(f"  {group + '=':<12}{' | '.join(names)}")
    keys = "  seed= budget.participations= federation.num_clients= federation.clients_per_round= train.lr= evaluate.every= runs_dir= force=true ..."
    return "\nChoices:\n" + "\n".join(lines) + "\n\nOther keys (all: --cfg):\n" + keys


if __name__ == "__main__":
    sys.exit(main())
