"""What the report commands share: plain key=value arguments, and every mistake in one line with exit code 2."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches

from methods.core.errors import UserError

Options = dict[str, str]


def run(
    arguments: Sequence[str] | None,
    usage: str,
    defaults: Mapping[str, str],
    answer: Callable[[Options], int],
    free: bool = False,
) -> int:
    """Parse, answer, and turn a mistake of the user into one line. Returns the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if {"--help", "-h"} & set(given):
        print(usage.strip())
        return 0
    try:
        return answer(parse(given, defaults, free))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"error: {error.filename}: {error.strerror}", file=sys.stderr)
        return 2


def parse(arguments: Sequence[str], defaults: Mapping[str, str], free: bool = False) -> Options:
    """key=value arguments over their defaults. With `free`, dotted keys pass too, to be checked by the command."""
    values = dict(defaults)
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if not equals:
            raise UserError(f"{argument!r} is not key=value; legal keys: {', '.join(defaults)}")
        if key not in defaults and not (free and is_free(key)):
            near = get_close_matches(key, defaults, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise UserError(f"{key} is not a key{hint}; legal: {', '.join(defaults)}")
        values[key] = value
    return values


def is_free(key: str) -> bool:
    """A key of the runs' configuration rather than of the command."""
    return "." in key or key in ("seed",)


def choice(key: str, value: str, legal: Sequence[str]) -> str:
    """The value, if it is a legal one."""
    if value not in legal:
        near = get_close_matches(value, legal, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise UserError(f"{key}={value} is not legal{hint}; legal: {', '.join(legal)}")
    return value


def folders(value: str) -> list[str]:
    """One or more folders, separated by commas."""
    found = [part for part in value.split(",") if part]
    if not found:
        raise UserError("runs= is empty; legal: one or more folders, separated by commas")
    return found


def warn(lines: Iterable[str]) -> None:
    """Lines about what was left out, to the error stream, each once."""
    for line in dict.fromkeys(lines):
        print(line, file=sys.stderr)
