"""Style of all figures: color-blind-safe colors, distinct dashes and markers, small type."""

import math
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from reports.frame.load import Row, caption_of

matplotlib.use("Agg")

# Okabe and Ito (2008), without yellow, which is too pale for lines on white.
BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
BLUE, RED, PURPLE, GRAY = "#0072B2", "#D55E00", "#CC79A7", "#808080"
COLORS = (BLUE, RED, GREEN, PURPLE, ORANGE, SKY, BLACK, GRAY)
DASHES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))
MARKERS = ("o", "^", "s", "D", "v", "P", "X", "<", ">")
CLEAN: dict[str, Any] = {"color": BLUE, "marker": "o"}
NOISY: dict[str, Any] = {"color": RED, "marker": "^"}
MARKERS_PER_LINE = 10
LETTER_WIDTH, LINE_HEIGHT = 0.062, 0.18  # inches, of the type in a legend
WIDTH = 7.2  # inches, the text width of a page
# Figures are plotted and saved in `matplotlib.rc_context(RC)`.
RC: dict[Any, Any] = {
    "font.size": 9, "figure.titlesize": 9, "axes.titlesize": 9, "axes.labelsize": 9,
    "xtick.labelsize": 8, "ytick.labelsize": 8, "legend.fontsize": 8, "legend.frameon": False,
    "axes.spines.top": False, "axes.spines.right": False, "lines.linewidth": 1.3,
    "lines.markersize": 4, "hatch.linewidth": 0.6, "pdf.fonttype": 42, "savefig.dpi": 200,
}  # fmt: skip


def panels(
    rows: int, columns: int, height: float, width: float = WIDTH, **options: Any
) -> tuple[Figure, NDArray[Any]]:
    """A figure with a grid of axes, `height` inches per row."""
    figure = Figure(figsize=(width, rows * height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def two_columns(count: int, height: float) -> tuple[Figure, list[Axes]]:
    """A figure with `count` axes in two columns. A single one is narrower than the page."""
    rows, columns = math.ceil(count / 2), min(2, count)
    figure, axes = panels(rows, columns, height, WIDTH if columns > 1 else 0.75 * WIDTH)
    for axis in axes.flat[count:]:
        axis.remove()
    return figure, list(axes.flat[:count])


def number_clients(axis: Axes, num_clients: int) -> None:
    """Limits and whole numbers of a horizontal axis of clients."""
    axis.set_xlim(-0.7, num_clients - 0.3)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True, steps=(1, 2, 5, 10)))


def line_style(index: int, num_points: int) -> dict[str, Any]:
    """Color, dashes and marker of a line. The cycles differ in length to delay repetition."""
    return {
        "color": COLORS[index % len(COLORS)],
        "linestyle": DASHES[index % len(DASHES)],
        "marker": MARKERS[index % len(MARKERS)],
        "markevery": max(1, num_points // MARKERS_PER_LINE),
    }


def finish(figure: Figure, rows: Iterable[Row], title: str = "") -> Figure:
    """Add title, protocol and hyperparameters of the runs, and a legend of all axes below them.

    The figure is extended by the height of the legend.
    """
    width, height = figure.get_size_inches()
    caption = textwrap.fill(caption_of(rows), int(width / LETTER_WIDTH))
    figure.suptitle(f"{title}\n{caption}".strip())
    handles: dict[str, Any] = {}
    for axis in figure.axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    if handles:
        letters = max(map(len, handles))
        columns = min(len(handles), max(1, int(width / (0.6 + LETTER_WIDTH * letters))))
        figure.set_size_inches(width, height + LINE_HEIGHT * math.ceil(len(handles) / columns))
        place: Any = {"loc": "outside lower center", "ncols": columns, "handlelength": 3}
        figure.legend([*handles.values()], [*handles], **place)
    return figure


def save(figure: Figure, directory: Path, name: str) -> None:
    """Write PNG and PDF. No creation date, so that equal records give equal files."""
    directory.mkdir(parents=True, exist_ok=True)
    figure.savefig(directory / f"{name}.png")
    figure.savefig(directory / f"{name}.pdf", metadata={"CreationDate": None})
