"""`python -m benchmarks.data` lists the data sets; `python -m benchmarks.data fetch cifar10 mnist` makes them ready."""

import argparse
import sys
from pathlib import Path

from benchmarks.data.catalogue import default_data_dir, find, names, status
from benchmarks.data.fetch import SOURCES, fetch
from methods.core.errors import UserError


def main(arguments: list[str] | None = None) -> int:
    """Run the command; 0 if everything worked, 2 after a mistake of the user, which is shown as one line."""
    data_folder = argparse.ArgumentParser(add_help=False)
    data_folder.add_argument(
        "--data-dir",
        type=Path,
        default=argparse.SUPPRESS,
        help=f"where the data sets live (now: {default_data_dir()})",
    )
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.data", description=__doc__, parents=[data_folder]
    )
    commands = parser.add_subparsers(dest="command", title="commands")
    commands.add_parser(
        "list", parents=[data_folder], help="the data sets and their state (default)"
    )
    fetcher = commands.add_parser(
        "fetch", parents=[data_folder], help="bring data sets into the data folder"
    )
    fetcher.add_argument("names", nargs="+", metavar="name", help=", ".join(names()))
    fetcher.add_argument("--source", choices=SOURCES, default="auto")
    options = parser.parse_args(arguments)
    data_dir: Path = getattr(options, "data_dir", default_data_dir()).expanduser().absolute()
    if options.command == "fetch":
        return _fetch_all(options.names, data_dir, options.source)
    _print_table(data_dir)
    return 0


def _fetch_all(wanted: list[str], data_dir: Path, source: str) -> int:
    code = 0
    try:
        for name in wanted:
            find(name)
    except UserError as error:
        return _complain(error)
    for name in wanted:
        try:
            fetch(name, data_dir, source, say=lambda line: print(line, flush=True))
        except UserError as error:
            code = _complain(error)
    return code


def _complain(error: UserError) -> int:
    print(f"error: {error}", file=sys.stderr)
    return 2


def _print_table(data_dir: Path) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(
        title=f"Data sets in {data_dir}",
        title_justify="left",
        caption_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    table.caption = "`python -m benchmarks.data fetch <name>` fetches a data set, or says in full what to put where"
    for heading in ("name", "images", "classes", "shape"):
        table.add_column(heading, no_wrap=True)
    for heading in ("status", "comes from"):
        table.add_column(heading, overflow="fold")
    for name in names():
        entry = find(name)
        images = f"{entry.num_train} + {entry.num_test}" if entry.num_train else "any"
        shape = "x".join(map(str, entry.shape)) if entry.shape else "any"
        table.add_row(
            name,
            images,
            str(entry.num_classes or "any"),
            shape,
            status(name, data_dir),
            entry.origin,
        )
    Console().print(table)


if __name__ == "__main__":
    sys.exit(main())
