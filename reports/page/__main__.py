"""HTML report of all runs in one self-contained file: python -m reports.page runs=runs"""

import math
import os
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.records.files import CONFIG_FILE, CURVE_FILE, RECORD_FILE
from benchmarks.terminal import command
from methods.core.errors import UserError
from reports.page.collect import build_page_data
from reports.page.unfinished import is_stale
from reports.page.write import write_page

DEFAULTS = {"runs": "runs", "out": "runs/page.html", "watch": "false", "every": "10"}
USAGE = """
python -m reports.page [runs=DIR,...] [out=FILE.html] [watch=true] [every=SECONDS]

Write the HTML report: leaderboard, learning curves, details of every run, and published tables
with reproduced results. The file is self-contained and needs neither network nor server.

  runs    directories with run records, separated by commas (default runs)
  out     output file (default runs/page.html)
  watch   true: rewrite the page when runs change, until Ctrl-C; open pages reload automatically
  every   seconds between two checks for changes (default 10)
"""
WATCHED_FILES = {RECORD_FILE, CURVE_FILE, CONFIG_FILE}
Snapshot = frozenset[tuple[str, int, int]]


def main(arguments: Sequence[str] | None = None) -> int:
    return command.run_command(arguments, USAGE, DEFAULTS, build)


def build(options: command.Options) -> int:
    """Write the page once, or whenever runs change."""
    directories = command.split_dirs(options["runs"])
    out = Path(options["out"])
    if out.suffix not in (".html", ".htm"):
        raise UserError(f"invalid out={out}: expected a file name that ends in .html")
    interval = _parse_seconds(options["every"])
    if command.require_choice("watch", options["watch"], ("true", "false")) == "true":
        return watch(directories, out, interval)
    update(directories, out)
    return 0


def watch(directories: Sequence[str], out: Path, interval: float) -> int:
    """Rewrite the page when runs change. On Ctrl-C, write it once more without automatic reload."""
    printed: set[str] = set()
    last: Snapshot | None = None
    try:
        while True:
            current = take_snapshot(directories)
            if current != last:
                update(directories, out, interval, printed)
                last = current
            time.sleep(interval)
    except KeyboardInterrupt:
        update(directories, out, 0, printed)
        print("stopped; the page is no longer updated")
    return 0


def take_snapshot(directories: Sequence[str]) -> Snapshot:
    """Sizes and times of the input files, and the directories of stale runs."""
    found = set()
    for directory in directories:
        for root, _, files in os.walk(directory):
            for name in WATCHED_FILES.intersection(files):
                try:
                    status = os.stat(os.path.join(root, name))
                except FileNotFoundError:
                    continue  # deleted after the directory was listed
                found.add((os.path.join(root, name), status.st_size, status.st_mtime_ns))
            if CONFIG_FILE in files and RECORD_FILE not in files and is_stale(Path(root)):
                found.add((root, 0, 0))
    return frozenset(found)


def update(
    directories: Sequence[str], out: Path, interval: float = 0, printed: set[str] | None = None
) -> None:
    """Write the page and print warnings that are not in `printed`.

    An open page reloads every `interval` seconds; 0 disables this.
    """
    printed = set() if printed is None else printed
    page = build_page_data(directories)
    command.print_warnings(line for line in page.warnings if line not in printed)
    printed.update(page.warnings)
    now = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    size = write_page(out, page.data | {"written": now, "every": interval})
    entries = [entry for setting in page.data["settings"] for entry in setting["entries"]]
    count = sum(len(entry["runs"]) for entry in entries)
    print(f"{count} run{'' if count == 1 else 's'}, {size / 1e6:.2f} MB -> {out}", flush=True)


def _parse_seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise UserError(f"invalid every={text}: expected a number of seconds above 0")
    return int(value) if value == int(value) else value


if __name__ == "__main__":
    sys.exit(main())
