"""Measure the speed of the runner against hand-written loops that do the same work.

    python -m benchmarks.speed [parts=NAME,...] [repeats=N] [out=DIR]

Options:
  parts=all    suites: reference, peers, ray, one_process, resnet18, evaluation, methods, threads,
               growth, grid, start_up; all take about 35 minutes, without peers and ray, which
               need other packages (pip install '.[peers,ray]')
  repeats=7    repetitions per candidate, plus one warm-up
  out=DIR      directory of speed.json, speed.png, peers.png and growth.png;
               default: reports/reproductions/speed

Candidates are measured in turn, and ratios are computed within a repetition, so that other load
affects all candidates equally. Results of other suites in speed.json are kept. Requires CIFAR-10:
python -m benchmarks.data fetch=cifar10
"""

import json
import os
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported, as in benchmarks.run

from benchmarks.terminal.command import Options, choose_names, require_integer, run_command
from methods.core.machine import available_cores

DEFAULTS = {"parts": "all", "repeats": "7", "out": "reports/reproductions/speed"}


def main(arguments: Sequence[str] | None = None) -> int:
    return run_command(arguments, str(__doc__), DEFAULTS, _run)


def _run(options: Options) -> int:
    from rich.console import Console

    from benchmarks.records.files import write_json
    from benchmarks.records.record import package_versions
    from benchmarks.speed.show import result_tables, save_figures
    from benchmarks.speed.suites import SUITES

    repeats = require_integer("repeats", options["repeats"], 1)
    names = choose_names("parts", options["parts"], list(SUITES))
    if "all" in options["parts"].split(","):  # their packages are not always installed
        names = [name for name in names if name not in ("peers", "ray")]
    directory = Path(options["out"]).expanduser()
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "speed.json"
    results = json.loads(path.read_text())["parts"] if path.exists() else {}
    console = Console()

    def log(name: str, text: str) -> None:
        console.print(f"{name}: {text}", highlight=False)

    for name in names:
        started = time.monotonic()
        results[name] = SUITES[name](repeats, partial(log, name))
        log(name, f"finished in {time.monotonic() - started:.0f} s")
        parts = {suite: results[suite] for suite in SUITES if suite in results}
        cores = available_cores()
        write_json(path, {"cores": cores, "versions": package_versions(), "parts": parts})
    for table in result_tables({name: results[name] for name in names}):
        console.print(table)
    for saved in [path, *save_figures(results, directory)]:
        console.print(f"saved {saved}", highlight=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
