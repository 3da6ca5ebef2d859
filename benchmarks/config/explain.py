"""One-line messages for errors of Hydra and OmegaConf."""

import re

import yaml
from hydra.errors import MissingConfigException, OverrideParseException
from omegaconf import DictConfig
from omegaconf import errors as omegaconf_errors
from omegaconf.errors import OmegaConfBaseException

from methods.core.errors import UserError, first_line, missing, missing_package, unknown

SUBMITIT_LAUNCHERS = ("submitit_slurm", "submitit_local")


def explain_error(error: BaseException) -> UserError:
    """User error with key, value and expected values, from the attributes of an error."""
    if isinstance(error, UserError):
        return error
    if isinstance(error, OverrideParseException):
        return UserError(
            f"cannot parse override {error.override!r}: expected key=value;"
            " quote values that contain any of , = : [ ] { } ( )"
        )
    if isinstance(error, MissingConfigException):
        return _explain_missing_config(error)
    if is_missing_source(error) or "hydra.searchpath" in str(error):
        return UserError(
            f"{first_line(error).rstrip('.')}: expected hydra.searchpath=[SOURCE, ...]"
            " with existing file://DIRECTORY or pkg://PACKAGE"
        )
    if found := re.match(r"(?:Ambiguous value for argument|Sweep parameters) '(.*?)'", str(error)):
        fix = "add -m for a sweep, or give one value"
        return UserError(f"cannot start one run with {found[1]}: {fix}")
    cause = _find_cause(error)
    if isinstance(cause, omegaconf_errors.MissingMandatoryValue):
        return missing(str(cause.full_key))
    if isinstance(cause, omegaconf_errors.InterpolationResolutionError):
        return UserError(f"cannot resolve {cause.full_key}: {first_line(cause)}")
    if isinstance(cause, (omegaconf_errors.ConfigKeyError, omegaconf_errors.ConfigAttributeError)):
        key, parent = str(cause.full_key), cause.parent_node
        if isinstance(parent, DictConfig):
            return unknown("key", key, [str(name) for name in parent])
        return UserError(f"unknown key {key}")
    if isinstance(cause, yaml.YAMLError):
        return UserError(f"cannot read a configuration file: {cause}")
    reason = "" if cause is error else f": {first_line(cause)}"
    return UserError(f"{first_line(error).rstrip(':')}{reason}")


def is_missing_source(error: BaseException) -> bool:
    """True for Hydra's warning about a directory of `hydra.searchpath`, raised as an error."""
    return isinstance(error, UserWarning) and str(error).startswith("provider=")


def _find_cause(error: BaseException) -> BaseException:
    """The error of OmegaConf that an error of Hydra wraps."""
    while not isinstance(error, OmegaConfBaseException) and error.__cause__ is not None:
        error = error.__cause__
    return error


def _explain_missing_config(error: MissingConfigException) -> UserError:
    group, _, name = str(error.missing_cfg_file).rpartition("/")
    if group == "hydra/launcher" and name in SUBMITIT_LAUNCHERS:
        return missing_package("hydra-submitit-launcher", extra="slurm")
    if error.options:
        return unknown(group, name, error.options)
    return UserError(str(error).partition("\n\n")[0])  # The search path follows.
