"""Figures over all settings of a comparison: average ranks and performance profiles."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from benchmarks.records.record import ACCURACIES
from methods.core.errors import UserError
from reports.figures import select, style
from reports.figures.accuracy import ACCURACY, MAX_LINES
from reports.figures.extract import Ranks, common_settings, rank_methods
from reports.frame import statistics
from reports.frame.load import Row, rows_of

TOO_FEW = "skipped: needs two methods with two settings in common and different results"


def critical_difference(frame: pd.DataFrame, notes: list[str], accuracy: str = "last10") -> Figure:
    """Average ranks by an accuracy. Bars join methods without significant difference.

    Demsar, Statistical Comparisons of Classifiers over Multiple Data Sets, JMLR 7, 2006.
    """
    rows, results = by_setting(frame, notes, accuracy)
    found = rank_methods(results)
    if found is None or found.ranking.critical_difference is None:
        raise UserError(TOO_FEW)
    _note_dropped(found.dropped, notes)
    shown = [row for row in rows if row["method.name"] in found.methods]
    return style.finish(_plot_ranks(found, accuracy), shown)


def performance_profile(frame: pd.DataFrame, notes: list[str], accuracy: str = "last10") -> Figure:
    """Percentage of runs above each accuracy, with 95 % bootstrap bands for several seeds.

    Agarwal et al., Deep Reinforcement Learning at the Edge of the Statistical Precipice,
    NeurIPS 2021, section 4.2.
    """
    rows, results = by_setting(frame, notes, accuracy)
    methods, settings, dropped = common_settings(results)
    if not settings:
        raise UserError(TOO_FEW)
    _note_dropped(dropped, notes)
    scores = {name: [setting[name] for setting in settings] for name in methods}
    means = {name: float(statistics.interquartile_mean(scores[name])) for name in methods}
    order = sorted(methods, key=lambda name: (-means[name], name))
    shown = select.keep_first(order, MAX_LINES, notes, "method.name=NAMES")
    values = np.unique(np.concatenate([seeds for name in methods for seeds in scores[name]]))
    thresholds = np.concatenate([[values[0] - 1], values, [values[-1] + 1]])

    def percentages(scores: statistics.Scores) -> statistics.Array:
        return 100 * statistics.performance_profile(scores, thresholds)

    figure, (axis,) = style.two_columns(1, 3.4)
    for index, name in enumerate(shown):
        look = style.line_style(index, len(thresholds))
        axis.plot(
            thresholds,
            percentages(scores[name]),
            drawstyle="steps-post",
            label=f"{name} (interquartile mean {means[name]:.1f})",
            **look,
        )
        if band := statistics.stratified_interval(percentages, scores[name]):
            axis.fill_between(
                thresholds, *band, step="post", color=look["color"], alpha=0.15, linewidth=0
            )
    axis.set(
        xlabel=f"threshold: {ACCURACY}, {ACCURACIES[accuracy]}",
        ylabel="runs above the threshold, %",
    )
    title = f"{len(settings)} settings; bands: 95 % bootstrap intervals of several seeds"
    return style.finish(figure, [row for row in rows if row["method.name"] in methods], title)


def by_setting(
    frame: pd.DataFrame, notes: list[str], accuracy: str
) -> tuple[list[Row], dict[select.Setting, dict[str, list[float]]]]:
    """Runs, and their accuracies in percent by setting and method, a number per seed."""
    results: dict[select.Setting, dict[str, list[float]]] = {}
    shown: list[Row] = []
    known = [row for row in rows_of(frame) if f"summary.{accuracy}" in row]
    for setting, group in select.by_setting(known).items():
        for name in sorted({row["method.name"] for row in group}):
            rows = [row for row in group if row["method.name"] == name]
            kept = select.most_frequent_variant(rows)
            if len(kept) < len(rows):
                where = select.caption(rows[0], "dataset", "partition", "noise")
                notes.append(f"{name} in {where}: only the variant with most runs is shown")
            shown += kept
            accuracies = [100 * float(row[f"summary.{accuracy}"]) for row in kept]
            results.setdefault(setting, {})[name] = accuracies
    return shown, results


def _note_dropped(dropped: Sequence[str], notes: list[str]) -> None:
    if dropped:
        notes.append(f"too few settings in common with the others: {', '.join(dropped)}")


def _plot_ranks(found: Ranks, accuracy: str) -> Figure:
    """Plot the ranks on a line, the best on the left, with labels below on both sides."""
    count, difference = len(found.methods), found.ranking.critical_difference or 0.0
    half = (count + 1) // 2
    height = 1.5 + 0.2 * half + 0.1 * len(found.cliques)
    figure = Figure(figsize=(style.WIDTH, height), layout="constrained")
    axis = figure.subplots()
    first_label = -0.55 - 0.3 * len(found.cliques)
    axis.hlines(0, 1, count, color=style.BLACK)
    for tick in range(1, count + 1):
        axis.vlines(tick, 0, 0.15, color=style.BLACK)
        axis.text(tick, 0.25, str(tick), ha="center", va="bottom")
    width = max(count - 1, difference)
    for index, (method, rank) in enumerate(zip(found.methods, found.ranks, strict=True)):
        left = index < half
        y = first_label - 0.5 * (index if left else count - 1 - index)
        end = 1 - 0.05 * width if left else count + 0.05 * width
        axis.plot([rank, rank, end], [0, y, y], color=style.BLACK, linewidth=0.8)
        axis.plot([rank], [0], marker="o", color=style.BLUE)
        label = f"{method}  {rank:.2f} " if left else f" {rank:.2f}  {method}"
        axis.text(end, y, label, ha="right" if left else "left", va="center")
    for index, (first, last) in enumerate(found.cliques):
        ends = [found.ranks[first] - 0.01 * width, found.ranks[last] + 0.01 * width]
        axis.plot(ends, [-0.3 - 0.3 * index] * 2, color=style.RED, linewidth=3)
    axis.plot([1, 1 + difference], [1.2, 1.2], color=style.BLACK, marker="|")
    friedman = f"Friedman p = {found.ranking.p:.2g} over {found.ranking.num_settings} settings"
    title = f"critical difference at {statistics.SIGNIFICANCE_LEVEL:g}: {difference:.2f}"
    title += f"; {friedman}\n{ACCURACY}: {ACCURACIES[accuracy]}"
    axis.text(1, 1.4, title, ha="left", va="bottom")
    axis.set(xlim=(1 - 0.45 * width, 1 + 1.45 * width), ylim=(first_label - 0.5 * half, 2.6))
    axis.axis("off")
    return figure
