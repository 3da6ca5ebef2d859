"""Figures of one finished run, from its run directory.

`render_figures` is the entry point `fln.run_figures`: the W&B tracker calls it when a run ends.
"""

import io
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from benchmarks.records.readers import read_journal, read_scenario
from benchmarks.records.record import read_record
from methods.core.errors import UserError
from reports.figures import style
from reports.figures.detection import CUMULATIVE_LID, NOISE_RATE, plot_score_density
from reports.figures.extract import lid_iterations, row_percentages
from reports.figures.scenarios import add_color_bar, plot_bubbles, plot_heat_map


def render_figures(run_dir: Path) -> dict[str, bytes]:
    """PNG images by name: `partition`, `lid_mixture` and `confusion`.

    A figure is absent if the run has no data for it, or if a file is missing or damaged.
    """
    images = {}
    with matplotlib.rc_context(style.RC):
        for plot in (partition, lid_mixture, confusion):
            try:
                figure = plot(run_dir)
            except UserError:  # a missing or damaged file
                continue
            if figure is not None:
                buffer = io.BytesIO()
                figure.savefig(buffer, format="png", dpi=120)
                images[plot.__name__] = buffer.getvalue()
    return images


def partition(run_dir: Path) -> Figure:
    """Samples by client and class, above the noise rate of each client."""
    scenario = read_scenario(run_dir)
    figure, axes = style.panels(2, 1, 2.0, sharex=True, height_ratios=(2, 1))
    upper, lower = axes[:, 0]
    plot_bubbles(upper, scenario["clean_counts"])
    rates = 100 * scenario["client_rate"]
    lower.bar(np.arange(len(rates)), rates, color=style.RED, width=0.8)
    lower.set(xlabel="client", ylabel=NOISE_RATE, ylim=(0, 100))
    return figure


def lid_mixture(run_dir: Path) -> Figure | None:
    """Cumulative LID scores of the last pre-processing iteration, with FedCorr's mixture."""
    iterations = lid_iterations(read_journal(run_dir))
    if not iterations:
        return None
    last = iterations[-1]
    figure, axes = style.panels(1, 1, 2.6)
    axis = axes[0, 0]
    scores = np.asarray(last["cumulative_lid"])
    plot_score_density(axis, scores, last["mixture"], read_scenario(run_dir))
    axis.set(xlabel=CUMULATIVE_LID, ylabel="density", title=f"iteration {last['iteration']}")
    return style.finish(figure, [])


def confusion(run_dir: Path) -> Figure | None:
    """Confusion matrix of the last evaluation."""
    record = read_record(run_dir)
    if record is None or not record.confusion:
        return None
    figure, axes = style.panels(1, 1, 3.4, width=4.2)
    plot_heat_map(axes[0, 0], row_percentages(record.confusion))
    axes[0, 0].set(xlabel="predicted class", ylabel="true class")
    add_color_bar(figure, [axes[0, 0]])
    return figure
