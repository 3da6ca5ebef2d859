"""Figures of accuracies: against communication, against a parameter, of methods combined, and as ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from methods.core.errors import UserError
from reports.figures import style
from reports.figures.extract import Ranks, band, over_seeds, ranks, stage_ends
from reports.figures.select import (
    Row,
    by_setting,
    caption,
    commonest,
    levels,
    nearest,
    rows_of,
    section_label,
    some,
    variants,
)
from reports.frame.load import read_curve
from reports.frame.statistics import SIGNIFICANCE_LEVEL

COMMUNICATION = "communication (client participations)"
ACCURACY = "test accuracy, %"
PANELS = 6
LINES = 8  # in a panel; more cannot be told apart
NOISE = (
    "noise.rho",
    "noise.tau",
    "noise.epsilon",
    "noise.direction",
    "noise.scope",
    "noise.name",
)  # may differ within a figure


def combined(frame: pd.DataFrame, notes: list[str]) -> Figure:
    """FedCorr, Figure 4: best accuracy of other methods alone, and with FedCorr's first two stages before them."""
    groups = [combinations(group) for group in by_setting(rows_of(frame), NOISE).values()]
    shown = sorted(
        (group for group in groups if group), key=lambda group: -sum(map(len, group.values()))
    )[:2]
    if not shown:
        raise UserError(
            "not drawn: no setting has runs of a method and of fedcorr with method.final naming it"
        )
    figure, axes = style.grid_of(len(shown), 3.0)
    for axis, group in zip(axes, shown, strict=True):
        ticks = sorted({levels(row, "noise") for rows in group.values() for row in rows})
        finals = sorted({final for final, _ in group})
        for (final, alone), rows in sorted(group.items()):
            number = finals.index(final)
            shift = 0.08 * (
                number - (len(finals) - 1) / 2
            )  # side by side, so that whiskers do not hide each other
            look = {
                "color": style.COLOURS[number],
                "marker": style.MARKERS[number],
                "linestyle": ":" if alone else "-",
            }
            label = f"{final} alone" if alone else f"fedcorr, then {final}"
            points = [(ticks.index(levels(row, "noise")) + shift, row) for row in rows]
            _points(
                axis, points, label, markerfacecolor="white" if alone else look["color"], **look
            )
        axis.set_xticks(range(len(ticks)), [tick.replace(", ", "\n") for tick in ticks])
        axis.set(xlim=(-0.5, len(ticks) - 0.5), xlabel="noise", ylabel=f"best {ACCURACY}")
        axis.set_title(caption(next(iter(group.values()))[0], "dataset", "model", "partition"))
    style.legend_below(figure, axes)
    return figure


def combinations(rows: Sequence[Row]) -> dict[tuple[str, bool], list[Row]]:
    """(method, whether alone) to runs, for the methods that also follow on FedCorr in this setting."""
    found: dict[tuple[str, bool], list[Row]] = {}
    fedcorr = [row for row in rows if row["method.name"] == "fedcorr"]
    for row in commonest(fedcorr, ["method.final"]) if fedcorr else []:
        found.setdefault((str(row.get("method.final")), False), []).append(row)
    for final in [final for final, _ in found]:
        alone = [row for row in rows if row["method.name"] == final]
        if alone:
            found[final, True] = commonest(alone)
        else:
            del found[final, False]
    return found


def stages(frame: pd.DataFrame, notes: list[str]) -> Figure:
    """FedCorr, Figure 9: accuracy against communication for FedCorr, its ablations and others; stages are marked."""
    rows = _with_curves(rows_of(frame), notes)
    first = nearest(
        some([row for row in rows if row["method.name"] == "fedcorr"], "of fedcorr with curve.csv")
    )
    group = next(group for group in by_setting(rows).values() if first in group)
    # The stages of the run that has most of them: ablations lack some.
    marked = max(
        (row for row in group if row["method.name"] == "fedcorr"),
        key=lambda row: len(stage_ends(row["curve"])),
    )
    figure, axes = style.grid_of(1, 4.0)
    labels = set(variants(group))
    _curves(
        axes[0],
        group,
        sorted(labels, key=lambda label: (label.split()[0] not in ("fedcorr", "fedavg"), label)),
        notes,
    )
    start = 0
    for stage, end in stage_ends(marked["curve"]):
        if start:
            axes[0].axvline(start, color=style.BLACK, linestyle=":", linewidth=0.8)
        axes[0].text(
            (start + end) / 2,
            1.01,
            stage,
            transform=axes[0].get_xaxis_transform(),
            ha="center",
            va="bottom",
            fontsize=8,
        )
        start = end
    axes[0].set(xlabel=COMMUNICATION, ylabel=ACCURACY)
    figure.suptitle(caption(first, "dataset", "model", "partition", "noise"), fontsize=9)
    style.legend_below(figure, axes)
    return figure


def distillation_weight(frame: pd.DataFrame, notes: list[str]) -> Figure:
    """LSG, Figure 5: best accuracy against lambda, a line for each noise."""
    groups: list[dict[str, list[Row]]] = []
    for group in by_setting(rows_of(frame, "lsg"), NOISE).values():
        lines: dict[str, list[Row]] = {}
        for row in commonest(group, ["method.lambda_"]):
            lines.setdefault(section_label(row, "noise"), []).append(row)
        kept = {
            label: rows
            for label, rows in lines.items()
            if len({row["method.lambda_"] for row in rows}) > 1
        }
        groups += [kept] if kept else []
    if not groups:
        raise UserError("not drawn: no setting has runs of lsg with two values of method.lambda_")
    figure, axes = style.grid_of(min(len(groups), PANELS), 2.8)
    for axis, lines in zip(axes, groups, strict=False):
        for number, (label, rows) in enumerate(sorted(lines.items())):
            _points(
                axis,
                [(float(row["method.lambda_"]), row) for row in rows],
                label,
                **style.line(number, 1),
            )
        axis.set(xlabel="weight λ of the distillation", ylabel=f"best {ACCURACY}")
        axis.set_title(caption(next(iter(lines.values()))[0], "dataset", "model", "partition"))
    style.legend_below(figure, axes)
    return figure


def curves(frame: pd.DataFrame, notes: list[str]) -> Figure:
    """Accuracy against communication in every setting with several methods, mean and standard deviation over seeds."""
    groups = [
        group
        for group in by_setting(_with_curves(rows_of(frame), notes)).values()
        if len(set(variants(group))) > 1
    ]
    if not groups:
        raise UserError("not drawn: no setting has two methods with curve.csv")
    groups.sort(
        key=lambda group: (
            -len(set(variants(group))),
            caption(group[0], "dataset", "model", "partition", "noise"),
        )
    )
    notes += [
        f"no room for {caption(group[0], 'dataset', 'model', 'partition', 'noise')}; pick with KEY=VALUE"
        for group in groups[PANELS:]
    ]
    figure, axes = style.grid_of(min(len(groups), PANELS), 3.0)
    common = Counter(label for group in groups for label in set(variants(group)))
    order = sorted(common, key=lambda label: (-common[label], label))
    for axis, group in zip(axes, groups, strict=False):
        _curves(axis, group, order, notes)
        axis.set(xlabel=COMMUNICATION, ylabel=ACCURACY)
        axis.set_title(
            f"{caption(group[0], 'dataset', 'model')}\n{caption(group[0], 'partition')}\n{caption(group[0], 'noise')}"
        )
    style.legend_below(figure, axes)
    return figure


def critical_difference(frame: pd.DataFrame, notes: list[str]) -> Figure:
    """Average ranks by best accuracy; bars join methods whose ranks are not shown to differ (Demsar, 2006)."""
    cells: dict[Any, dict[str, list[float]]] = {}
    for setting, group in by_setting(rows_of(frame)).items():
        for name in sorted({row["method.name"] for row in group}):
            rows = [row for row in group if row["method.name"] == name]
            kept = commonest(rows)
            if len(kept) < len(rows):
                where = caption(rows[0], "dataset", "partition", "noise")
                notes.append(f"{name} in {where}: only the variant with most runs counts")
            cells.setdefault(setting, {})[name] = [float(row["summary.best"]) for row in kept]
    found = ranks(cells)
    if found is None or found.ranking.critical_difference is None:
        raise UserError(
            "not drawn: ranks need two methods with two settings in common, and a difference between them"
        )
    if found.dropped:
        notes.append(f"too few settings in common with the others: {', '.join(found.dropped)}")
    return _rank_diagram(found)


def _rank_diagram(found: Ranks) -> Figure:
    """Ranks on a line, the best on the left, with labels below on either side."""
    count, apart = len(found.methods), found.ranking.critical_difference or 0.0
    half = (count + 1) // 2
    figure = Figure(
        figsize=(style.WIDTH, 1.5 + 0.2 * half + 0.1 * len(found.cliques)), layout="constrained"
    )
    axis = figure.subplots()
    first_label = -0.55 - 0.3 * len(found.cliques)
    axis.hlines(0, 1, count, color=style.BLACK)
    for tick in range(1, count + 1):
        axis.vlines(tick, 0, 0.15, color=style.BLACK)
        axis.text(tick, 0.25, str(tick), ha="center", va="bottom")
    width = max(count - 1, apart)
    for place, (method, rank) in enumerate(zip(found.methods, found.ranks, strict=True)):
        left = place < half
        height = first_label - 0.5 * (place if left else count - 1 - place)
        end = 1 - 0.05 * width if left else count + 0.05 * width
        axis.plot([rank, rank, end], [0, height, height], color=style.BLACK, linewidth=0.8)
        axis.plot([rank], [0], marker="o", color=style.BLUE)
        label = f"{method}  {rank:.2f} " if left else f" {rank:.2f}  {method}"
        axis.text(end, height, label, ha="right" if left else "left", va="center")
    for number, (first, last) in enumerate(found.cliques):
        ends = [found.ranks[first] - 0.01 * width, found.ranks[last] + 0.01 * width]
        axis.plot(ends, [-0.3 - 0.3 * number] * 2, color=style.RED, linewidth=3)
    axis.plot([1, 1 + apart], [1.2, 1.2], color=style.BLACK, marker="|")
    chi_square = f"Friedman p = {found.ranking.p:.2g} over {found.ranking.num_settings} settings"
    axis.text(
        1,
        1.4,
        f"critical difference at {SIGNIFICANCE_LEVEL:g}: {apart:.2f}; {chi_square}",
        ha="left",
        va="bottom",
    )
    axis.set(xlim=(1 - 0.45 * width, 1 + 1.45 * width), ylim=(first_label - 0.5 * half, 2.0))
    axis.axis("off")
    return figure


def _with_curves(rows: Iterable[Row], notes: list[str]) -> list[Row]:
    kept = []
    for row in rows:
        try:
            kept.append(row | {"curve": read_curve(row["run_dir"])})
        except UserError as error:
            notes.append(str(error))
    return kept


def _curves(axis: Axes, rows: Sequence[Row], order: Sequence[str], notes: list[str]) -> None:
    """A line per variant, with a band where there are several seeds. A label's place in `order` gives its looks."""
    lines: dict[str, list[Row]] = {}
    for label, row in zip(variants(rows), rows, strict=True):
        lines.setdefault(label, []).append(row)
    ordered = sorted(lines, key=order.index)
    if ordered[LINES:]:
        notes.append(
            f"no room for {', '.join(ordered[LINES:])}; pick with method.name=NAME,... or method.KEY=VALUE"
        )
    for label in ordered[:LINES]:
        drawn = band([row["curve"] for row in lines[label]])
        look = style.line(order.index(label), len(drawn.x))
        axis.plot(drawn.x, drawn.centre, label=label, **look)
        if drawn.spread is not None:
            low, high = drawn.centre - drawn.spread, drawn.centre + drawn.spread
            axis.fill_between(drawn.x, low, high, color=look["color"], alpha=0.2, linewidth=0)


def _points(axis: Axes, points: Iterable[tuple[float, Row]], label: str, **look: Any) -> None:
    """Means over seeds at some places, with whiskers of one standard deviation."""
    x, centre, spread = over_seeds(
        (place, 100 * float(row["summary.best"])) for place, row in points
    )
    axis.errorbar(x, centre, yerr=spread, capsize=2, label=label, **look)
