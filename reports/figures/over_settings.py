"""Figures over all settings of a comparison: average ranks and performance profiles."""

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.records.record import ACCURACIES
from methods.core.errors import UserError
from reports.figures import select, style
from reports.figures.accuracy import ACCURACY, MAX_LINES
from reports.frame import statistics
from reports.frame.load import Row, group_by

TOO_FEW = "skipped: needs two methods with two settings in common and different results"
Results = Mapping[str, Sequence[float]]  # accuracies in percent of each method, common seeds


def critical_difference(rows: Sequence[Row], notes: list[str], accuracy: str = "last10") -> Figure:
    """Average ranks by an accuracy. Bars join methods without significant difference.

    Demsar, Statistical Comparisons of Classifiers over Multiple Data Sets, JMLR 7, 2006.
    """
    methods, settings, shown = _common_results(rows, notes, accuracy)
    means = [[fmean(setting[name]) for name in methods] for setting in settings]
    ranking = statistics.ranking(means)
    if ranking.critical_difference is None:
        raise UserError(TOO_FEW)
    num_cliques = len(cliques(sorted(ranking.ranks), ranking.critical_difference))
    height = 1.5 + 0.2 * ((len(methods) + 1) // 2) + 0.1 * num_cliques
    figure, axes = style.panels(1, 1, height)
    _plot_ranks(axes[0, 0], methods, ranking, f"{ACCURACY}: {ACCURACIES[accuracy]}")
    return style.finish(figure, shown)


def performance_profile(rows: Sequence[Row], notes: list[str], accuracy: str = "last10") -> Figure:
    """Percentage of runs above each accuracy, with 95 % bootstrap bands for several seeds.

    Agarwal et al., Deep Reinforcement Learning at the Edge of the Statistical Precipice,
    NeurIPS 2021, section 4.2.
    """
    methods, settings, shown = _common_results(rows, notes, accuracy)
    scores = {name: [setting[name] for setting in settings] for name in methods}
    means = {name: float(statistics.interquartile_mean(scores[name])) for name in methods}
    order = sorted(methods, key=lambda name: (-means[name], name))
    values = np.unique(np.concatenate([seeds for name in methods for seeds in scores[name]]))
    thresholds = np.concatenate([[values[0] - 1], values, [values[-1] + 1]])

    def percentages(scores: statistics.Scores) -> statistics.Array:
        return 100 * statistics.performance_profile(scores, thresholds)

    figure, (axis,) = style.two_columns(1, 3.4)
    kept = select.keep_first(order, MAX_LINES, "lines", notes, "method.name=NAMES")
    for index, name in enumerate(kept):
        look = style.line_style(index, len(thresholds)) | {"drawstyle": "steps-post"}
        label = f"{name} (interquartile mean {means[name]:.1f})"
        axis.plot(thresholds, percentages(scores[name]), label=label, **look)
        if band := statistics.stratified_interval(percentages, scores[name]):
            fill = {"color": look["color"], "alpha": 0.15, "linewidth": 0}
            axis.fill_between(thresholds, band[0], band[1], step="post", **fill)
    xlabel = f"threshold: {ACCURACY}, {ACCURACIES[accuracy]}"
    axis.set(xlabel=xlabel, ylabel="runs above the threshold, %")
    title = f"{len(settings)} settings; bands: 95 % bootstrap intervals of several seeds"
    return style.finish(figure, shown, title)


def _common_results(
    rows: Sequence[Row], notes: list[str], accuracy: str
) -> tuple[list[str], list[Results], list[Row]]:
    """Methods, their accuracies in the settings in which all of them ran, and their runs."""
    results: list[dict[str, dict[int, float]]] = []
    used: list[Row] = []
    known = [row for row in rows if f"summary.{accuracy}" in row]
    for group in select.by_setting(known).values():
        results.append({})
        methods = group_by(group, lambda row: str(row["method.name"]))
        for name, members in sorted(methods.items()):
            kept = select.most_frequent_variant(members)
            if len(kept) < len(members):
                where = select.caption(members[0], "dataset", "partition", "noise")
                notes.append(f"{name} in {where}: only the variant with most runs is shown")
            used += kept
            values = {row["seed"]: 100 * float(row[f"summary.{accuracy}"]) for row in kept}
            results[-1][name] = values
    names, settings, dropped = common_settings(results)
    if not settings:
        raise UserError(TOO_FEW)
    if dropped:
        notes.append(f"too few settings in common with the others: {', '.join(dropped)}")
    return names, settings, [row for row in used if row["method.name"] in names]


def common_settings(
    results: Sequence[Mapping[str, Mapping[int, float]]],
) -> tuple[list[str], list[Results], list[str]]:
    """Methods, the settings in which all of them ran with a common seed, and dropped methods.

    While fewer than two settings are complete, the method with the fewest settings is dropped.
    No settings are returned if no two methods have two settings in common.
    """
    counts = Counter(name for setting in results for name in setting)
    methods, dropped = sorted(counts), list[str]()
    while len(methods) >= 2:
        complete: list[Results] = [
            common
            for setting in results
            if set(methods) <= set(setting)
            and (common := statistics.common_seeds({name: setting[name] for name in methods}))
        ]
        if len(complete) >= 2:
            return methods, complete, dropped
        dropped.append(min(methods, key=lambda name: (counts[name], name)))
        methods.remove(dropped[-1])
    return methods, [], dropped


def cliques(ranks: Sequence[float], difference: float) -> list[tuple[int, int]]:
    """First and last index of the largest groups without significant difference.

    The ranks are in ascending order.
    """
    groups: list[tuple[int, int]] = []
    for first, rank in enumerate(ranks):
        last = max(k for k, other in enumerate(ranks) if other - rank <= difference)
        if last > first and (not groups or last > groups[-1][1]):
            groups.append((first, last))
    return groups


def _plot_ranks(
    axis: Axes, methods: Sequence[str], ranking: statistics.Ranking, subtitle: str
) -> None:
    """Plot the ranks on a line, the best on the left, with labels below on both sides."""
    count, difference = len(methods), ranking.critical_difference or 0.0
    ranks = sorted(ranking.ranks)
    groups = cliques(ranks, difference)
    half, width = (count + 1) // 2, max(count - 1, difference)
    first_label = -0.55 - 0.3 * len(groups)
    axis.hlines(0, 1, count, color=style.BLACK)
    for tick in range(1, count + 1):
        axis.vlines(tick, 0, 0.15, color=style.BLACK)
        axis.text(tick, 0.25, str(tick), ha="center", va="bottom")
    for index, (rank, method) in enumerate(sorted(zip(ranking.ranks, methods, strict=True))):
        left = index < half
        y = first_label - 0.5 * (index if left else count - 1 - index)
        end = 1 - 0.05 * width if left else count + 0.05 * width
        axis.plot([rank, rank, end], [0, y, y], color=style.BLACK, linewidth=0.8)
        axis.plot([rank], [0], marker="o", color=style.BLUE)
        label = f"{method}  {rank:.2f} " if left else f" {rank:.2f}  {method}"
        axis.text(end, y, label, ha="right" if left else "left", va="center")
    for index, (first, last) in enumerate(groups):
        ends = [ranks[first] - 0.01 * width, ranks[last] + 0.01 * width]
        axis.plot(ends, [-0.3 - 0.3 * index] * 2, color=style.RED, linewidth=3)
    axis.plot([1, 1 + difference], [1.2, 1.2], color=style.BLACK, marker="|")
    title = f"critical difference at {statistics.SIGNIFICANCE_LEVEL:g}: {difference:.2f}"
    title += f"; Friedman p = {ranking.p:.2g} over {ranking.num_settings} settings\n{subtitle}"
    axis.text(1, 1.4, title, ha="left", va="bottom")
    axis.set(xlim=(1 - 0.45 * width, 1 + 1.45 * width), ylim=(first_label - 0.5 * half, 2.6))
    axis.axis("off")
