"""Figures of what a method learns about the noise: FedCorr's LID scores, levels and labels, Fed-CNML's neighbours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from methods.core.errors import UserError
from reports.figures import style
from reports.figures.extract import (
    COUNTS,
    Entry,
    Scene,
    fitted_mixture,
    iterations,
    label_confusions,
    mixture_densities,
    noise_estimate,
    read_journal,
    read_scene,
    transition_shares,
)
from reports.figures.scenarios import colour_bar, heat_map
from reports.figures.select import PAPER, Row, caption, nearest, nearness, rows_of, settings, some

LID, CUMULATIVE = "LID score", "cumulative LID score"
RATE = "wrong labels, %"
Fit = Mapping[str, Any]  # means, variances and weights of a mixture


def lid_scores(frame: pd.DataFrame, notes: list[str]) -> Figure:
    """FedCorr, Figure 3: LID and cumulative LID after the last iteration: mixtures, and both against the noise."""
    row = nearest(_told(frame, "fedcorr", "cumulative_lid", notes))
    scene, last = row["scene"], iterations(row["journal"])[-1]
    figure, axes = style.panels(2, 2, 2.3, sharex="col")
    for (upper, lower), name in zip(axes.T, (LID, CUMULATIVE), strict=True):
        density(upper, *_scores(last, name, row["seed"]), scene)
        _against_noise(lower, _scores(last, name, row["seed"])[0], scene)
        lower.set_xlabel(name)
    axes[0, 0].set_ylabel("density")
    axes[1, 0].set_ylabel(RATE)
    figure.suptitle(
        f"{caption(row, 'dataset', 'model', 'partition', 'noise')}; iteration {last['iteration']}",
        fontsize=9,
    )
    style.legend_below(figure, list(axes.flat))
    return figure


def lid_by_model(frame: pd.DataFrame, notes: list[str]) -> Figure:
    """FedCorr, Figure 5: cumulative LID after the last iteration, one column per architecture."""
    rows = _told(frame, "fedcorr", "cumulative_lid", notes)
    first, same = nearest(rows), ("dataset", "partition", "noise")
    shown: dict[str, Row] = {}
    for row in sorted(rows, key=nearness):
        if settings(row, same) == settings(first, same):
            shown.setdefault(row["model.name"], row)
    figure, axes = style.panels(
        2, len(shown), 2.3, width=style.WIDTH if len(shown) > 1 else 4.0, sharex="col"
    )
    for (upper, lower), row in zip(axes.T, shown.values(), strict=True):
        scene, last = row["scene"], iterations(row["journal"])[-1]
        density(upper, *_scores(last, CUMULATIVE, row["seed"]), scene)
        _against_noise(lower, _scores(last, CUMULATIVE, row["seed"])[0], scene)
        upper.set_title(row["model.name"])
        lower.set_xlabel(CUMULATIVE)
    axes[0, 0].set_ylabel("density")
    axes[1, 0].set_ylabel(RATE)
    figure.suptitle(caption(first, "dataset", "partition", "noise"), fontsize=9)
    style.legend_below(figure, list(axes.flat))
    return figure


def lid_by_iteration(frame: pd.DataFrame, notes: list[str]) -> Figure:
    """FedCorr, Figure 6: both scores in every iteration of the pre-processing, with the mixtures."""
    row = nearest(_told(frame, "fedcorr", "cumulative_lid", notes))
    scene, ends = row["scene"], iterations(row["journal"], at_most=5)
    figure, axes = style.panels(
        2, len(ends), 2.1, width=max(4.0, min(style.WIDTH, 2.4 * len(ends)))
    )
    for column, entry in zip(axes.T, ends, strict=True):
        for axis, name in zip(column, (LID, CUMULATIVE), strict=True):
            density(axis, *_scores(entry, name, row["seed"]), scene)
            axis.set_xlabel(name if len(ends) <= 3 else name.removesuffix(" score"))
        column[0].set_title(f"iteration {entry['iteration']}")
    for axis in axes[:, 0]:
        axis.set_ylabel("density")
    figure.suptitle(caption(row, "dataset", "model", "partition", "noise"), fontsize=9)
    style.legend_below(figure, list(axes.flat))
    return figure


def noise_levels(frame: pd.DataFrame, notes: list[str]) -> Figure:
    """FedCorr, Figure 7: estimated and true noise levels, and how each identified client's samples were divided."""
    row = nearest(_told(frame, "fedcorr", "cumulative_lid", notes))
    told = noise_estimate(row["journal"], row["scene"])
    places = np.arange(len(told.clients))
    figure, axes = style.panels(2 if told.detection else 1, 1, 2.6, sharex=True)
    upper = axes[0, 0]
    every = max(1, len(places) // 25)
    upper.plot(places, told.before, color=style.BLACK, linestyle=":", label="true, before training")
    if told.after is not None:
        upper.plot(
            places,
            told.after,
            color=style.ORANGE,
            linestyle="-",
            marker="s",
            markevery=every,
            label="true, after pre-processing",
        )
    upper.plot(
        places,
        told.estimated,
        color=style.GREEN,
        linestyle="--",
        marker="^",
        markevery=every,
        label="estimated",
    )
    upper.set(ylabel=RATE, ylim=(-2, 100), xlim=(-1, len(places)))
    upper.xaxis.set_major_locator(MaxNLocator(integer=True))
    found = f"{told.found} of {told.noisy} noisy clients found, {told.mistaken} clean ones mistaken for noisy"
    upper.set_title(
        f"{caption(row, 'dataset', 'model', 'partition', 'noise')}\n{found}", loc="left"
    )
    upper.legend(loc="upper left")
    if told.detection:
        lower, bottom = axes[1, 0], np.zeros(len(places))
        looks = ((style.BLUE, ""), (style.RED, "////"), (style.ORANGE, "...."), ("#DDDDDD", ""))
        counts = np.array(
            [told.detection.get(int(k), [0] * len(COUNTS)) for k in told.clients], dtype=float
        )
        for number, (colour, hatch) in enumerate(looks):
            lower.bar(
                places,
                counts[:, number],
                bottom=bottom,
                color=colour,
                hatch=hatch,
                edgecolor="white",
                linewidth=0.2,
                label=COUNTS[number],
            )
            bottom += counts[:, number]
        lower.set(ylabel="samples of the client")
    axes[-1, 0].set_xlabel(
        "client, in order of its true noise"
        + (" (without bar: held to be clean)" if told.detection else "")
    )
    if told.detection:
        style.legend_below(figure, [axes[1, 0]])
    return figure


def label_correction(frame: pd.DataFrame, notes: list[str]) -> Figure:
    """FedCorr, Figure 8: true against working labels before training and after each stage, over all clients."""
    row = nearest(_told(frame, "fedcorr", "label_confusion", notes))
    shown = label_confusions(row["journal"], row["scene"])
    figure, axes = style.panels(1, len(shown), 2.8)
    for axis, (title, counts) in zip(axes[0], shown, strict=True):
        heat_map(axis, transition_shares(counts))
        axis.set_title(f"{title}\n{100 * np.trace(counts) / counts.sum():.1f} % right")
        axis.set_xlabel("label")
    axes[0, 0].set_ylabel("true class")
    colour_bar(figure, list(axes[0]))
    figure.suptitle(
        f"{caption(row, 'dataset', 'model', 'partition', 'noise')}; all clients", fontsize=9
    )
    return figure


def neighbours_and_lid(frame: pd.DataFrame, notes: list[str]) -> Figure:
    """Fed-CNML, Figure 2: neighbours of the clients against their noise, and FedCorr's LID scores in the same scene."""
    row = nearest(_told(frame, "fedcnml", "eta", notes), PAPER | {"noise.rho": "0.4"})
    rivals = _with(
        frame[frame["scene.hash"] == row["scene.hash"]], "fedcorr", "cumulative_lid", notes
    )
    if not rivals:
        notes.append("without its right half: no run of fedcorr in the same scene")
    figure, axes = style.grid_of(2 if rivals else 1, 2.6)
    _against_noise(axes[0], _neighbours(row), row["scene"])
    axes[0].set(xlabel="neighbours of the client (fedcnml)", ylabel=RATE)
    axes[0].xaxis.set_major_locator(MaxNLocator(integer=True))
    if rivals:
        _against_noise(
            axes[1], np.asarray(iterations(nearest(rivals)["journal"])[-1]["lid"]), row["scene"]
        )
        axes[1].set_xlabel("LID score (fedcorr, last iteration)")
    figure.suptitle(caption(row, "dataset", "model", "partition", "noise"), fontsize=9)
    style.legend_below(figure, axes)
    return figure


def neighbours_by_noise(frame: pd.DataFrame, notes: list[str]) -> Figure:
    """Fed-CNML, Figure 3: the same for several shares of noisy clients."""
    rows = _told(frame, "fedcnml", "eta", notes)
    first = nearest(rows)
    shown: dict[str, Row] = {}
    for row in sorted(rows, key=nearness):
        if settings(row, ("dataset", "partition")) == settings(
            first, ("dataset", "partition")
        ) and row.get("noise.rho"):
            shown.setdefault(caption(row, "noise"), row)
    some(list(shown.values()), "of fedcnml with noise.rho above 0")
    figure, axes = style.grid_of(min(len(shown), 4), 2.4)
    for axis, title in zip(axes, sorted(shown), strict=False):
        _against_noise(axis, _neighbours(shown[title]), shown[title]["scene"])
        axis.set(title=title, xlabel="neighbours of the client", ylabel=RATE)
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    figure.suptitle(caption(first, "dataset", "model", "partition"), fontsize=9)
    style.legend_below(figure, axes)
    return figure


def _told(frame: pd.DataFrame, method: str, key: str, notes: list[str]) -> Sequence[Row]:
    """The method's runs whose journal has the key, with their journal and scene."""
    return some(_with(frame, method, key, notes), f"of {method} with {key} in its journal")


def _with(frame: pd.DataFrame, method: str, key: str, notes: list[str]) -> list[Row]:
    """As above, possibly none. A run with a damaged file is left out and noted."""
    kept = []
    for row in rows_of(frame, method):
        try:
            journal = read_journal(row["run_dir"])
            if any(key in entry for entry in journal):
                kept.append(row | {"journal": journal, "scene": read_scene(row["run_dir"])})
        except UserError as error:
            notes.append(str(error))
    return kept


def _neighbours(row: Row) -> np.ndarray:
    return np.asarray(next(entry["eta"] for entry in row["journal"] if "eta" in entry))


def _scores(entry: Entry, name: str, seed: int) -> tuple[np.ndarray, Fit]:
    """A score of every client and its mixture: the method's own for the cumulative LID, one fitted alike for LID."""
    if name == CUMULATIVE:
        return np.asarray(entry["cumulative_lid"]), entry["mixture"]
    values = np.asarray(entry["lid"])
    return values, fitted_mixture(values, seed)


def density(axis: Axes, values: np.ndarray, fit: Fit, scene: Scene) -> None:
    """Histogram of clean and noisy clients, stacked to an area of 1, under the components of the mixture."""
    noisy = scene["client_level"] > 0
    low, high = values.min(), values.max() if np.ptp(values) else values.min() + 1
    edges = np.linspace(low, high, int(np.clip(len(values) // 5, 8, 20)) + 1)
    weight = 1 / (len(values) * (edges[1] - edges[0]))
    bottom = np.zeros(len(edges) - 1)
    for kind, look, hatch, label in (
        (~noisy, style.CLEAN, "", "clean clients"),
        (noisy, style.NOISY, "////", "noisy clients"),
    ):
        share = weight * np.histogram(values[kind], edges)[0]
        axis.bar(
            edges[:-1],
            share,
            np.diff(edges),
            bottom,
            align="edge",
            color=look["color"],
            alpha=0.55,
            hatch=hatch,
            edgecolor="white",
            label=label,
        )
        bottom += share
    margin = 0.15 * (high - low)
    x = np.linspace(low - margin, high + margin, 400)
    held_clean, held_noisy = mixture_densities(x, fit)
    axis.plot(x, held_clean, color=style.BLACK, linestyle="-", label="mixture, held clean")
    axis.plot(x, held_noisy, color=style.BLACK, linestyle="--", label="mixture, held noisy")
    axis.set_ylim(0, 1.06 * max(bottom.max(), held_clean.max(), held_noisy.max()))


def _against_noise(axis: Axes, values: np.ndarray, scene: Scene) -> None:
    noisy = scene["client_level"] > 0
    for kind, look, label in (
        (~noisy, style.CLEAN, "clean clients"),
        (noisy, style.NOISY, "noisy clients"),
    ):
        axis.scatter(
            values[kind],
            100 * scene["client_rate"][kind],
            s=16,
            alpha=0.8,
            linewidths=0,
            label=label,
            **look,
        )
    axis.set_ylim(-4, 104)
