"""Tables and figures of speed results."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Result = Mapping[str, Any]

TITLES = {
    "reference": "Reference: LeNet-5, CIFAR-10, 10 clients with 500 images, 5 epochs in batches "
    "of 10, one evaluation; seconds per round",
    "one_process": "Reference on one process",
    "resnet18": "ResNet-18: two participations of three steps with 10 images",
    "evaluation": "Three evaluations of LeNet-5 on 10,000 images",
    "threads": "One participation at a time: one epoch of a client with 500 images",
    "grid": "Sweep of four runs: LeNet-5, CIFAR-10, 20 rounds each",
    "start_up": "Start-up: seconds of the whole command",
}
STAGE1_ROWS = {
    "train": "training",
    "whole_set": "forward passes over all samples of a client",
    "mathematics": "LID, losses, mixtures, relabeling, runner",
}


def result_tables(results: Mapping[str, Result]) -> Iterator[Table]:
    """Tables of all suites."""
    for suite, result in results.items():
        if suite in TITLES:
            yield _ratio_table(TITLES[suite], result)
        elif suite == "methods":
            yield _method_table(result)
        elif suite == "first_stage":
            yield _stage1_table(result)
        elif suite == "growth":
            yield _scaling_table(result)
            yield _memory_table(result["memory"])


def _ratio_table(title: str, result: Result) -> Table:
    table = Table("", "seconds", "ratio", "quartiles", title=title, title_justify="left")
    rows = {name: row for name, row in result.items() if name != "all"}
    others = {f"  {name}": row for name, row in result.get("all", {}).items() if name not in rows}
    for name, row in (rows | others).items():
        quartiles = f"{row['ratio_low']:.2f} - {row['ratio_high']:.2f}"
        table.add_row(name, f"{row['seconds']:.2f}", f"{row['ratio']:.2f}", quartiles)
    return table


def _method_table(result: Result) -> Table:
    title = "Methods, relative to FedAvg"
    headings = ("method", "seconds per participation", "model passes per participation")
    table = Table(*headings, title=title, title_justify="left")
    for name, row in result.items():
        table.add_row(name, f"{row['ratio']:.2f}", f"{row['passes']:.2f}")
    return table


def _stage1_table(result: Result) -> Table:
    title = "FedCorr's first stage, per participation"
    table = Table("", "", show_header=False, title=title, title_justify="left")
    table.add_row("seconds", f"{result['seconds_per_visit']:.2f}")
    for key, name in STAGE1_ROWS.items():
        table.add_row(name, f"{100 * result[key]:.1f} %")
    return table


def _scaling_table(result: Result) -> Table:
    headings = ("seconds per round by", "values", "max. deviation from linear fit")
    table = Table(*headings, title="Scaling", title_justify="left")
    for name, series in _series(result).items():
        pairs = zip(series["x"], series["seconds"], strict=True)
        values = "  ".join(f"{x:g}: {seconds:.3f}" for x, seconds in pairs)
        table.add_row(name, values, f"{100 * series['largest_distance']:.1f} %")
    return table


def _memory_table(result: Result) -> Table:
    headings = ("method", "total clients: MB added by 20 rounds (of which client state)")
    table = Table(*headings, title="Memory", title_justify="left")
    for method, rows in result.items():
        cells = (f"{row['clients']}: {row['own_mb']:.1f} ({row['state_mb']:.1f})" for row in rows)
        table.add_row(method, "   ".join(cells))
    return table


def save_figures(results: Mapping[str, Result], directory: Path) -> list[Path]:
    """Save the figures of the suites that have one. Returns their paths."""
    figures = {}
    if "reference" in results:
        figures["speed.png"] = ratio_figure(results["reference"])
    if "growth" in results:
        figures["growth.png"] = scaling_figure(results["growth"])
    for name, figure in figures.items():
        figure.savefig(directory / name, dpi=150)
    return [directory / name for name in figures]


def ratio_figure(result: Result) -> "Figure":
    """Bars of the ratios to the baseline, with quartiles."""
    from matplotlib.figure import Figure

    rows = sorted(result.items(), key=lambda item: -item[1]["ratio"])
    names, ratios = [name for name, _ in rows], [row["ratio"] for _, row in rows]
    figure = Figure(figsize=(8, 3.4), layout="constrained")
    axes = figure.subplots()
    bars = axes.barh(
        names,
        ratios,
        color=["#0072b2" if name.startswith("ours") else "#999999" for name in names],
        xerr=[
            [row["ratio"] - row["ratio_low"] for _, row in rows],
            [row["ratio_high"] - row["ratio"] for _, row in rows],
        ],
        ecolor="#333333",
        capsize=2,
    )
    axes.bar_label(bars, [f"{ratio:.2f}" for ratio in ratios], padding=8)
    axes.axvline(1.0, color="#333333", linewidth=0.8)
    axes.set(
        xlabel="time of a round, relative to the baseline implementation on two processes",
        xlim=(0, 1.15 * max(row["ratio_high"] for _, row in rows)),
    )
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
