"""Write the HTML report: leaderboard, learning curves, details of every run, published tables.

    python -m reports.page [runs=DIR,...] [out=FILE.html] [accuracy=NAME] [watch=true]
                           [every=SECONDS]

The file is self-contained and needs neither network nor server.

  runs      directories with run records, separated by commas (default runs)
  out       output file (default runs/page.html)
  accuracy  by which methods are sorted and compared with FedAvg: selected, last10 (default), best
            (oracle) or final
  watch     true: rewrite the page when runs change, until Ctrl-C; open pages reload automatically
  every     seconds between two checks for changes (default 10)
"""

import math
import os
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from benchmarks.records.files import CONFIG_FILE, CURVE_FILE, RECORD_FILE, atomic_write
from benchmarks.records.record import ACCURACIES
from benchmarks.terminal import command
from methods.core.errors import UserError
from reports.page.collect import build_page_data, is_stale

HERE = Path(__file__).parent
DEFAULTS = {"runs": "runs", "out": "runs/page.html", "accuracy": "last10"}
DEFAULTS |= {"watch": "false", "every": "10"}
WATCHED_FILES = {RECORD_FILE, CURVE_FILE, CONFIG_FILE}
Snapshot = frozenset[tuple[str, int, int]]


def main(arguments: Sequence[str] | None = None) -> int:
    return command.run_command(arguments, str(__doc__), DEFAULTS, build)


def build(options: command.Options) -> int:
    """Write the page; with `watch`, whenever runs change.

    After Ctrl-C it is written once more, without automatic reload.
    """
    directories = command.split_dirs(options["runs"])
    out = Path(options["out"])
    if out.suffix not in (".html", ".htm"):
        raise UserError(f"invalid out={out}: expected a file name that ends in .html")
    accuracy = command.require_choice("accuracy", options["accuracy"], tuple(ACCURACIES))
    interval = _parse_seconds(options["every"])
    is_watching = command.require_choice("watch", options["watch"], ("true", "false")) == "true"
    printed: set[str] = set()
    last: Snapshot | None = None
    with suppress(KeyboardInterrupt):
        while is_watching:
            current = take_snapshot(directories)
            if current != last:
                update(directories, out, accuracy, interval, printed)
                last = current
            time.sleep(interval)
    update(directories, out, accuracy, 0, printed)
    if is_watching:
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
    directories: Sequence[str], out: Path, accuracy: str, interval: float, printed: set[str]
) -> None:
    """Write the page and print warnings that are not in `printed`, which grows by them.

    An open page reloads every `interval` seconds; 0 disables this.
    """
    data, warnings = build_page_data(directories, accuracy)
    command.print_warnings(line for line in warnings if line not in printed)
    printed.update(warnings)
    now = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    content = render_html(data | {"written": now, "every": interval}).encode()
    atomic_write(out, content)  # A browser never loads part of a page.
    entries = [entry for setting in data["settings"] for entry in setting["entries"]]
    count = sum(len(entry["runs"]) for entry in entries)
    size = f"{len(content) / 1e6:.2f} MB"
    print(f"{count} run{'' if count == 1 else 's'}, {size} -> {out}", flush=True)


def render_html(data: Mapping[str, Any]) -> str:
    """Data, scripts and styles in one HTML file."""
    environment = Environment(loader=FileSystemLoader(HERE / "assets"), undefined=StrictUndefined)
    environment.globals["source"] = lambda path: (HERE / path).read_text(encoding="utf-8")
    # The filter `tojson` escapes <, > and &, so that no string can end the script element.
    environment.policies["json.dumps_kwargs"] = {
        "ensure_ascii": False, "separators": (",", ":"), "allow_nan": False
    }  # fmt: skip
    return environment.get_template("page.html").render(data=data)


def _parse_seconds(text: str) -> float:
    with suppress(ValueError):
        if 0 < float(text) < math.inf:
            return float(text)
    raise UserError(f"invalid every={text}: expected a number of seconds above 0")


if __name__ == "__main__":
    sys.exit(main())
