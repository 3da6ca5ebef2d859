"""Command `fln NAME ...`: the commands of the suite and of installed packages.

Commands are entry points of the group `fln.commands`: functions that take the list of arguments and
return the exit code. The module of a command is imported when the command is called.
"""

import ast
import sys
from collections.abc import Sequence
from configparser import ConfigParser
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path

from methods.core.errors import unknown

GROUP = "fln.commands"
SETUP = Path(__file__).resolve().parents[1] / "setup.cfg"  # of a clone that is not installed


def main(arguments: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    commands = find_commands()
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_help(commands))
        return 0
    name, *rest = arguments
    if name not in commands:
        print(f"error: {unknown('command', name, commands)}", file=sys.stderr)
        return 2
    return int(commands[name].load()(rest))


def find_commands() -> dict[str, EntryPoint]:
    """Commands by name. A clone that is not installed has those of its setup.cfg."""
    found = {entry.name: entry for entry in entry_points(group=GROUP)}
    if "run" not in found and SETUP.is_file():
        declared = ConfigParser(delimiters="=")
        declared.read(SETUP, encoding="utf-8")
        lines = declared["options.entry_points"][GROUP].strip().splitlines()
        pairs = [line.split(" = ") for line in lines]
        found |= {name: EntryPoint(name, value, GROUP) for name, value in pairs}
    return dict(sorted(found.items()))


def _help(commands: dict[str, EntryPoint]) -> str:
    width = max(map(len, commands), default=0)
    lines = [f"  fln {name:<{width}}  {_summary(entry)}" for name, entry in commands.items()]
    end = "`fln COMMAND --help` shows the options of a command."
    return "\n".join(["Usage: fln COMMAND [key=value ...]", "", *lines, "", end])


def _summary(command: EntryPoint) -> str:
    """First line of the module's docstring, read without importing the module."""
    spec = find_spec(command.module)
    source = Path(spec.origin).read_text(encoding="utf-8") if spec and spec.origin else ""
    doc = ast.get_docstring(ast.parse(source)) or ""
    return doc.partition("\n")[0].partition(": python -m")[0].rstrip(".")


if __name__ == "__main__":
    sys.exit(main())
