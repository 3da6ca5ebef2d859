"""List the methods.

    python -m benchmarks.methods             table of all methods
    python -m benchmarks.methods new NAME    files of a new method, as `fln new-method NAME`

Columns: number of models that a client receives, and data that a client keeps between rounds.
"""

import sys

from rich.table import Table

from benchmarks import new_method
from benchmarks.terminal.command import Options, run_command
from benchmarks.terminal.console import make_console
from methods.core.registry import list_methods


def make_table() -> Table:
    """One row per registered method."""
    columns = ("method", "family", "summary", "paper", "models", "client state")
    table = Table(*columns, title="Methods")
    for info in list_methods():
        table.add_row(
            info.name,
            info.family,
            info.summary.rstrip("."),
            info.paper,
            str(info.num_models),
            info.cls.client_state_doc,
        )
    return table


def main(arguments: list[str] | None = None) -> int:
    """Run the command. Returns the exit code."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if arguments[:1] == ["new"]:
        return new_method.main(arguments[1:])
    return run_command(arguments, str(__doc__), {}, _run)


def _run(options: Options) -> int:
    make_console().print(make_table())
    return 0


if __name__ == "__main__":
    sys.exit(main())
