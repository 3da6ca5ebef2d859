"""Figures of the world before training: who holds what, and which labels become which."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from methods.core.errors import UserError
from reports.figures import style
from reports.figures.extract import partition_counts, read_scene, transition_shares
from reports.figures.select import Row, caption, nearest, nearness, rows_of, section_label, some

SHOWN = 3  # partitions, or kinds of noise
BUBBLE = 60  # points squared of the largest


def distinct(rows: list[Row], section: str, at_most: int, what: str, notes: list[str]) -> list[Row]:
    """One run with its scene for every variant of a section, of the data set that is nearest to the paper's."""
    kept = []
    for row in rows:
        try:
            kept.append(row | {"scene": read_scene(row["run_dir"])})
        except UserError as error:
            notes.append(str(error))
    dataset = nearest(some(kept, what))["dataset.name"]
    found: dict[str, Row] = {}
    for row in sorted(kept, key=nearness):
        if row["dataset.name"] == dataset:
            found.setdefault(section_label(row, section), row)
    labels = sorted(found)
    notes += [f"no room for {label}; pick with {section}.KEY=VALUE" for label in labels[at_most:]]
    return [found[label] for label in labels[:at_most]]


def partitions(frame: pd.DataFrame, notes: list[str]) -> Figure:
    """FedCorr, Figure 2: non-IID partitions as bubbles, clients in their own order."""
    shown = _non_iid(frame, notes)
    figure, axes = style.panels(len(shown), 1, 2.0, sharex=False)
    for axis, row in zip(axes[:, 0], shown, strict=True):
        bubbles(axis, partition_counts(row["scene"]))
        axis.set_title(caption(row, "dataset", "partition"), loc="left")
        axis.set_xlabel("client")
    return figure


def sorted_partitions(frame: pd.DataFrame, notes: list[str]) -> Figure:
    """FedCorr, Figure 10: the same with the smallest client first, and the clients' sizes."""
    shown = _non_iid(frame, notes)
    figure, axes = style.panels(2 * len(shown), 1, 1.5, height_ratios=(2, 1) * len(shown))
    for place, row in enumerate(shown):
        counts = partition_counts(row["scene"], by_size=True)
        upper, sizes = axes[2 * place, 0], axes[2 * place + 1, 0]
        bubbles(upper, counts)
        upper.set_title(caption(row, "dataset", "partition"), loc="left")
        upper.tick_params(labelbottom=False)
        sizes.bar(np.arange(len(counts)), counts.sum(axis=1), color=style.BLUE, width=0.8)
        sizes.set(xlim=upper.get_xlim(), xlabel="client, in order of size", ylabel="samples")
    return figure


def transitions(frame: pd.DataFrame, notes: list[str]) -> Figure:
    """LSG, Figure 4: the share of each class that gets which label."""
    noisy = [
        row for row in rows_of(frame) if row["noise.name"] in ("symmetric", "pairwise", "human")
    ]
    shown = distinct(
        noisy, "noise", SHOWN, "with scene.npz and noise.name symmetric, pairwise or human", notes
    )
    figure, axes = style.panels(
        1, len(shown), 2.9, width=max(3.4, min(style.WIDTH, 3.4 * len(shown)))
    )
    for axis, row in zip(axes[0], shown, strict=True):
        heat_map(axis, transition_shares(row["scene"]["transition"]))
        axis.set_title(section_label(row, "noise"), loc="left")
        axis.set(xlabel="label given", ylabel="true class")
    colour_bar(figure, list(axes[0]))
    return figure


def heat_map(axis: Axes, shares: np.ndarray) -> None:
    """Percentages of the true class, with the numbers written in where there is room."""
    axis.imshow(shares, cmap="viridis", vmin=0, vmax=100, interpolation="nearest")
    classes = len(shares)
    if classes <= 20:
        axis.set_xticks(range(classes))
        axis.set_yticks(range(classes))
    for side in axis.spines.values():
        side.set_visible(False)
    axis.tick_params(length=0)
    if classes <= 10:
        for (truth, label), share in np.ndenumerate(shares):
            if share >= 0.5:
                axis.text(
                    label,
                    truth,
                    f"{share:.0f}",
                    ha="center",
                    va="center",
                    fontsize=8,
                    color="black" if share > 50 else "white",
                )


def colour_bar(figure: Figure, axes: list[Axes]) -> None:
    figure.colorbar(
        axes[0].images[0], ax=axes, label="share of the true class, %", fraction=0.05, shrink=0.75
    )


def _non_iid(frame: pd.DataFrame, notes: list[str]) -> list[Row]:
    rows = [row for row in rows_of(frame) if row["partition.name"] not in ("iid", "centralized")]
    return distinct(
        rows, "partition", SHOWN, "with scene.npz and a partition other than iid", notes
    )


def bubbles(axis: Axes, counts: np.ndarray) -> None:
    """A bubble's area is the client's number of samples of the class; the largest number is told."""
    clients, classes = np.nonzero(counts)
    axis.scatter(
        clients,
        classes,
        s=BUBBLE * counts[clients, classes] / counts.max(),
        color=style.BLUE,
        linewidths=0,
    )
    axis.set(ylabel="true class", xlim=(-1, len(counts)), ylim=(-0.8, counts.shape[1] - 0.2))
    if counts.shape[1] <= 10:
        axis.set_yticks(range(counts.shape[1]))
    axis.set_title(f"largest bubble: {int(counts.max())} samples", loc="right", fontsize=8)
