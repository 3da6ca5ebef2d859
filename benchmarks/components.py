"""List noise models, partitions and models with their parameters.

    python -m benchmarks.components

Components of other installed packages are included. Methods and datasets have their own lists:
python -m benchmarks.methods, python -m benchmarks.data.
"""

import sys
import typing
from collections.abc import Sequence
from typing import Any

from benchmarks.terminal.command import Options, run_command
from methods.core.params import describe, field_names
from methods.core.plugins import Registry


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Returns the exit code."""
    return run_command(arguments, str(__doc__), {}, _run)


def _run(options: Options) -> int:
    from rich.table import Table

    from benchmarks.models import MODELS
    from benchmarks.terminal.console import make_console
    from noise import NOISE_MODELS
    from partition import PARTITIONERS

    groups: dict[str, tuple[str, Registry[Any]]] = {
        "noise": ("Noise models", NOISE_MODELS),
        "partition": ("Partitions", PARTITIONERS),
        "model": ("Models", MODELS),
    }
    for group, (title, registry) in groups.items():
        table = Table(f"{group}=", "description", "parameters", title=title)
        for component in registry.all():
            table.add_row(component.name, component.summary, _format_params(component.params))
        make_console().print(table)
    return 0


def _format_params(params: type) -> str:
    hints = typing.get_type_hints(params, include_extras=True)
    return "\n".join(f"{name}: {describe(hints[name])}" for name in field_names(params))


if __name__ == "__main__":
    sys.exit(main())
