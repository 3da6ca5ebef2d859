"""One self-contained HTML page of runs: python -m reports.page runs=runs out=runs/page.html"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.terminal import command
from methods.core.errors import UserError
from reports.page.collect import page
from reports.page.unfinished import quiet
from reports.page.write import write

DEFAULTS = {"runs": "runs", "out": "runs/page.html", "watch": "false", "every": "10"}
USAGE = """
python -m reports.page [runs=FOLDER,...] [out=FILE.html] [watch=true] [every=SECONDS]

Writes one HTML file to be opened from disk: leaderboard, curves, every cell's detail, the papers' tables with ours
beside theirs. It needs no network and no server.

  runs    folders with records of runs, separated by commas (default runs)
  out     the file to write (default runs/page.html)
  watch   true: write it again whenever a run has gone on, until Ctrl-C; an open page then loads itself again
  every   seconds between two looks (default 10)
"""
WATCHED = ("record.json", "curve.csv", "config.yaml")
Stamp = frozenset[tuple[str, int, int]]


def main(arguments: Sequence[str] | None = None) -> int:
    return command.run_command(arguments, USAGE, DEFAULTS, build)


def build(options: dict[str, str]) -> int:
    """Write the page once, or again and again."""
    folders = command.split_dirs(options["runs"])
    out = Path(options["out"])
    if out.suffix not in (".html", ".htm"):
        raise UserError(f"out={out} is not legal; legal: a file that ends in .html")
    every = _seconds(options["every"])
    if command.require_choice("watch", options["watch"], ("true", "false")) == "true":
        return watch(folders, out, every)
    _write(folders, out, 0, set())
    return 0


def watch(folders: Sequence[str], out: Path, every: float) -> int:
    """Write the page whenever something changed, until the user stops it; then once more, no longer live."""
    told: set[str] = set()
    seen: Stamp | None = None
    try:
        while True:
            now = stamp(folders)
            if now != seen:
                _write(folders, out, every, told)
                seen = now
            time.sleep(every)
    except KeyboardInterrupt:
        _write(folders, out, 0, told)
        print("stopped; the page stays as it is")
    return 0


def stamp(folders: Sequence[str]) -> Stamp:
    """What there is to be read, by size and time, and which runs fell silent."""
    found = set()
    for folder in folders:
        for root, _, files in os.walk(folder):
            for name in set(files) & set(WATCHED):
                try:
                    state = os.stat(os.path.join(root, name))
                except FileNotFoundError:
                    continue  # gone since the folder was listed
                found.add((os.path.join(root, name), state.st_size, state.st_mtime_ns))
            if "config.yaml" in files and "record.json" not in files and quiet(Path(root)):
                found.add((root, 0, 0))
    return frozenset(found)


def _write(folders: Sequence[str], out: Path, every: float, told: set[str]) -> None:
    """`every` is 0 for a page that does not load itself again. Warnings in `told` are not repeated."""
    made = page(folders)
    command.print_warnings(line for line in made.warnings if line not in told)
    told.update(made.warnings)
    size = write(
        out, made.data | {"written": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC", "every": every}
    )
    runs = sum(len(cell["runs"]) for setting in made.data["settings"] for cell in setting["cells"])
    print(f"{runs} run{'' if runs == 1 else 's'}, {size / 1e6:.2f} MB -> {out}", flush=True)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise UserError(f"every={text} is not legal; legal: seconds, more than 0")
    return int(value) if value == int(value) else value


if __name__ == "__main__":
    sys.exit(main())
