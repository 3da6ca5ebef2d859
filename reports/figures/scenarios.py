"""Figures of the scenario: data partition and label transition matrix."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.records.files import SCENARIO_FILE
from benchmarks.records.readers import read_scenario
from reports.figures import select, style
from reports.figures.extract import Array, row_percentages
from reports.frame.load import Row

MAX_PANELS = 3
MAX_BUBBLE_AREA = 60  # points squared


def partitions(rows: Sequence[Row], notes: list[str]) -> Figure:
    """FedCorr, Figure 2: samples by client and class of non-IID partitions."""
    shown = _non_iid_runs(rows, notes)
    figure, axes = style.panels(len(shown), 1, 2.0)
    for axis, row in zip(axes[:, 0], shown, strict=True):
        plot_bubbles(axis, row["scenario"]["clean_counts"])
        axis.set_title(select.caption(row, "dataset", "partition"), loc="left")
        axis.set_xlabel("client")
    return style.finish(figure, shown)


def sorted_partitions(rows: Sequence[Row], notes: list[str]) -> Figure:
    """FedCorr, Figure 10: Figure 2 with clients sorted by size, and the client sizes."""
    shown = _non_iid_runs(rows, notes)
    figure, axes = style.panels(2 * len(shown), 1, 1.5, height_ratios=(2, 1) * len(shown))
    for (upper, sizes), row in zip(axes.reshape(-1, 2), shown, strict=True):
        counts = row["scenario"]["clean_counts"]
        counts = counts[np.argsort(counts.sum(axis=1), kind="stable")]
        plot_bubbles(upper, counts)
        upper.set_title(select.caption(row, "dataset", "partition"), loc="left")
        upper.tick_params(labelbottom=False)
        sizes.bar(np.arange(len(counts)), counts.sum(axis=1), color=style.BLUE, width=0.8)
        sizes.set(xlabel="client, sorted by size", ylabel="samples")
        style.number_clients(sizes, len(counts))
    return style.finish(figure, shown)


def transitions(rows: Sequence[Row], notes: list[str]) -> Figure:
    """LSG, Figure 4: label transition matrices, a panel per noise."""
    names = ("symmetric", "pairwise", "human")
    noisy = [row for row in rows if row["noise.name"] in names]
    description = f"with {SCENARIO_FILE} and noise.name symmetric, pairwise or human"
    shown = one_run_per_variant(noisy, "noise", description, notes)
    width = max(3.4, min(style.WIDTH, 3.4 * len(shown)))
    figure, axes = style.panels(1, len(shown), 2.9, width=width)
    for axis, row in zip(axes[0], shown, strict=True):
        plot_heat_map(axis, row_percentages(row["scenario"]["transition"]))
        axis.set_title(select.section_label(row, "noise"), loc="left")
        axis.set(xlabel="given label", ylabel="true class")
    add_color_bar(figure, list(axes[0]))
    return style.finish(figure, shown)


def one_run_per_variant(
    rows: list[Row], section: str, description: str, notes: list[str]
) -> list[Row]:
    """One run with its scenario for each variant of a section, all with the same dataset."""
    readable = select.extend_rows(rows, "scenario", read_scenario, notes)
    select.require_rows(readable, description)
    found = select.best_by_label(
        readable, ["dataset"], lambda row: select.section_label(row, section)
    )
    labels = select.keep_first(sorted(found), MAX_PANELS, "panels", notes, f"{section}.KEY=VALUE")
    return [found[label] for label in labels]


def plot_bubbles(axis: Axes, counts: Array) -> None:
    """Plot (clients, classes) sample counts as bubble areas."""
    clients, classes = np.nonzero(counts)
    areas = MAX_BUBBLE_AREA * counts[clients, classes] / counts.max()
    axis.scatter(clients, classes, s=areas, color=style.BLUE, linewidths=0)
    axis.set(ylabel="true class", ylim=(-0.8, counts.shape[1] - 0.2))
    style.number_clients(axis, len(counts))
    if counts.shape[1] <= 10:
        axis.set_yticks(range(counts.shape[1]))
    axis.set_title(f"largest bubble: {int(counts.max())} samples", loc="right", fontsize=8)


def plot_heat_map(axis: Axes, percentages: Array) -> None:
    """Plot a matrix of row percentages, with the numbers if there are at most 10 classes."""
    axis.imshow(percentages, cmap="viridis", vmin=0, vmax=100, interpolation="nearest")
    num_classes = len(percentages)
    if num_classes <= 20:
        axis.set_xticks(range(num_classes))
        axis.set_yticks(range(num_classes))
    axis.spines[:].set_visible(False)
    axis.tick_params(length=0)
    if num_classes <= 10:
        for (row, column), value in np.ndenumerate(percentages):
            if value >= 0.5:
                color = "black" if value > 50 else "white"
                text = axis.text(column, row, f"{value:.0f}", fontsize=8, color=color)
                text.set(ha="center", va="center")


def add_color_bar(figure: Figure, axes: list[Axes]) -> None:
    """Add the color bar of the heat maps."""
    label = "percentage of the true class"
    figure.colorbar(axes[0].images[0], ax=axes, label=label, fraction=0.05, shrink=0.75)


def _non_iid_runs(rows: Sequence[Row], notes: list[str]) -> list[Row]:
    non_iid = [row for row in rows if row["partition.name"] not in ("iid", "centralized")]
    description = f"with {SCENARIO_FILE} and a partition other than iid"
    return one_run_per_variant(non_iid, "partition", description, notes)
