"""How all figures look: colours that colour-blind readers tell apart, dashes and markers besides, type of 8 points."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

matplotlib.use("Agg")

# Okabe and Ito (2008), without the yellow, which is too pale for lines on white.
BLACK, ORANGE, SKY, GREEN, BLUE, RED, PURPLE = (
    "#000000",
    "#E69F00",
    "#56B4E9",
    "#009E73",
    "#0072B2",
    "#D55E00",
    "#CC79A7",
)
GREY = "#808080"
COLOURS = (BLUE, RED, GREEN, PURPLE, ORANGE, SKY, BLACK, GREY)
DASHES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))
MARKERS = ("o", "^", "s", "D", "v", "P", "X", "<", ">")
CLEAN: dict[str, Any] = {"color": BLUE, "marker": "o"}
NOISY: dict[str, Any] = {"color": RED, "marker": "^"}
MARKED = 10  # markers along a line
LETTER, LINE = 0.062, 0.18  # inches, of a legend's type
WIDTH = 7.2  # inches, the text width of a page
RC: dict[Any, Any] = {
    "font.size": 9, "axes.titlesize": 9, "axes.labelsize": 9, "xtick.labelsize": 8, "ytick.labelsize": 8,
    "legend.fontsize": 8, "legend.frameon": False, "axes.spines.top": False, "axes.spines.right": False,
    "lines.linewidth": 1.3, "lines.markersize": 4, "hatch.linewidth": 0.6, "pdf.fonttype": 42, "savefig.dpi": 200,
}  # fmt: skip


@contextmanager
def styled() -> Iterator[None]:
    with matplotlib.rc_context(RC):
        yield


def panels(
    rows: int, columns: int, height: float, width: float = WIDTH, **options: Any
) -> tuple[Figure, np.ndarray]:
    """A figure with a grid of axes, `height` inches per row."""
    figure = Figure(figsize=(width, rows * height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def grid_of(count: int, height: float, columns: int = 2) -> tuple[Figure, list[Axes]]:
    """So many axes, row by row; a single one does not take the whole width."""
    columns = min(columns, count)
    rows = math.ceil(count / columns)
    figure, axes = panels(rows, columns, height, WIDTH if columns > 1 else 0.75 * WIDTH)
    flat = list(axes.flat)
    for axis in flat[count:]:
        axis.remove()
    return figure, flat[:count]


def line(number: int, points: int) -> dict[str, Any]:
    """Colour, dashes and marker of a line by its number. The cycles differ in length, so that looks repeat late."""
    return {
        "color": COLOURS[number % len(COLOURS)],
        "linestyle": DASHES[number % len(DASHES)],
        "marker": MARKERS[number % len(MARKERS)],
        "markevery": max(1, points // MARKED),
    }


def legend_below(figure: Figure, axes: list[Axes]) -> None:
    """One legend for all axes, each label once, below them where it covers nothing; the figure grows by its height."""
    found: dict[str, Any] = {}
    for axis in axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    width, height = figure.get_size_inches()
    columns = min(len(found), max(1, int(width / (0.6 + LETTER * max(map(len, found))))))
    figure.set_size_inches(width, height + LINE * math.ceil(len(found) / columns))
    figure.legend(
        list(found.values()), list(found), loc="outside lower center", ncols=columns, handlelength=3
    )


def save(figure: Figure, folder: Path, name: str) -> None:
    """As PNG to look at and PDF to print; without a date, so that equal records give equal files."""
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / f"{name}.png")
    figure.savefig(folder / f"{name}.pdf", metadata={"CreationDate": None})
