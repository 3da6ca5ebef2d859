"""List the methods, or show one.

    python -m benchmarks.methods             table of all methods
    python -m benchmarks.methods NAME        one method: paper, stages, deviations, parameters
    python -m benchmarks.methods new NAME    files of a new method, as `fln new-method NAME`

Options:
  method=NAME    the method to show, also given as NAME

Columns: number of models that a client receives, and data that a client keeps between rounds.
"""

import inspect
import sys
from collections.abc import Sequence

from rich import box
from rich.table import Table

from benchmarks import new_method
from benchmarks.terminal.command import Options, run_command
from benchmarks.terminal.console import make_console
from methods.core.params import describe_fields
from methods.core.registry import METHODS, MethodInfo


def make_table() -> Table:
    table = Table("method", "family", "summary", "paper", "models", "client state", title="Methods")
    for info in METHODS.all():
        models, state = str(info.num_models), info.cls.client_state_doc
        summary = info.summary.rstrip(".")
        table.add_row(info.name, info.family, summary, info.paper, models, state)
    return table


def main(arguments: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if arguments[:1] == ["new"]:
        return new_method.main(arguments[1:])
    return run_command(arguments, str(__doc__), {"method": ""}, _run, words="method")


def _run(options: Options) -> int:
    if options["method"]:
        _print_method(METHODS.get(options["method"]))
    else:
        make_console().print(make_table())
    return 0


def _print_method(info: MethodInfo) -> None:
    """Print the docstring and the parameters of a method."""
    console = make_console()
    console.print(f"{info.name} ({info.family})\n")
    console.print(inspect.getdoc(info.cls))
    facts = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    facts.add_row("paper", info.paper)
    facts.add_row("models", str(info.num_models))
    facts.add_row("client state", info.cls.client_state_doc)
    facts.add_row("source", info.cls.__module__)
    console.print("", facts)
    fields = describe_fields(info.params)
    table = Table("key", "default", "accepts", "meaning", box=box.SIMPLE_HEAD)
    for name, default, accepts, meaning in fields:
        table.add_row(f"method.{name}", default, accepts, meaning)
    console.print(table if fields else "\nno parameters")


if __name__ == "__main__":
    sys.exit(main())
