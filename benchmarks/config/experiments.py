"""Named lists of cells: `experiment=fedcorr_table2` runs the cells of a published table or figure.

A file conf/experiment/NAME.yaml holds either `table: NAME`, whose layout in reports/published says which configuration each printed cell stands for, or its own
`common`, `rows` and `columns`: lists of overrides whose pairs (rho with tau, p with alpha) stay together. Every row meets every column. At a smaller scale
common values of network, training, federation and budget give way to the scale's own; those that tell cells apart stay.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import yaml

from benchmarks.config.schema import near
from methods.core.errors import UserError
from reports.published import compose, without_world
from reports.published import load as load_published


def names(conf: Path) -> list[str]:
    return sorted(path.stem for path in (conf / "experiment").glob("*.yaml"))


def cells(name: str, scale: str, conf: Path) -> list[list[str]]:
    """The overrides of every cell of an experiment, none twice."""
    if name not in names(conf):
        raise UserError(f"experiment={name} is not legal{near(name, names(conf))}")
    content = yaml.safe_load((conf / "experiment" / f"{name}.yaml").read_text())
    found = _of_table(content["table"], scale) if "table" in content else _of_lists(content, scale)
    return [list(cell) for cell in dict.fromkeys(found)]


def _of_table(name: str, scale: str) -> Iterator[tuple[str, ...]]:
    """The cells that the paper gives, of methods that are here."""
    table = load_published(name)
    for row, column in product(table.rows, table.columns):
        cell = table.cell(row.label, column.label)
        if cell.method and cell.note != "not given":
            yield table.overrides(row.label, column.label, scale)


def _of_lists(content: dict[str, Any], scale: str) -> Iterator[tuple[str, ...]]:
    rows, columns = (
        [text.split() for text in content.get(part, [""])] for part in ("rows", "columns")
    )
    common = content.get("common", "").split()
    for row, column in product(rows, columns):
        yield compose(common if scale == "paper" else without_world(common), column, row)


def on_top(cell: Sequence[str], overrides: Iterable[str]) -> list[str]:
    """A cell with the command line's own overrides, which win."""
    return list(compose(cell, overrides))
