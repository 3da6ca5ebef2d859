"""Figures of noise detection: FedCorr's LID scores and labels, Fed-CNML's neighbors."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from benchmarks.records.readers import read_journal, read_scenario
from methods.toolkit.mixture import split_by_gmm
from reports.figures import extract, select, style
from reports.figures.extract import Array, JournalEntry, Scenario, lid_iterations
from reports.figures.scenarios import add_color_bar, plot_heat_map
from reports.frame.load import Row

LID, CUMULATIVE_LID = "LID score", "cumulative LID score"
NOISE_RATE = "noise rate, %"
NUM_NEIGHBORS = "number of neighbors"
Fit = Mapping[str, Any]  # means, variances and weights of a mixture


def lid_scores(rows: Sequence[Row], notes: list[str]) -> Figure:
    """FedCorr, Figure 3: LID and cumulative LID of the last iteration, with mixtures."""
    row = select.best_match(_runs_with_key(rows, "fedcorr", "cumulative_lid", notes))
    title = f"{select.caption(row)}; iteration {lid_iterations(row['journal'])[-1]['iteration']}"
    return _plot_scores([("", LID, row), ("", CUMULATIVE_LID, row)], title, style.WIDTH)


def lid_by_model(rows: Sequence[Row], notes: list[str]) -> Figure:
    """FedCorr, Figure 5: cumulative LID of the last iteration, one column per model."""
    rows = _runs_with_key(rows, "fedcorr", "cumulative_lid", notes)
    shared = ("dataset", "partition", "noise")
    shown = select.best_by_label(rows, shared, lambda row: str(row["model.name"]))
    columns = [(name, CUMULATIVE_LID, row) for name, row in shown.items()]
    width = style.WIDTH if len(shown) > 1 else 4.0
    return _plot_scores(columns, select.caption(columns[0][2], *shared), width)


def lid_by_iteration(rows: Sequence[Row], notes: list[str]) -> Figure:
    """FedCorr, Figure 6: both scores with mixtures in up to five pre-processing iterations."""
    row = select.best_match(_runs_with_key(rows, "fedcorr", "cumulative_lid", notes))
    entries = lid_iterations(row["journal"], at_most=5)
    width = max(4.0, min(style.WIDTH, 2.4 * len(entries)))
    figure, axes = style.panels(2, len(entries), 2.1, width=width)
    for column, entry in zip(axes.T, entries, strict=True):
        for axis, score in zip(column, (LID, CUMULATIVE_LID), strict=True):
            plot_score_density(axis, *_scores(entry, score, row["seed"]), row["scenario"])
            axis.set_xlabel(score if len(entries) <= 3 else score.removesuffix(" score"))
        column[0].set_title(f"iteration {entry['iteration']}")
    for axis in axes[:, 0]:
        axis.set_ylabel("density")
    return style.finish(figure, [row], select.caption(row))


def noise_levels(rows: Sequence[Row], notes: list[str]) -> Figure:
    """FedCorr, Figure 7: estimated and true noise rates, and the detection of noisy samples."""
    row = select.best_match(_runs_with_key(rows, "fedcorr", "cumulative_lid", notes))
    estimate = extract.noise_estimate(row["journal"], row["scenario"])
    counts = [name for name in extract.DETECTION_COUNTS if name in estimate]
    figure, axes = style.panels(2 if counts else 1, 1, 2.6, sharex=True)
    upper, lower = axes[0, 0], axes[-1, 0]
    x, every = np.arange(len(estimate)), max(1, len(estimate) // 25)
    for column, label, color, look in (
        ("given", "true, given labels", style.BLACK, ":"),
        ("after", "true, after pre-processing", style.ORANGE, "s-"),
        ("estimated", "estimated", style.GREEN, "^--"),
    ):
        if column in estimate:
            upper.plot(x, estimate[column], look, color=color, markevery=every, label=label)
    upper.set(ylabel=NOISE_RATE, ylim=(-2, 102))
    style.number_clients(upper, len(x))
    noisy, predicted = estimate["noisy"], estimate["predicted"]
    detected = f"noisy clients detected: {(noisy & predicted).sum()} of {noisy.sum()}"
    upper.set_title(f"{detected}; false positives: {(predicted & ~noisy).sum()}", loc="left")
    fills = ((style.BLUE, ""), (style.RED, "////"), (style.ORANGE, "...."), ("#DDDDDD", ""))
    bottom = np.zeros(len(estimate))
    for name, (color, hatch) in zip(counts, fills, strict=False):
        edge: Any = {"edgecolor": "white", "linewidth": 0.2, "hatch": hatch}
        lower.bar(x, estimate[name], bottom=bottom, color=color, label=name, **edge)
        bottom += estimate[name]
        lower.set_ylabel("samples of the client")
    hint = " (no bar: predicted clean)" if counts else ""
    lower.set_xlabel(f"client, sorted by true noise rate{hint}")
    return style.finish(figure, [row], select.caption(row))


def label_correction(rows: Sequence[Row], notes: list[str]) -> Figure:
    """FedCorr, Figure 8: true classes against labels before training and after each stage.

    The paper shows the first five clients. The journal has the sum over all clients.
    """
    row = select.best_match(_runs_with_key(rows, "fedcorr", "label_confusion", notes))
    shown = extract.label_confusions(row["journal"], row["scenario"])
    figure, axes = style.panels(1, len(shown), 3.1)
    for axis, (title, counts) in zip(axes[0], shown, strict=True):
        plot_heat_map(axis, extract.row_percentages(counts))
        axis.set_title(f"{title}\naccuracy {100 * np.trace(counts) / counts.sum():.1f} %")
        axis.set_xlabel("label")
    axes[0, 0].set_ylabel("true class")
    add_color_bar(figure, list(axes[0]))
    return style.finish(figure, [row], f"{select.caption(row)}; all clients")


def neighbors_and_lid(rows: Sequence[Row], notes: list[str]) -> Figure:
    """Fed-CNML, Figure 2: neighbors of the clients against their noise rate, beside LID scores.

    The LID scores are those of a FedCorr run in the same scenario.
    """
    fedcnml = _runs_with_key(rows, "fedcnml", "eta", notes)
    row = select.best_match(fedcnml, select.PAPER_SETTING | {"noise.rho": "0.4"})
    same_scenario = [other for other in rows if other["scenario.hash"] == row["scenario.hash"]]
    fedcorr = _runs_with_key(same_scenario, "fedcorr", "cumulative_lid", notes, required=False)
    shown = [row, *select.by_preference(fedcorr)[:1]]
    figure, axes = style.two_columns(len(shown), 2.6)
    _plot_neighbors(axes[0], row)
    axes[0].set_xlabel(f"{NUM_NEIGHBORS} (fedcnml)")
    if fedcorr:
        last = lid_iterations(shown[1]["journal"])[-1]
        _plot_against_noise(axes[1], np.asarray(last["lid"]), row["scenario"])
        axes[1].set_xlabel("LID score (fedcorr, last iteration)")
    else:
        notes.append("right panel omitted: no run of fedcorr in the same scenario")
    return style.finish(figure, shown, select.caption(row))


def neighbors_by_noise(rows: Sequence[Row], notes: list[str]) -> Figure:
    """Fed-CNML, Figure 3: neighbors against noise rate, a panel per noise setting."""
    rows = _runs_with_key(rows, "fedcnml", "eta", notes)
    noisy = [row for row in rows if row.get("noise.rho")]
    select.require_rows(noisy, "of fedcnml with noise.rho above 0")
    shared = ("dataset", "partition")
    found = select.best_by_label(noisy, shared, lambda row: select.caption(row, "noise"))
    shown = [found[title] for title in sorted(found)[:4]]
    figure, axes = style.two_columns(len(shown), 2.4)
    for axis, row in zip(axes, shown, strict=True):
        _plot_neighbors(axis, row)
        axis.set_title(select.caption(row, "noise"))
    return style.finish(figure, shown, select.caption(shown[0], "dataset", "model", "partition"))


def _runs_with_key(
    rows: Sequence[Row], method: str, key: str, notes: list[str], required: bool = True
) -> Sequence[Row]:
    """Runs of the method whose journal has the key, with journal and scenario.

    Damaged files are noted. Raises if there is no such run, unless it is not `required`.
    """
    of_method = [row for row in rows if row["method.name"] == method]
    read = select.extend_rows(of_method, "journal", read_journal, notes)
    kept = [row for row in read if any(key in entry for entry in row["journal"])]
    found = select.extend_rows(kept, "scenario", read_scenario, notes)
    return (
        select.require_rows(found, f"of {method} with {key} in its journal") if required else found
    )


def _scores(entry: JournalEntry, score: str, seed: int) -> tuple[Array, Fit]:
    """Scores of all clients and a mixture: FedCorr's own for cumulative LID, a new one for LID."""
    if score == CUMULATIVE_LID:
        return np.asarray(entry["cumulative_lid"]), entry["mixture"]
    values = np.asarray(entry["lid"])
    fit = split_by_gmm(values, seed)
    return values, {"means": fit.means, "variances": fit.variances, "weights": fit.weights}


def _plot_scores(columns: Sequence[tuple[str, str, Row]], title: str, width: float) -> Figure:
    """Plot a column per (heading, score, run): density of the last scores, above noise rates."""
    figure, axes = style.panels(2, len(columns), 2.3, width=width, sharex="col")
    for (upper, lower), (heading, score, row) in zip(axes.T, columns, strict=True):
        values, fit = _scores(lid_iterations(row["journal"])[-1], score, row["seed"])
        plot_score_density(upper, values, fit, row["scenario"])
        _plot_against_noise(lower, values, row["scenario"])
        upper.set_title(heading)
        lower.set_xlabel(score)
    axes[0, 0].set_ylabel("density")
    axes[1, 0].set_ylabel(NOISE_RATE)
    return style.finish(figure, [row for _, _, row in columns], title)


def plot_score_density(axis: Axes, values: Array, fit: Fit, scenario: Scenario) -> None:
    """Plot a stacked histogram of clean and noisy clients with area 1, and the mixture."""
    low, high = values.min(), values.max() if np.ptp(values) else values.min() + 1
    edges = np.linspace(low, high, int(np.clip(len(values) // 5, 8, 20)) + 1)
    weight = 1 / (len(values) * (edges[1] - edges[0]))
    bottom = np.zeros(len(edges) - 1)
    for members, look, label in _client_kinds(scenario):
        heights = weight * np.histogram(values[members], edges)[0]
        hatch = "////" if look is style.NOISY else ""
        axis.bar(
            edges[:-1], heights, np.diff(edges), bottom, align="edge", color=look["color"],
            alpha=0.55, hatch=hatch, edgecolor="white", label=label,
        )  # fmt: skip
        bottom += heights
    margin = 0.15 * (high - low)
    x = np.linspace(low - margin, high + margin, 400)
    densities = extract.mixture_densities(x, fit)
    for density, dashes, kind in zip(densities, ("-", "--"), ("clean", "noisy"), strict=True):
        label = f"mixture, {kind} component"
        axis.plot(x, density, color=style.BLACK, linestyle=dashes, label=label)
    # A component of little variance would hide the histogram.
    axis.set_ylim(0, 1.06 * max(bottom.max(), min(densities.max(), 2 * bottom.max())))


def _plot_against_noise(axis: Axes, values: Array, scenario: Scenario) -> None:
    rates = 100 * scenario["client_rate"]
    for members, look, label in _client_kinds(scenario):
        axis.scatter(
            values[members], rates[members], s=16, alpha=0.8, linewidths=0, label=label, **look
        )
    axis.set_ylim(-4, 104)


def _client_kinds(scenario: Scenario) -> Iterator[tuple[Array, dict[str, Any], str]]:
    """Mask, style and label of the clean and of the noisy clients."""
    is_noisy = scenario["client_level"] > 0
    yield ~is_noisy, style.CLEAN, "clean clients"
    yield is_noisy, style.NOISY, "noisy clients"


def _plot_neighbors(axis: Axes, row: Row) -> None:
    counts = np.asarray(next(entry["eta"] for entry in row["journal"] if "eta" in entry))
    _plot_against_noise(axis, counts, row["scenario"])
    axis.set(xlabel=NUM_NEIGHBORS, ylabel=NOISE_RATE)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
