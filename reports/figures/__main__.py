"""Plot the figures of the papers from run records, as OUT/SCALE/FIGURE.png and .pdf.

    python -m reports.figures [figure=NAME,...] [runs=DIR,...] [out=DIR] [scale=NAME]
                              [accuracy=NAME] [KEY=VALUE,...]

A figure of one run shows the run whose setting is most similar to the paper's.

  figure    all, or names separated by commas (default all); an unknown name lists all
            curves: accuracy by communication in any settings
            critical_difference: average ranks over settings
            performance_profile: percentage of runs above each accuracy, over settings
  runs      directories with run records, separated by commas (default runs)
  out       output directory (default reports/reproductions)
  scale     paper, laptop, smoke or all (default all: every scale that has runs)
  accuracy  of the figures over settings: selected, last10 (default), best (oracle) or final
  KEY=VALUE use only runs with this value, such as noise.rho=0.6 or method.name=fedcorr,fedavg
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from benchmarks.config.schema import SCALES
from benchmarks.records.record import ACCURACIES
from benchmarks.terminal import command
from methods.core.errors import UserError
from reports.figures import accuracy, detection, over_settings, scenarios, style
from reports.frame.load import Row, load_finished_runs, rows_of
from reports.frame.pivot import select

FIGURES: dict[str, Callable[..., Figure]] = {
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
    "fedcnml_figure2": detection.neighbors_and_lid,
    "fedcnml_figure3": detection.neighbors_by_noise,
    "curves": accuracy.curves,
    "critical_difference": over_settings.critical_difference,
    "performance_profile": over_settings.performance_profile,
}
OVER_SETTINGS = ("critical_difference", "performance_profile")  # of any accuracy
DEFAULTS = {"figure": "all", "runs": "runs", "out": "reports/reproductions", "scale": "all"}
DEFAULTS |= {"accuracy": "last10"}


def main(arguments: Sequence[str] | None = None) -> int:
    return command.run_command(
        arguments, str(__doc__), DEFAULTS, plot_all, accepts_run_filters=True
    )


def plot_all(options: command.Options) -> int:
    """Plot the requested figures at every requested scale. Print files, warnings and notes."""
    names = command.choose_names("figure", options["figure"], list(FIGURES))
    scale = command.require_choice("scale", options["scale"], ("all", *SCALES))
    accuracy = command.require_choice("accuracy", options["accuracy"], tuple(ACCURACIES))
    filters = {key: value for key, value in options.items() if key not in DEFAULTS}
    rows = rows_of(select(load_finished_runs(options["runs"]).done, filters))
    scales = [each for each in SCALES if any(row["scale"] == each for row in rows)]
    for each in scales if scale == "all" else [scale]:
        shown = [row for row in rows if row["scale"] == each]
        for name in names:
            selected = {"accuracy": accuracy} if name in OVER_SETTINGS else {}
            command.print_warnings(_plot(name, shown, Path(options["out"]) / each, **selected))
    return 0


def _plot(name: str, rows: Sequence[Row], out: Path, **options: str) -> list[str]:
    """Plot one figure at one scale. Returns notes, or the reason why it was skipped."""
    notes: list[str] = []
    try:
        with style.context():
            style.save(FIGURES[name](rows, notes, **options), out, name)
        print(f"{name} {out.name} -> {out}/{name}.png, .pdf")
    except UserError as error:
        notes.append(str(error))
    return [f"{name} {out.name}: {note}" for note in dict.fromkeys(notes)]


if __name__ == "__main__":
    sys.exit(main())
