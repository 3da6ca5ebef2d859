"""Named lists of cells: `experiment=fedcorr_table2` runs the cells of a published table or figure.

A file conf/experiment/NAME.yaml holds either `table: NAME`, whose layout in reports/published says which configuration each printed cell stands for, or its own
`common`, `rows` and `columns`: lists of overrides whose pairs (rho with tau, p with alpha) stay together. Every row meets every column.
"""

from collections.abc import Iterable, Sequence
from itertools import product
from pathlib import Path

import yaml

from benchmarks.config import near
from benchmarks.errors import UserError
from reports.published import load as load_published

# What a scale decides. At another scale than the paper's, a table's common values for these give way; those that tell its rows or columns apart stay.
WORLD = ("model", "federation", "budget", "train")


def names(conf: Path) -> list[str]:
    return sorted(path.stem for path in (conf / "experiment").glob("*.yaml"))


def cells(name: str, scale: str, conf: Path) -> list[list[str]]:
    """The overrides of every cell of an experiment, none twice."""
    if name not in names(conf):
        raise UserError(f"experiment={name} is not legal{near(name, names(conf))}")
    content = yaml.safe_load((conf / "experiment" / f"{name}.yaml").read_text())
    if "table" in content:
        table = load_published(content["table"])
        common = list(table.common)
        rows, columns = ([list(heading.overrides) for heading in headings] for headings in (table.rows, table.columns))
    else:
        common = content.get("common", "").split()
        rows, columns = ([text.split() for text in content.get(part, [""])] for part in ("rows", "columns"))
    if scale != "paper":
        common = [text for text in common if text.split("=")[0].split(".")[0] not in WORLD]
    found = (_merge(common, column, row) for row, column in product(rows, columns))
    return list(map(list, dict.fromkeys(tuple(cell) for cell in found if any(text.startswith("method=") for text in cell))))


def on_top(cell: Sequence[str], overrides: Iterable[str]) -> list[str]:
    """A cell with the command line's own overrides, which win."""
    return _merge(cell, overrides)


def _merge(*layers: Iterable[str]) -> list[str]:
    """Later layers win; choosing a group anew drops what earlier ones set inside it."""
    merged: dict[str, str] = {}
    for text in (text for layer in layers for text in layer):
        key = text.partition("=")[0]
        merged = {old: kept for old, kept in merged.items() if old != key and not old.startswith(f"{key}.")}
        merged[key] = text
    return list(merged.values())
