"""Hydra's command-line flags, checked for one-line errors."""

from collections.abc import Sequence

from methods.core.errors import UserError, missing, suggest, unknown

SHORT_FLAGS = {"-h": "--help", "-c": "--cfg", "-p": "--package", "-r": "--run", "-m": "--multirun"}
SHORT_FLAGS |= {"-i": "--info", "-sc": "--shell-completion", "-cp": "--config-path"}
SHORT_FLAGS |= {"-cn": "--config-name", "-cd": "--config-dir"}
FLAGS = (*SHORT_FLAGS.values(), "--hydra-help", "--version", "--resolve", "--experimental-rerun")
EXCLUSIVE_FLAGS = ("--run", "--multirun", "--cfg", "--info", "--shell-completion")
VALUES: dict[str, tuple[str, ...]]  # valid values of the flags that have one; empty: any
VALUES = dict.fromkeys(("--package", "--config-path", "--config-name", "--config-dir"), ())
VALUES |= {"--experimental-rerun": (), "--cfg": ("job", "hydra", "all")}
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
        flag, _, value = argument.partition("=")
        flag = SHORT_FLAGS.get(flag, flag)
        if flag not in FLAGS:
            raise unknown("option", flag, FLAGS)
        if flag in VALUES and not value and rest and "=" not in rest[0]:
            value = rest.pop(0)
        flags[flag] = value
    _check_flags(flags)
    for override in overrides:
        if override.startswith("="):
            raise UserError(f"cannot parse override {override!r}: expected key=value")
    return [*overrides, *(text for flag in flags.items() for text in flag if text)]


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
