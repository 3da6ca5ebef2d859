"""Pictures of one run, from its folder: who holds what, FedCorr's LID mixture, and the confusions of the last test."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from benchmarks.records.record import read_record
from methods.core.errors import UserError
from reports.figures import style
from reports.figures.detection import CUMULATIVE, density
from reports.figures.extract import (
    iterations,
    partition_counts,
    read_journal,
    read_scene,
    transition_shares,
)
from reports.figures.scenarios import bubbles, colour_bar, heat_map


def pictures(folder: Path) -> dict[str, bytes]:
    """As PNG, those for which the run left something to draw."""
    drawn = {}
    with style.styled():
        for name, draw in (
            ("partition", partition),
            ("lid_mixture", lid_mixture),
            ("confusion", confusion),
        ):
            try:
                figure = draw(folder)
            except UserError:  # a file is missing or damaged
                continue
            if figure is not None:
                buffer = io.BytesIO()
                figure.savefig(buffer, format="png", dpi=120)
                drawn[name] = buffer.getvalue()
    return drawn


def partition(folder: Path) -> Figure:
    """A bubble per client and class, above every client's share of wrong labels."""
    scene = read_scene(folder)
    figure, axes = style.panels(2, 1, 2.0, sharex=True, height_ratios=(2, 1))
    bubbles(axes[0, 0], partition_counts(scene))
    axes[1, 0].bar(
        np.arange(len(scene["client_rate"])), 100 * scene["client_rate"], color=style.RED, width=0.8
    )
    axes[1, 0].set(xlabel="client", ylabel="wrong labels, %", ylim=(0, 100))
    return figure


def lid_mixture(folder: Path) -> Figure | None:
    """The cumulative LID scores after the last pre-processing iteration and the mixture that divides the clients."""
    ends = iterations(read_journal(folder))
    if not ends:
        return None
    figure, axes = style.panels(1, 1, 2.6)
    density(
        axes[0, 0], np.asarray(ends[-1]["cumulative_lid"]), ends[-1]["mixture"], read_scene(folder)
    )
    axes[0, 0].set(xlabel=CUMULATIVE, ylabel="density", title=f"iteration {ends[-1]['iteration']}")
    style.legend_below(figure, [axes[0, 0]])
    return figure


def confusion(folder: Path) -> Figure | None:
    """What the last test took each class for."""
    counts = (read_record(folder) or {}).get("confusion")
    if not counts:
        return None
    figure, axes = style.panels(1, 1, 3.4, width=4.2)
    heat_map(axes[0, 0], transition_shares(counts))
    axes[0, 0].set(xlabel="predicted class", ylabel="true class")
    colour_bar(figure, [axes[0, 0]])
    return figure
