"""Tables and figures of speed results."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.table import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Result = Mapping[str, Any]

TITLES = {
    "reference": "Reference: LeNet-5, CIFAR-10, 10 clients with 500 images, 5 epochs in batches "
    "of 10, one evaluation; seconds per round",
    "peers": "Reference in other frameworks; seconds per round",
    "ray": "Reference with two workers: Ray actors and processes; seconds per round",
    "one_process": "Reference on one process",
    "resnet18": "ResNet-18: two participations of three steps with 10 images",
    "evaluation": "Three evaluations of LeNet-5 on 10,000 images",
    "threads": "One participation at a time: one epoch of a client with 500 images",
    "grid": "Sweep of four runs: LeNet-5, CIFAR-10, 20 rounds each",
    "start_up": "Start-up: seconds of the whole command",
}
METHOD_HEADINGS = ("method", "seconds per participation", "model passes per participation")
SCALING_HEADINGS = ("seconds per round by", "values", "max. deviation from linear fit")
MEMORY_HEADINGS = ("method", "total clients: MB added by 20 rounds (of which client state)")


def result_tables(results: Mapping[str, Result]) -> Iterator[Table]:
    for suite, result in results.items():
        if suite in TITLES:
            headings = ("", "seconds", "ratio", "quartiles")
            yield _table(TITLES[suite], headings, _ratio_rows(result))
        elif suite == "methods":
            ratios = ((n, f"{r['ratio']:.2f}", f"{r['passes']:.2f}") for n, r in result.items())
            yield _table("Methods, relative to FedAvg", METHOD_HEADINGS, ratios)
        elif suite == "growth":
            yield _table("Scaling", SCALING_HEADINGS, _scaling_rows(result))
            yield _table("Memory", MEMORY_HEADINGS, _memory_rows(result["memory"]))


def _table(title: str, headings: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Table:
    table = Table(*headings, title=title, title_justify="left")
    for row in rows:
        table.add_row(*row)
    return table


def _ratio_rows(result: Result) -> Iterator[tuple[str, ...]]:
    rows = {name: row for name, row in result.items() if name != "all"}
    others = {f"  {name}": row for name, row in result.get("all", {}).items() if name not in rows}
    for name, row in (rows | others).items():
        quartiles = f"{row['ratio_low']:.2f} - {row['ratio_high']:.2f}"
        yield name, f"{row['seconds']:.2f}", f"{row['ratio']:.2f}", quartiles


def _scaling_rows(result: Result) -> Iterator[tuple[str, ...]]:
    for name, series in _series(result).items():
        pairs = zip(series["x"], series["seconds"], strict=True)
        values = "  ".join(f"{x:g}: {seconds:.3f}" for x, seconds in pairs)
        yield name, values, f"{100 * series['largest_distance']:.1f} %"


def _memory_rows(result: Result) -> Iterator[tuple[str, ...]]:
    for method, rows in result.items():
        cells = (f"{row['clients']}: {row['own_mb']:.1f} ({row['state_mb']:.1f})" for row in rows)
        yield method, "   ".join(cells)


def save_figures(results: Mapping[str, Result], directory: Path) -> list[Path]:
    """Save the figures of the suites that have one. Returns their paths."""
    paths = []
    for suite, plot, name in (
        ("reference", ratio_figure, "speed.png"),
        ("peers", ratio_figure, "peers.png"),
        ("growth", scaling_figure, "growth.png"),
    ):
        if suite in results:
            paths.append(directory / name)
            plot(results[suite]).savefig(paths[-1], dpi=150)
    return paths


def ratio_figure(result: Result) -> "Figure":
    """Bars of the ratios to the baseline, with quartiles."""
    from matplotlib.figure import Figure

    rows = dict(sorted(result.items(), key=lambda item: -item[1]["ratio"]))
    ratio, low, high = (
        [row[key] for row in rows.values()] for key in ("ratio", "ratio_low", "ratio_high")
    )
    figure = Figure(figsize=(8, 3.4), layout="constrained")
    axes = figure.subplots()
    colors = ["#0072b2" if name.startswith("ours") else "#999999" for name in rows]
    errors = [np.subtract(ratio, low), np.subtract(high, ratio)]
    bars = axes.barh(list(rows), ratio, color=colors, xerr=errors, ecolor="#333333", capsize=2)
    axes.bar_label(bars, fmt="{:.2f}", padding=8)
    axes.axvline(1.0, color="#333333", linewidth=0.8)
    label = "time of a round / that of the bare loop on two processes"
    axes.set(xlabel=label, xlim=(0, 1.15 * max(high)))
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def scaling_figure(result: Result) -> "Figure":
    """Seconds per round with their linear fits, one panel per series."""
    from matplotlib.figure import Figure

    series = _series(result)
    figure = Figure(figsize=(3 * len(series), 2.8), layout="constrained")
    panels = figure.subplots(1, len(series), squeeze=False)[0]
    for axes, (name, one) in zip(panels, series.items(), strict=True):
        fit = [one["slope"] * x + one["offset"] for x in one["x"]]
        axes.plot(one["x"], one["seconds"], "o", color="#0072b2")
        axes.plot(one["x"], fit, color="#999999", linewidth=1, zorder=0)
        axes.set(xlabel=name, ylim=(0, 1.15 * max(one["seconds"])))
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("seconds per round")
    return figure


def _series(result: Result) -> dict[str, Any]:
    return {name: series for name, series in result.items() if name != "memory"}
