"""The command: `python -m benchmarks.speed [parts=...] [repeats=...] [out=...]`."""

import json
import os
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported, as benchmarks.run does

from methods.core.errors import UserError

HELP = """How fast the suite is, against hand-written loops that do the same work with nothing around it.

  python -m benchmarks.speed [parts=NAME,...] [repeats=N] [out=FOLDER]

  parts    {parts}; default all of them, some 35 minutes
  repeats  turns that every candidate takes (default 7); one more, to warm up, is not counted
  out      where speed.json, speed.png and growth.png go (default reports/reproductions/speed)

Candidates take turns, and ratios are taken within a turn, so that a noisy machine disturbs both sides alike; still, leave it alone meanwhile.
Parts measured before and not asked for now are kept in speed.json. Needs CIFAR-10: python -m benchmarks.data fetch cifar10
"""
DEFAULTS = {"parts": "all", "repeats": "7", "out": "reports/reproductions/speed"}


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        return measure(given)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped; the parts that were finished are kept", file=sys.stderr)
        return 130


def measure(arguments: Sequence[str]) -> int:
    from rich.console import Console

    from benchmarks.records.files import write_json
    from benchmarks.records.record import versions
    from benchmarks.speed.show import draw, tables
    from benchmarks.speed.suites import PARTS

    if {"-h", "--help"} & set(arguments):
        print(HELP.format(parts=", ".join(PARTS)))
        return 0
    options = dict(DEFAULTS)
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if not equals or key not in DEFAULTS:
            raise UserError(
                f"{argument!r} is not legal; legal: {', '.join(f'{name}=' for name in DEFAULTS)}"
            )
        options[key] = value
    if not options["repeats"].isdecimal() or int(options["repeats"]) < 1:
        raise UserError(
            f"repeats={options['repeats']} is not legal; legal: a whole number, at least 1"
        )
    chosen = list(PARTS) if options["parts"] == "all" else options["parts"].split(",")
    for name in chosen:
        if name not in PARTS:
            raise UserError(f"parts={name} is not legal; legal: all, {', '.join(PARTS)}")
    folder = Path(options["out"]).expanduser()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "speed.json"
    results = json.loads(path.read_text())["parts"] if path.exists() else {}
    console = Console()

    def say(name: str, text: str) -> None:
        console.print(f"{name}: {text}", highlight=False)

    for name in chosen:
        started = time.monotonic()
        results[name] = PARTS[name](int(options["repeats"]), partial(say, name))
        say(name, f"took {time.monotonic() - started:.0f} s")
        ordered = {part: results[part] for part in PARTS if part in results}
        write_json(
            path, {"cores": len(os.sched_getaffinity(0)), "versions": versions(), "parts": ordered}
        )
    for table in tables({part: results[part] for part in chosen}):
        console.print(table)
    for picture in draw(results, folder):
        console.print(f"drawn: {picture}")
    console.print(f"written: {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
