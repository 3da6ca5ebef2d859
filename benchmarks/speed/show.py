"""Tables for the terminal, and the two figures."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.table import Table

TITLES = {
    "reference": "Reference work: LeNet-5, CIFAR-10, 10 clients x 500 images x 5 epochs in batches of 10, and a test: seconds per round",
    "one_process": "The same on one process",
    "resnet18": "ResNet-18: two visits of three steps of 10 images",
    "evaluation": "Three tests of LeNet-5 on 10,000 images",
    "threads": "One visit at a time, as in FedCorr's first stage: an epoch on one client of 500 images",
    "grid": "A grid of four cells: LeNet-5, CIFAR-10, 20 rounds each",
    "start_up": "Start-up, seconds of the whole command",
}


def tables(results: dict[str, Any]) -> Iterator[Table]:
    for part, result in results.items():
        if part in TITLES:
            table = Table(
                "", "seconds", "ratio", "quartiles", title=TITLES[part], title_justify="left"
            )
            rows = result | {
                f"  {name}": row
                for name, row in result.get("all", {}).items()
                if name not in result
            }
            for name, row in rows.items():
                if name != "all":
                    table.add_row(
                        name,
                        f"{row['seconds']:.2f}",
                        f"{row['ratio']:.2f}",
                        f"{row['ratio_low']:.2f} - {row['ratio_high']:.2f}",
                    )
            yield table
        elif part == "methods":
            table = Table(
                "method",
                "seconds per visit by FedAvg's",
                "network passes by FedAvg's",
                title="Methods",
                title_justify="left",
            )
            for name, row in result.items():
                table.add_row(name, f"{row['ratio']:.2f}", f"{row['passes']:.2f}")
            yield table
        elif part == "first_stage":
            table = Table(
                "",
                "",
                show_header=False,
                title="FedCorr's first stage, per visit",
                title_justify="left",
            )
            table.add_row("seconds", f"{result['seconds_per_visit']:.2f}")
            names = {
                "train": "training",
                "whole_set": "forward passes over whole clients",
                "mathematics": "LID, losses, mixtures, relabelling, the runner",
            }
            for key, name in names.items():
                table.add_row(name, f"{100 * result[key]:.1f} %")
            yield table
        elif part == "growth":
            yield from _growth_tables(result)


def _growth_tables(result: dict[str, Any]) -> Iterator[Table]:
    table = Table(
        "seconds per round against",
        "points",
        "farthest from a line",
        title="Growth",
        title_justify="left",
    )
    for name, series in result.items():
        if name != "memory":
            points = "  ".join(
                f"{x:g}: {y:.3f}" for x, y in zip(series["x"], series["seconds"], strict=True)
            )
            table.add_row(name, points, f"{100 * series['largest_distance']:.1f} %")
    yield table
    memory = Table(
        "method",
        "clients in all: MB added by 20 rounds (of which clients' state)",
        title="Memory",
        title_justify="left",
    )
    for method, rows in result["memory"].items():
        memory.add_row(
            method,
            "   ".join(
                f"{row['clients']}: {row['own_mb']:.1f} ({row['state_mb']:.1f})" for row in rows
            ),
        )
    yield memory


def draw(results: dict[str, Any], folder: Path) -> list[Path]:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    written = []
    if "reference" in results:
        rows = sorted(results["reference"].items(), key=lambda item: -item[1]["ratio"])
        figure, axes = pyplot.subplots(figsize=(8, 3.4), layout="constrained")
        colours = ["#0072b2" if name.startswith("ours") else "#999999" for name, _ in rows]
        errors = [
            [row["ratio"] - row["ratio_low"] for _, row in rows],
            [row["ratio_high"] - row["ratio"] for _, row in rows],
        ]
        bars = axes.barh(
            [name for name, _ in rows],
            [row["ratio"] for _, row in rows],
            color=colours,
            xerr=errors,
            ecolor="#333333",
            capsize=2,
        )
        axes.bar_label(bars, [f"{row['ratio']:.2f}" for _, row in rows], padding=8)
        axes.axvline(1.0, color="#333333", linewidth=0.8)
        axes.set(
            xlabel="time of a round by that of the bare eager loop on two processes",
            xlim=(0, 1.15 * max(row["ratio_high"] for _, row in rows)),
        )
        axes.spines[["top", "right"]].set_visible(False)
        written.append(folder / "speed.png")
        figure.savefig(written[-1], dpi=150)
        pyplot.close(figure)
    if "growth" in results:
        series = {name: one for name, one in results["growth"].items() if name != "memory"}
        figure, panels = pyplot.subplots(
            1, len(series), figsize=(3 * len(series), 2.8), layout="constrained"
        )
        for axes, (name, one) in zip(panels, series.items(), strict=True):
            axes.plot(one["x"], one["seconds"], "o", color="#0072b2")
            axes.plot(
                one["x"],
                [one["slope"] * x + one["offset"] for x in one["x"]],
                color="#999999",
                linewidth=1,
                zorder=0,
            )
            axes.set(xlabel=name, ylim=(0, 1.15 * max(one["seconds"])))
            axes.spines[["top", "right"]].set_visible(False)
        panels[0].set_ylabel("seconds per round")
        written.append(folder / "growth.png")
        figure.savefig(written[-1], dpi=150)
        pyplot.close(figure)
    return written
