"""The papers' figures from our records: python -m reports.figures figure=fedcorr_figure3 runs=runs"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from benchmarks.config.schema import SCALES
from benchmarks.terminal import command
from methods.core.errors import UserError
from reports.figures import accuracy, detection, scenarios, style
from reports.frame.load import load_runs
from reports.frame.pivot import select

FIGURES: dict[str, Callable[[pd.DataFrame, list[str]], Figure]] = {
    "fedcorr_figure2": scenarios.partitions,
    "fedcorr_figure3": detection.lid_scores,
    "fedcorr_figure4": accuracy.combined,
    "fedcorr_figure5": detection.lid_by_model,
    "fedcorr_figure6": detection.lid_by_iteration,
    "fedcorr_figure7": detection.noise_levels,
    "fedcorr_figure8": detection.label_correction,
    "fedcorr_figure9": accuracy.stages,
    "fedcorr_figure10": scenarios.sorted_partitions,
    "lsg_figure4": scenarios.transitions,
    "lsg_figure5": accuracy.distillation_weight,
    "fedcnml_figure2": detection.neighbours_and_lid,
    "fedcnml_figure3": detection.neighbours_by_noise,
    "curves": accuracy.curves,
    "critical_difference": accuracy.critical_difference,
}
DEFAULTS = {"figure": "all", "runs": "runs", "out": "reports/reproductions", "scale": "all"}
USAGE = """
python -m reports.figures [figure=NAME,...] [runs=FOLDER,...] [out=FOLDER] [scale=NAME]
                          [KEY=VALUE,... of the runs to take]

Draws the papers' figures from our records, as OUT/SCALE/FIGURE.png and .pdf. A figure of one run takes the run that
is nearest to the paper's setting and says in its title what it shows.

  figure    all, or names separated by commas (default all); a wrong name lists the legal ones
            curves: accuracy by communication in any settings; critical_difference: average ranks over settings
  runs      folders with records of runs, separated by commas (default runs)
  out       where to write (default reports/reproductions)
  scale     paper, laptop or smoke; default all: those that have runs
  KEY=VALUE takes only runs with this value, as in dataset.name=cifar10 noise.rho=0.6 method.name=fedcorr,fedavg
"""


def main(arguments: Sequence[str] | None = None) -> int:
    return command.run_command(arguments, USAGE, DEFAULTS, draw, accepts_run_filters=True)


def draw(options: dict[str, str]) -> int:
    """Draw what the options ask for and the records allow; say what was written and what could not be drawn."""
    chosen = [
        command.require_choice("figure", name, ("all", *FIGURES))
        for name in options["figure"].split(",")
    ]
    scale = command.require_choice("scale", options["scale"], ("all", *SCALES))
    folders = command.split_dirs(options["runs"])
    runs = load_runs(folders)
    command.print_warnings(runs.warnings)
    if len(runs.done) == 0:
        raise UserError(f"no finished run below {', '.join(folders)}")
    frame = select(runs.done, {key: value for key, value in options.items() if key not in DEFAULTS})
    for each in SCALES if scale == "all" else (scale,):
        if scale == "all" and not (frame["scale"] == each).any():
            continue
        for name in FIGURES if "all" in chosen else dict.fromkeys(chosen):
            command.print_warnings(
                _figure(name, frame[frame["scale"] == each], Path(options["out"]) / each)
            )
    return 0


def _figure(name: str, frame: pd.DataFrame, folder: Path) -> list[str]:
    """Draw one figure at one scale. Returns what a reader should know, or why there is none."""
    notes: list[str] = []
    try:
        with style.styled():
            style.save(FIGURES[name](frame, notes), folder, name)
        print(f"{name} {folder.name} -> {folder}/{name}.png, .pdf")
    except UserError as error:
        notes.append(str(error))
    return [f"{name} {folder.name}: {note}" for note in dict.fromkeys(notes)]


if __name__ == "__main__":
    sys.exit(main())
