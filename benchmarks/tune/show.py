"""Table and figures of tuned data: the values, and how sensitive a method is to its settings."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table

from benchmarks.tune.data import Data

HEADER = ("method", "tuned values", "recipe %", "worst to best %", "unsuccessful", "tuned %")


def table_rows(found: Sequence[Data]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for data in found:
        first = [trial["first"] for trial in data["trials"]]
        known = [score for score in first if score is not None]
        tuned = next(t["full"] for t in data["trials"] if t["values"] == data["overrides"])
        values = ", ".join(f"{key}={value:g}" for key, value in data["overrides"].items())
        if data["overrides"] == data["trials"][0]["values"]:
            values = f"{values} (recipe)"
        span = f"{_percent(min(known))} to {_percent(max(known))}"
        failed = f"{first.count(None)} of {len(first)}"
        rows.append((data["method"], values, _percent(first[0]), span, failed, _percent(tuned)))
    return rows


def captions(found: Sequence[Data]) -> list[str]:
    """How the values of a table were found. Methods with different settings are named."""
    methods: dict[str, list[str]] = {}
    for data in found:
        methods.setdefault(_caption(data), []).append(data["method"])
    if len(methods) == 1:
        return list(methods)
    return [f"{', '.join(names)}: {text}" for text, names in methods.items()]


def _caption(data: Data) -> str:
    noise = " ".join(f"{key}={value}" for key, value in data["noise"].items() if value is not None)
    budgets = data["participations"]
    return (
        f"Protocol {data['protocol']}, dataset {data['dataset']}, scale {data['scale']},"
        f" noise {noise}, seeds {', '.join(map(str, data['seeds']))}."
        f" Accuracy on {data['judged_by']}."
        f" Columns recipe and worst to best: {len(data['trials'])} trials with"
        f" {budgets['first']} participations. Column tuned: {budgets['full']} participations."
    )


def make_table(found: Sequence[Data]) -> Table:
    text = "\n".join(captions(found))
    table = Table(*HEADER, caption=text, box=box.SIMPLE_HEAD, collapse_padding=True)
    for row in table_rows(found):
        table.add_row(*row)
    return table


def save_report(found: Sequence[Data], directory: Path, name: str) -> list[Path]:
    """Write the table as Markdown and one figure per method. Returns the paths."""
    directory.mkdir(parents=True, exist_ok=True)
    rows = (HEADER, ["---"] * len(HEADER), *table_rows(found))
    lines = [f"| {' | '.join(row)} |" for row in rows]
    path = directory / f"{name}.md"
    path.write_text("\n".join([*lines, "", "\n\n".join(captions(found)), ""]), encoding="utf-8")
    figures = [_save_figure(data, directory / f"{name}_{data['method']}.png") for data in found]
    return [path, *figures]


def _save_figure(data: Data, path: Path) -> Path:
    """Score against each parameter."""
    from matplotlib.figure import Figure

    space: Mapping[str, Any] = data["space"]
    figure = Figure(figsize=(3.2 * len(space) + 0.6, 3.0), layout="constrained")
    panels = figure.subplots(1, len(space), sharey=True, squeeze=False)[0]
    stages = {stage: f"{count} participations" for stage, count in data["participations"].items()}
    for axes, (key, bounds) in zip(panels, space.items(), strict=True):
        for (stage, label), marker in zip(stages.items(), ("o", "s"), strict=True):
            shown = [trial for trial in data["trials"] if trial[stage] is not None]
            x = [trial["values"][key] for trial in shown]
            axes.scatter(x, [100 * trial[stage] for trial in shown], marker=marker, label=label)
        recipe = data["trials"][0]["values"][key]
        axes.axvline(recipe, color="0.6", linestyle=":", label="recipe")
        axes.set_xlabel(key)
        axes.set_xscale("log" if bounds["log"] else "linear")
        axes.set_xlim(bounds["low"], bounds["high"])
        axes.margins(0.05)
    panels[0].set_ylabel("accuracy, %")
    panels[0].legend(fontsize=7)
    figure.suptitle(f"{data['method']}: {data['judged_by']}", fontsize=8)
    figure.savefig(path, dpi=120)
    return path


def _percent(score: float | None) -> str:
    return "-" if score is None else f"{100 * score:.2f}"
