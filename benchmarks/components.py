"""List noise models, partitions and models with their parameters.

    python -m benchmarks.components

Components of other installed packages are included. Methods and datasets have their own lists:
python -m benchmarks.methods, python -m benchmarks.data.
"""

import sys
from collections.abc import Sequence

from benchmarks.terminal.command import Options, run_command
from methods.core.params import describe_fields

TITLES = {"noise": "Noise models", "partition": "Partitions", "model": "Models"}


def main(arguments: Sequence[str] | None = None) -> int:
    return run_command(arguments, str(__doc__), {}, _run)


def _run(options: Options) -> int:
    from rich.table import Table

    from benchmarks.config.schema import component_registries
    from benchmarks.terminal.console import make_console

    for group, title in TITLES.items():
        table = Table(f"{group}=", "description", "parameters", title=title)
        for component in component_registries()[group].all():
            fields = describe_fields(component.params)
            params = "\n".join(f"{field.name}: {field.accepts}" for field in fields)
            table.add_row(component.name, component.summary, params)
        make_console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
