"""Figures of accuracy: learning curves, parameter studies, and combined methods."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.records.files import CURVE_FILE
from benchmarks.records.readers import read_curve
from methods.core.errors import UserError
from reports.figures import select, style
from reports.figures.extract import curve_band, mean_std_by_x, stage_ends
from reports.frame.load import Row, rows_of

COMMUNICATION = "communication (client participations)"
ACCURACY = "test accuracy, %"
BEST_ACCURACY = f"best (oracle) {ACCURACY}"
MAX_PANELS = "6 panels"
MAX_LINES = "8 lines"  # in a panel
# Noise parameters, which may differ within a figure.
NOISE_KEYS = tuple(
    f"noise.{name}" for name in ("rho", "tau", "epsilon", "direction", "scope", "name")
)


def combined(frame: pd.DataFrame, notes: list[str]) -> Figure:
    """FedCorr, Figure 4: best accuracy of methods alone and as FedCorr's final stage."""
    groups = [
        combinations(group) for group in select.by_setting(rows_of(frame), NOISE_KEYS).values()
    ]
    groups.sort(key=lambda group: -sum(map(len, group.values())))
    shown = [group for group in groups if group][:2]
    if not shown:
        raise UserError(
            "skipped: no setting has runs of a method and of fedcorr with it as method.final_method"
        )
    figure, axes = style.two_columns(len(shown), 3.0)
    for axis, group in zip(axes, shown, strict=True):
        _plot_combinations(axis, group)
    return style.finish(figure, chain(*(rows for group in shown for rows in group.values())))


def combinations(rows: Sequence[Row]) -> dict[tuple[str, bool], list[Row]]:
    """Runs by (method, is_alone), for methods that ran both alone and as FedCorr's final stage."""
    found: dict[tuple[str, bool], list[Row]] = {}
    fedcorr = [row for row in rows if row["method.name"] == "fedcorr"]
    for row in select.most_frequent_variant(fedcorr, ["method.final_method"]) if fedcorr else []:
        found.setdefault((str(row.get("method.final_method")), False), []).append(row)
    for final in [final for final, _ in found]:
        alone = [row for row in rows if row["method.name"] == final]
        if alone:
            found[final, True] = select.most_frequent_variant(alone)
        else:
            del found[final, False]
    return found


def _plot_combinations(axis: Axes, group: dict[tuple[str, bool], list[Row]]) -> None:
    ticks = sorted({select.numeric_params(row, "noise") for rows in group.values() for row in rows})
    finals = sorted({final for final, _ in group})
    for (final, is_alone), rows in sorted(group.items()):
        index = finals.index(final)
        shift = 0.08 * (index - (len(finals) - 1) / 2)  # keeps error bars apart
        points = [(ticks.index(select.numeric_params(row, "noise")) + shift, row) for row in rows]
        color = style.COLORS[index]
        _plot_means(
            axis,
            points,
            f"{final} alone" if is_alone else f"fedcorr, then {final}",
            color=color,
            marker=style.MARKERS[index],
            markerfacecolor="white" if is_alone else color,
            linestyle=":" if is_alone else "-",
        )
    axis.set_xticks(range(len(ticks)), [tick.replace(", ", "\n") for tick in ticks])
    axis.set(xlim=(-0.5, len(ticks) - 0.5), xlabel="noise", ylabel=BEST_ACCURACY)
    axis.set_title(select.caption(next(iter(group.values()))[0], "dataset", "model", "partition"))


def stages(frame: pd.DataFrame, notes: list[str]) -> Figure:
    """FedCorr, Figure 9: learning curves of FedCorr, its ablations and others, with its stages."""
    rows = select.extend_rows(rows_of(frame), "curve", read_curve, notes)
    fedcorr = [row for row in rows if row["method.name"] == "fedcorr"]
    first = select.best_match(select.require_rows(fedcorr, f"of fedcorr with {CURVE_FILE}"))
    group = next(group for group in select.by_setting(rows).values() if first in group)
    figure, axes = style.two_columns(1, 4.0)
    order = sorted(
        set(select.variants(group)),
        key=lambda label: (label.split()[0] not in ("fedcorr", "fedavg"), label),
    )
    _plot_curves(axes[0], group, order, notes)
    # Ablations lack stages: mark those of the run that has most.
    ends = [stage_ends(row["curve"]) for row in fedcorr if row in group]
    _mark_stages(axes[0], max(ends, key=len))
    axes[0].set(xlabel=COMMUNICATION, ylabel=ACCURACY)
    return style.finish(figure, group, select.caption(first))


def _mark_stages(axis: Axes, ends: Sequence[tuple[str, int]]) -> None:
    """Write stage names above the axes, separated by vertical lines."""
    start = 0
    transform = axis.get_xaxis_transform()
    for stage, end in ends:
        if start:
            axis.axvline(start, color=style.BLACK, linestyle=":", linewidth=0.8)
        middle = (start + end) / 2
        axis.text(middle, 1.01, stage, transform=transform, ha="center", va="bottom", fontsize=8)
        start = end


def distillation_weight(frame: pd.DataFrame, notes: list[str]) -> Figure:
    """LSG, Figure 5: best accuracy against lambda, a line per noise."""
    panels: list[dict[str, list[Row]]] = []
    rows = [row for row in rows_of(frame, "lsg") if "method.lambda_" in row]
    for group in select.by_setting(rows, NOISE_KEYS).values():
        lines: dict[str, list[Row]] = {}
        for row in select.most_frequent_variant(group, ["method.lambda_"]):
            lines.setdefault(select.section_label(row, "noise"), []).append(row)
        kept = {
            label: rows
            for label, rows in lines.items()
            if len({row["method.lambda_"] for row in rows}) > 1
        }
        panels += [kept] if kept else []
    if not panels:
        raise UserError("skipped: no setting has runs of lsg with two values of method.lambda_")
    panels = panels[: int(MAX_PANELS.split()[0])]
    figure, axes = style.two_columns(len(panels), 2.8)
    for axis, lines in zip(axes, panels, strict=True):
        for index, (label, rows) in enumerate(sorted(lines.items())):
            points = [(float(row["method.lambda_"]), row) for row in rows]
            _plot_means(axis, points, label, **style.line_style(index, 1))
        axis.set(xlabel="distillation weight λ", ylabel=BEST_ACCURACY)
        axis.set_title(
            select.caption(next(iter(lines.values()))[0], "dataset", "model", "partition")
        )
    return style.finish(figure, chain(*(rows for lines in panels for rows in lines.values())))


def curves(frame: pd.DataFrame, notes: list[str]) -> Figure:
    """Learning curves in every setting with several methods: mean and deviation over seeds."""
    rows = select.extend_rows(rows_of(frame), "curve", read_curve, notes)
    settings = select.by_setting(rows).values()
    groups = [(group, set(select.variants(group))) for group in settings]
    groups = [(group, labels) for group, labels in groups if len(labels) > 1]
    if not groups:
        raise UserError(f"skipped: no setting has two methods with {CURVE_FILE}")
    groups.sort(key=lambda entry: (-len(entry[1]), select.caption(entry[0][0])))
    kept = select.keep_first([select.caption(group[0]) for group, _ in groups], MAX_PANELS, notes)
    groups = groups[: len(kept)]
    figure, axes = style.two_columns(len(groups), 3.0)
    counts = Counter(label for _, labels in groups for label in labels)
    order = sorted(counts, key=lambda label: (-counts[label], label))
    for axis, (group, _) in zip(axes, groups, strict=True):
        _plot_curves(axis, group, order, notes)
        axis.set(xlabel=COMMUNICATION, ylabel=ACCURACY)
        sections = (("dataset", "model"), ("partition",), ("noise",))
        axis.set_title("\n".join(select.caption(group[0], *names) for names in sections))
    return style.finish(figure, chain(*(group for group, _ in groups)))


def _plot_curves(axis: Axes, rows: Sequence[Row], order: Sequence[str], notes: list[str]) -> None:
    """Plot a line per variant, with a band if it has several seeds.

    The index of a variant in `order` determines its line style.
    """
    lines: dict[str, list[Row]] = {}
    for label, row in zip(select.variants(rows), rows, strict=True):
        lines.setdefault(label, []).append(row)
    labels = sorted(lines, key=order.index)
    for label in select.keep_first(labels, MAX_LINES, notes, "method.KEY=VALUE"):
        band = curve_band([row["curve"] for row in lines[label]])
        look = style.line_style(order.index(label), len(band))
        axis.plot(band.index, band["mean"], label=label, **look)
        if len(lines[label]) > 1:
            low, high = band["mean"] - band["std"], band["mean"] + band["std"]
            axis.fill_between(band.index, low, high, color=look["color"], alpha=0.2, linewidth=0)


def _plot_means(axis: Axes, points: Iterable[tuple[float, Row]], label: str, **look: Any) -> None:
    """Plot the mean best accuracy over seeds at each x, with the standard deviation."""
    found = mean_std_by_x((x, 100 * float(row["summary.best"])) for x, row in points)
    axis.errorbar(found.index, found["mean"], yerr=found["std"], capsize=2, label=label, **look)
