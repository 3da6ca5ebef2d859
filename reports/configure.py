"""The configuration that a published cell stands for, composed by Hydra from conf/ as a run's would be."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from benchmarks.config.experiments import SCALE_DEPENDENT_SECTIONS
from reports.frame.load import flatten

CONF = Path(__file__).resolve().parent.parent / "conf"
SCIENCE = ("dataset", "method", "noise", "partition")  # what a cell is


class NotConfigured(Exception):
    """These overrides do not compose; the message is one line."""


def configured(overrides: Iterable[str], scale: str) -> dict[str, Any]:
    """What can change a number, under dotted keys. Raises NotConfigured."""
    given = tuple(overrides)
    check_choices(given)
    return dict(_configured(CONF, given, scale))


@cache
def _configured(folder: Path, given: tuple[str, ...], scale: str) -> dict[str, Any]:
    groups = tuple(override for override in given if "." not in override.partition("=")[0])
    config = _chosen(folder, (*groups, f"scale={scale}")).copy()
    for override in OverridesParser.create().parse_overrides(
        [text for text in given if text not in groups]
    ):
        try:
            OmegaConf.update(config, override.key_or_group, override.value())
        except OmegaConfBaseException as error:
            raise NotConfigured(f"{override.input_line}: {_first_line(error)}") from error
    # A network chosen on the command line is merged over the scale's own; parameters of the latter do not belong to it.
    legal = OmegaConf.load(folder / "model" / f"{config.model.name}.yaml")
    config.model = {key: value for key, value in config.model.items() if key in legal}
    try:
        plain = {
            name: OmegaConf.to_container(config[name], resolve=True)
            for name in (*SCIENCE, *SCALE_DEPENDENT_SECTIONS)
        }
    except (OmegaConfBaseException, ValueError) as error:
        raise NotConfigured(_first_line(error)) from error
    flat = flatten(plain)
    flat.pop("train.compile", None)  # how passes are computed; no part of a record's configuration
    return flat


def check_choices(overrides: Iterable[str]) -> None:
    """Raises NotConfigured where a chosen entry does not exist: quick, composes nothing."""
    for group, _, name in (override.partition("=") for override in overrides):
        if "." not in group and not (CONF / group / f"{name}.yaml").is_file():
            raise NotConfigured(f"{group}={name}: {CONF.name}/{group} has no {name}.yaml")


@cache
def _chosen(folder: Path, groups: tuple[str, ...]) -> DictConfig:
    """Composing takes long and depends on the chosen groups alone; single values are set afterwards, as Hydra does."""
    with _hydra(folder):
        try:
            return compose("config", list(groups))
        except (HydraException, OmegaConfBaseException) as error:
            raise NotConfigured(_first_line(error)) from error


@contextmanager
def _hydra(folder: Path) -> Iterator[None]:
    """Hydra has one instance per process; whoever had set it up finds it as it was."""
    before = GlobalHydra.instance().hydra
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(str(folder), version_base="1.3"):
            yield
    finally:
        GlobalHydra.instance().hydra = before


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0].removeprefix("In 'config': ")
