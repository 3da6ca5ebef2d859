"""Command layer of all commands except `benchmarks.run`.

Options are key=value arguments. User errors are printed in one line, with exit code 2.
"""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from benchmarks.interruption import InterruptedCommand
from methods.core.errors import UserError, cannot_use, invalid, suggest, unknown

Options = dict[str, str]


def run_command(
    arguments: Sequence[str] | None,
    usage: str,
    defaults: Mapping[str, str],
    function: Callable[[Options], int],
    accepts_run_filters: bool = False,
    words: str = "",
) -> int:
    """Call `function` with the parsed options and print user errors. Returns the exit code.

    With `accepts_run_filters`, keys of the run configuration (`noise.rho=0.4`) are options too.
    `words` is the key whose values, separated by commas, can be given as `VALUE VALUE`.
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if {"--help", "-h"} & set(arguments):
        print(usage.strip())
        return 0
    try:
        return function(parse_options(arguments, defaults, accepts_run_filters, words))
    except (UserError, OSError) as error:
        return print_error(error)
    except InterruptedCommand as error:
        print(f"interrupted: {error.consequence}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def print_error(error: UserError | OSError) -> int:
    """Print the error in one line. Returns the exit code."""
    shown = cannot_use(error) if isinstance(error, OSError) else error
    print(f"error: {shown}", file=sys.stderr)
    return 2


def parse_options(
    arguments: Sequence[str],
    defaults: Mapping[str, str],
    accepts_run_filters: bool = False,
    words: str = "",
) -> Options:
    """key=value arguments over their defaults."""
    options = dict(defaults)
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if not equals and words:
            key, value = words, ",".join(filter(None, [options[words], argument]))
        elif not equals:
            expected = f"expected key=value; {suggest(key, defaults)}"
            raise UserError(f"invalid argument {argument!r}: {expected}")
        if key not in defaults and not (accepts_run_filters and is_run_filter(key)):
            raise unknown("key", key, defaults)
        options[key] = value
    return options


def is_run_filter(key: str) -> bool:
    return "." in key or key in ("seed", "protocol", "hyperparameters")


def require_choice(key: str, value: str, choices: Sequence[str]) -> str:
    """Return the value if it is one of the choices."""
    if value not in choices:
        raise UserError(f"invalid {key}={value}: {suggest(value, choices)}")
    return value


def require_integers(key: str, value: str, low: int) -> list[int]:
    """Integers of at least `low`, separated by commas."""
    if not all(part.isdecimal() and int(part) >= low for part in value.split(",")):
        raise invalid(key, value, f"integers of at least {low}")
    return [int(part) for part in value.split(",")]


def require_integer(key: str, value: str, low: int) -> int:
    """An integer of at least `low`."""
    if not value.isdecimal() or int(value) < low:
        raise invalid(key, value, f"an integer of at least {low}")
    return int(value)


def choose_names(key: str, value: str, available: Sequence[str]) -> list[str]:
    """Some of the available names, separated by commas, or `all`."""
    names = [require_choice(key, name, ("all", *available)) for name in value.split(",")]
    return list(available) if "all" in names else list(dict.fromkeys(names))


def split_dirs(value: str, must_exist: bool = False) -> list[str]:
    """One or more directories, separated by commas."""
    found = [part for part in value.split(",") if part]
    if not found:
        raise invalid("runs", value, "one or more directories, separated by commas")
    for directory in found if must_exist else ():
        if not Path(directory).is_dir():
            raise UserError(f"cannot read {directory}: no such directory")
    return found


def print_warnings(lines: Iterable[str]) -> None:
    """Print each line once to the error stream."""
    for line in dict.fromkeys(lines):
        print(line, file=sys.stderr)
