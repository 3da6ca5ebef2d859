"""List the methods.

    python -m benchmarks.methods             table of all methods
    python -m benchmarks.methods new NAME    files of a new method, as `fln new-method NAME`

Columns: number of models that a client receives, data that a client keeps between rounds, and
parameters that may be chosen with knowledge of the clean labels (oracle).
"""

import sys

from rich.table import Table

from benchmarks import new_method
from benchmarks.terminal.command import Options, run_command
from benchmarks.terminal.console import make_console
from methods.core.params import field_names
from methods.core.registry import list_methods

ORACLE_SUFFIX = "_is_oracle"


def make_table() -> Table:
    """One row per registered method."""
    columns = ("method", "family", "summary", "paper", "models", "client state", "oracle")
    table = Table(*columns, title="Methods")
    for info in list_methods():
        flags = [name for name in field_names(info.params) if name.endswith(ORACLE_SUFFIX)]
        table.add_row(
            info.name,
            info.family,
            info.summary.rstrip("."),
            info.paper,
            str(info.num_models),
            info.cls.client_state_doc,
            ", ".join(flag.removesuffix(ORACLE_SUFFIX) for flag in flags) or "none",
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
