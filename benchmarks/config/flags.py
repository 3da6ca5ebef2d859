"""Hydra's command-line flags, checked for one-line errors."""

import re
from collections.abc import Sequence

from methods.core.errors import UserError, invalid, missing, suggest, unknown

MAX_KEY_LENGTH = 200
MAX_BRACKETS = 100  # Hydra's parser is recursive.
SHORT_FLAGS = {"-h": "--help", "-c": "--cfg", "-p": "--package", "-r": "--run", "-m": "--multirun"}
SHORT_FLAGS |= {"-i": "--info", "-sc": "--shell-completion", "-cp": "--config-path"}
SHORT_FLAGS |= {"-cn": "--config-name", "-cd": "--config-dir"}
FLAGS = (*SHORT_FLAGS.values(), "--hydra-help", "--version", "--resolve")
EXCLUSIVE_FLAGS = ("--run", "--multirun", "--cfg", "--info", "--shell-completion")
VALUES: dict[str, tuple[str, ...]]  # valid values of the flags that have one; empty: any
VALUES = dict.fromkeys(("--package", "--config-path", "--config-name", "--config-dir"), ())
VALUES["--cfg"] = ("job", "hydra", "all")
VALUES["--info"] = ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")


def arrange_arguments(arguments: Sequence[str]) -> list[str]:
    """Overrides first, then flags: Hydra does not accept overrides on both sides of a flag.

    Raises UserError for unknown flags, invalid values and flags that exclude each other.
    """
    overrides: list[str] = []
    flags: dict[str, str] = {}
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        if not argument.startswith("-"):
            overrides.append(argument)
            continue
        flag, equals, value = argument.partition("=")
        flag = SHORT_FLAGS.get(flag, flag)
        if flag not in FLAGS:
            raise unknown("option", flag, FLAGS)
        if equals and flag not in VALUES:
            raise UserError(f"invalid option {argument}: {flag} has no value")
        if flag in VALUES and not value and rest and "=" not in rest[0]:
            value = rest.pop(0)
        flags[flag] = value
    _check_flags(flags)
    check_overrides(overrides)
    if "--multirun" in flags:  # Hydra's default options may have no setting for the scale.
        overrides = [re.sub(r"^scale=(\w+)$", r"scale=choice(\1)", text) for text in overrides]
    return [*overrides, *(text for flag in flags.items() for text in flag if text)]


def check_overrides(overrides: Sequence[str]) -> None:
    """Raise UserError for overrides that Hydra cannot parse or would accept without an effect."""
    given: set[str] = set()
    for override in overrides:
        key, _, value = override.partition("=")
        limits = {
            "key=value": bool(key),
            f"a key of at most {MAX_KEY_LENGTH} characters": len(key) <= MAX_KEY_LENGTH,
            f"at most {MAX_BRACKETS} brackets": max(map(value.count, "[{(")) <= MAX_BRACKETS,
        }
        for expected, is_met in limits.items():
            if not is_met:
                raise UserError(f"cannot parse override {override!r}: expected {expected}")
        if key in given:
            raise UserError(f"cannot set {key} twice: give one value, or {key}=A,B with -m")
        if re.fullmatch(r"\s*{\s*}\s*", value) and not key.startswith("+"):
            raise invalid(key, value, f"{key}.KEY=VALUE for each key to change")
        given.add(key)


def _check_flags(flags: dict[str, str]) -> None:
    for flag, value in flags.items():
        choices = VALUES.get(flag, ())
        if flag in VALUES and not value and flag != "--info":
            raise missing(f"value of {flag}", f"{flag} {' | '.join(choices) or 'VALUE'}")
        if value and choices and value not in choices:
            raise UserError(f"invalid {flag} {value}: {suggest(value, choices)}")
    exclusive = [flag for flag in flags if flag in EXCLUSIVE_FLAGS]
    if len(exclusive) > 1:
        raise UserError(f"cannot combine {' and '.join(exclusive)}: use one of them")
    if "--resolve" in flags and not {"--cfg", "--help"} & flags.keys():
        raise UserError("cannot use --resolve alone: add --cfg job, --cfg hydra or --cfg all")
