"""Tables and a figure of a scenario."""

from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from benchmarks.config.schema import RunConfig
from benchmarks.scenario.scenario import Scenario

MAX_CLIENTS = 100  # clients shown in the figure
MAX_CLASSES = 20  # classes whose counts and ticks are shown


def scenario_tables(config: RunConfig, scenario: Scenario) -> list[Table]:
    """Tables for the terminal: the scenario, and one row per client."""
    rates, sizes = scenario.noise.client_rate, scenario.client_sizes
    is_noisy = scenario.noise.client_level > 0
    overview = Table(show_header=False, box=None, padding=(0, 2))
    overview.add_row("scenario", f"{scenario_title(config)}, hash {scenario.hash}")
    overview.add_row("noise convention", scenario.noise.convention)
    overview.add_row("clients", f"{scenario.num_clients}, of which {int(is_noisy.sum())} noisy")
    overview.add_row("samples per client", f"{sizes.min()} to {sizes.max()}, total {sizes.sum()}")
    if len(scenario.held_out):
        overview.add_row("held-out samples", str(len(scenario.held_out)))
    rate = f"{100 * scenario.noise_rate:.2f} % overall, maximum {100 * rates.max():.1f} %"
    overview.add_row("noise rate", rate)
    clients = Table("client", "samples", "classes", "noise level", "noise rate, %")
    clients.add_column("samples per class (clean)")
    clients.add_column("samples per class (given)")
    clean_counts = scenario.class_counts(scenario.clean_labels)
    given_counts = scenario.class_counts(scenario.noise.labels)
    for k, (clean, given) in enumerate(zip(clean_counts, given_counts, strict=True)):
        clients.add_row(
            str(k),
            str(sizes[k]),
            str(np.count_nonzero(clean)),
            f"{scenario.noise.client_level[k]:.3f}" if is_noisy[k] else "-",
            f"{100 * rates[k]:.1f}",
            _format_counts(clean),
            _format_counts(given),
        )
    return [overview, clients]


def scenario_title(config: RunConfig) -> str:
    """Dataset, partition, noise model and seed."""
    names = (config.dataset.name, config.partition.name, config.noise.name)
    return f"{', '.join(names)}, seed {config.seed}"


def plot_scenario(scenario: Scenario, path: Path, title: str) -> None:
    """Plot class counts of the clients as bubbles, and their noise rates as colors and bars."""
    from matplotlib import colormaps
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    shown = min(scenario.num_clients, MAX_CLIENTS)
    rates = 100 * scenario.noise.client_rate[:shown]
    counts = scenario.class_counts(scenario.clean_labels)[:shown]
    figure = Figure(figsize=(max(6.0, 0.13 * shown + 2), 6), layout="constrained")
    bubbles, bars = figure.subplots(nrows=2, height_ratios=(3, 1), sharex=True)
    clients, classes = np.nonzero(counts)
    areas = 120 * counts[clients, classes] / counts.max()
    style: dict[str, Any] = {"vmin": 0, "vmax": 100, "linewidths": 0.3, "edgecolors": "black"}
    points = bubbles.scatter(clients, classes, s=areas, c=rates[clients], cmap="viridis_r", **style)
    figure.colorbar(points, ax=[bubbles, bars], label="noise rate, %", pad=0.01, aspect=40)
    bubbles.set(ylabel="true class", ylim=(-0.7, scenario.num_classes - 0.3))
    bubbles.set_title(title, loc="left")
    bubbles.set_title(f"largest bubble: {counts.max()} samples", loc="right", fontsize=9)
    if scenario.num_classes <= MAX_CLASSES:
        bubbles.set_yticks(range(scenario.num_classes))
    bars.bar(range(shown), rates, color=colormaps["viridis_r"](rates / 100), width=0.8)
    excerpt = f" (first {shown} of {scenario.num_clients})" if shown < scenario.num_clients else ""
    bars.set(xlabel=f"client{excerpt}", ylabel="noise rate, %", ylim=(0, 100))
    bars.set_xlim(-0.7, shown - 0.3)
    bars.xaxis.set_major_locator(MaxNLocator(integer=True, steps=(1, 2, 5, 10)))
    figure.align_ylabels()
    figure.savefig(path, dpi=150)


def _format_counts(counts: np.ndarray) -> str:
    return " ".join(map(str, counts)) if len(counts) <= MAX_CLASSES else f"{len(counts)} classes"
