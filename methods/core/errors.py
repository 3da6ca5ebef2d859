"""User errors. Every message is one line that names the key, the value and what is expected.

invalid noise.rho=1.4: expected a number in [0, 1]
unknown key method.momentun: did you mean method.mu? available: mu, form
missing dataset.path: set dataset.path=FILE.npz
"""

import re
from collections.abc import Iterable
from difflib import get_close_matches
from importlib.util import find_spec
from typing import Any

from methods.core.renames import RENAMED_KEYS


class UserError(ValueError):
    """An error in the user's input. Commands print its message and exit with code 2."""

    def __init__(self, message: str):
        """One line. Of a very long word, such as a value of the command line, the start is kept."""
        super().__init__(re.sub(r"(\S{200})\S{100,}", r"\1...", " ".join(message.splitlines())))


def invalid(key: str, value: Any, expected: str) -> UserError:
    """A value that its key does not accept."""
    return UserError(f"invalid {key}={format_value(value)}: expected {expected}")


def unknown(what: str, name: str, available: Iterable[str]) -> UserError:
    """A name that does not exist, such as `unknown("key", "train.lrr", ...)`."""
    return UserError(f"unknown {what} {name}: {suggest(name, available)}")


def missing(key: str, fix: str = "") -> UserError:
    """A required key without a value."""
    return UserError(f"missing {key}: set {fix or f'{key}=VALUE'}")


def missing_package(name: str, extra: str) -> UserError:
    """A package of an extra that is not installed."""
    return UserError(f"missing package {name}: run pip install 'federated-label-noise[{extra}]'")


def cannot_use(error: OSError) -> UserError:
    """A file or directory that cannot be read or written."""
    reason = error.strerror or str(error) or type(error).__name__
    return UserError(f"cannot use {error.filename}: {reason}" if error.filename else reason)


def require_package(name: str, extra: str) -> None:
    """Raise UserError if a package of an extra is not installed."""
    if find_spec(name) is None:
        raise missing_package(name, extra)


def suggest(name: str, available: Iterable[str]) -> str:
    """The closest name and all available names, as the end of an error message."""
    names = list(available)
    close = [new for new in names if new == RENAMED_KEYS.get(f"config.{name}")]
    close = close or get_close_matches(name.rpartition(".")[2], names)
    close = close or get_close_matches(name, names)
    listed = f"available: {', '.join(names) or 'none'}"
    return f"did you mean {close[0]}? {listed}" if close else listed


def format_value(value: Any) -> str:
    """A value as it is typed on the command line."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return repr(value)


def first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
