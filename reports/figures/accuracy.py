"""Figures of accuracy: learning curves, parameter studies, and combined methods."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.records.files import CURVE_FILE
from benchmarks.records.readers import read_curve
from methods.core.errors import UserError
from reports.figures import extract, select, style
from reports.frame.load import Row, group_by

COMMUNICATION = "communication (client participations)"
ACCURACY = "test accuracy, %"
BEST_ACCURACY = f"best (oracle) {ACCURACY}"
MAX_PANELS = 6
MAX_LINES = 8  # in a panel
# Noise parameters, which may differ within a figure.
NOISE_KEYS = tuple(
    f"noise.{name}" for name in ("rho", "tau", "epsilon", "direction", "scope", "name")
)


def combined(rows: Sequence[Row], notes: list[str]) -> Figure:
    """FedCorr, Figure 4: best accuracy of methods alone and as FedCorr's final stage."""
    groups = [combinations(group) for group in select.by_setting(rows, NOISE_KEYS).values()]
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
    methods = group_by(rows, lambda row: str(row["method.name"]))
    fedcorr = select.most_frequent_variant(methods.get("fedcorr", ()), ["method.final_method"])
    found = {}
    for final, members in group_by(
        fedcorr, lambda row: str(row.get("method.final_method"))
    ).items():
        if final in methods:
            found[final, False] = members
            found[final, True] = select.most_frequent_variant(methods[final])
    return found


def _plot_combinations(axis: Axes, group: Mapping[tuple[str, bool], Sequence[Row]]) -> None:
    ticks = sorted({select.numeric_params(row, "noise") for rows in group.values() for row in rows})
    finals = sorted({final for final, _ in group})
    for (final, is_alone), rows in sorted(group.items()):
        index = finals.index(final)
        shift = 0.08 * (index - (len(finals) - 1) / 2)  # keeps error bars apart
        points = [(ticks.index(select.numeric_params(row, "noise")) + shift, row) for row in rows]
        color = style.COLORS[index]
        look = {"color": color, "marker": style.MARKERS[index]}
        look |= {"linestyle": ":", "markerfacecolor": "white"} if is_alone else {}
        _plot_means(axis, points, f"{final} alone" if is_alone else f"fedcorr, then {final}", look)
    axis.set_xticks(range(len(ticks)), [tick.replace(", ", "\n") for tick in ticks])
    axis.set(xlim=(-0.5, len(ticks) - 0.5), xlabel="noise")
    _label_panel(axis, group)


def stages(rows: Sequence[Row], notes: list[str]) -> Figure:
    """FedCorr, Figure 9: learning curves of FedCorr, its ablations and others, with its stages."""
    rows = select.extend_rows(rows, "curve", read_curve, notes)
    fedcorr = [row for row in rows if row["method.name"] == "fedcorr"]
    first = select.best_match(select.require_rows(fedcorr, f"of fedcorr with {CURVE_FILE}"))
    group = next(group for group in select.by_setting(rows).values() if first in group)
    figure, (axis,) = style.two_columns(1, 4.0)
    order = sorted(
        set(select.variants(group)),
        key=lambda label: (label.split()[0] not in ("fedcorr", "fedavg"), label),
    )
    _plot_curves(axis, group, order, notes)
    # Ablations lack stages: mark those of the run that has most.
    ends = [extract.stage_ends(row["curve"]) for row in fedcorr if row in group]
    _mark_stages(axis, max(ends, key=len))
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


def distillation_weight(rows: Sequence[Row], notes: list[str]) -> Figure:
    """LSG, Figure 5: best accuracy against lambda, a line per noise."""
    panels: list[dict[str, list[Row]]] = []
    rows = [row for row in rows if row["method.name"] == "lsg" and "method.lambda_" in row]
    for group in select.by_setting(rows, NOISE_KEYS).values():
        usual = select.most_frequent_variant(group, ["method.lambda_"])
        lines = group_by(usual, lambda row: select.section_label(row, "noise"))
        for label in [*lines]:
            if len({row["method.lambda_"] for row in lines[label]}) == 1:
                del lines[label]
        panels += [lines] if lines else []
    if not panels:
        raise UserError("skipped: no setting has runs of lsg with two values of method.lambda_")
    panels = panels[:MAX_PANELS]
    figure, axes = style.two_columns(len(panels), 2.8)
    for axis, lines in zip(axes, panels, strict=True):
        for index, (label, members) in enumerate(sorted(lines.items())):
            points = [(float(row["method.lambda_"]), row) for row in members]
            _plot_means(axis, points, label, style.line_style(index, 1))
        axis.set_xlabel("distillation weight λ")
        _label_panel(axis, lines)
    return style.finish(figure, chain(*(rows for lines in panels for rows in lines.values())))


def curves(rows: Sequence[Row], notes: list[str]) -> Figure:
    """Learning curves in every setting with several methods: mean and deviation over seeds."""
    rows = select.extend_rows(rows, "curve", read_curve, notes)
    settings = select.by_setting(rows).values()
    groups = [(group, set(select.variants(group))) for group in settings]
    groups = [(group, labels) for group, labels in groups if len(labels) > 1]
    if not groups:
        raise UserError(f"skipped: no setting has two methods with {CURVE_FILE}")
    groups.sort(key=lambda entry: (-len(entry[1]), select.caption(entry[0][0])))
    select.keep_first(
        [select.caption(group[0]) for group, _ in groups], MAX_PANELS, "panels", notes
    )
    groups = groups[:MAX_PANELS]
    figure, axes = style.two_columns(len(groups), 3.0)
    counts = Counter(label for _, labels in groups for label in labels)
    order = sorted(counts, key=lambda label: (-counts[label], label))
    for axis, (group, _) in zip(axes, groups, strict=True):
        _plot_curves(axis, group, order, notes)
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
    for label in select.keep_first(labels, MAX_LINES, "lines", notes, "method.KEY=VALUE"):
        band = extract.curve_band([row["curve"] for row in lines[label]])
        look = style.line_style(order.index(label), len(band))
        axis.plot(band.index, band["mean"], label=label, **look)
        if len(lines[label]) > 1:
            low, high = band["mean"] - band["std"], band["mean"] + band["std"]
            axis.fill_between(band.index, low, high, color=look["color"], alpha=0.2, linewidth=0)
    axis.set(xlabel=COMMUNICATION, ylabel=ACCURACY)


def _plot_means(
    axis: Axes, points: Iterable[tuple[float, Row]], label: str, look: Mapping[str, Any]
) -> None:
    """Plot the mean best accuracy over seeds at each x, with the standard deviation."""
    found = extract.mean_std_by_x((x, 100 * float(row["summary.best"])) for x, row in points)
    axis.errorbar(found.index, found["mean"], yerr=found["std"], capsize=2, label=label, **look)


def _label_panel(axis: Axes, lines: Mapping[Any, Sequence[Row]]) -> None:
    first = next(iter(lines.values()))[0]
    axis.set(ylabel=BEST_ACCURACY, title=select.caption(first, "dataset", "model", "partition"))
