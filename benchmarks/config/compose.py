"""Composition of run configurations with Hydra: from overrides to a validated RunConfig.

    config = compose_run(["method=fedcorr", "dataset=cifar10", "noise.rho=0.8"])

Runs that select the same options of all config groups share one composition by Hydra. Values such
as `noise.rho=0.8` are set afterwards, in the way that Hydra sets them. Runs that differ only in
their seed also share the copy with these values, as copies take most of the time. Compositions are
kept for the lifetime of the process: later changes of the YAML files have no effect.
"""

import copy
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NamedTuple

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, OverrideType
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from benchmarks.config import experiments
from benchmarks.config.explain import explain_error
from benchmarks.config.schema import RunConfig, parse_config
from methods.core.errors import missing, unknown


def compose_run(overrides: Iterable[str]) -> RunConfig:
    """Compose and validate one run. Raises UserError."""
    with hydra_session():
        return Composer().compose_run(overrides)


class _Known(NamedTuple):
    """What was read from the configuration directories of one search path."""

    groups: frozenset[str]
    compositions: dict[tuple[str, ...], DictConfig]
    copies: dict[tuple[str, ...], DictConfig]  # with values; the seed is that of the last run
    checked: set[tuple[str, ...]]  # overrides with an existing option after `hydra.searchpath=`


_KNOWN: dict[tuple[str, ...], _Known] = {}


class Composer:
    """Composes runs within an initialized Hydra, which may be that of a running command."""

    def __init__(self, config_name: str = "config", shared: Sequence[str] = ()):
        self._config_name = config_name
        self._shared = tuple(shared)  # overrides of every run, such as hydra.searchpath=[...]
        loader = GlobalHydra.instance().config_loader()
        search_path = (str(entry.path) for entry in loader.get_search_path().get_path())
        key = (config_name, *search_path)
        if key not in _KNOWN:
            _KNOWN[key] = _Known(frozenset(loader.list_groups("")), {}, {}, set())
        self._groups, self._compositions, self._copies, self._checked = _KNOWN[key]

    def compose_run(self, overrides: Iterable[str]) -> RunConfig:
        return validate_config(self.compose(overrides))

    def compose(self, overrides: Iterable[str]) -> DictConfig:
        """Compose a configuration without validation. To be read before the next composition."""
        try:
            with errors_for_missing_sources():
                return self._compose([parse_override(text) for text in overrides])
        except (HydraException, OmegaConfBaseException, UserWarning) as error:
            raise explain_error(error) from error

    def _compose(self, overrides: Sequence[Override]) -> DictConfig:
        values = [override for override in overrides if self._is_value(override)]
        if any(override.type is not OverrideType.CHANGE for override in overrides):
            values = []  # the effect of +key, ++key and ~key depends on the order
        texts = [str(override.input_line) for override in overrides]
        choices = [
            text for text, entry in zip(texts, overrides, strict=True) if entry not in values
        ]
        composition = self._compose_choices((*self._shared, *choices))
        seeds = [entry.value() for entry in values if entry.key_or_group == "seed"]
        key = (*self._shared, *(text for text in texts if not text.startswith("seed=")))
        if key not in self._copies:
            config = copy.deepcopy(composition)
            for override in values:
                OmegaConf.update(config, override.key_or_group, override.value(), merge=True)
            self._copies[key] = config
        config = self._copies[key]
        if "seed" in composition:  # not after ~seed
            config.seed = [composition.seed, *seeds][-1]
        return config

    def _is_value(self, override: Override) -> bool:
        """True for an override that selects no option of a config group."""
        return (
            override.package is None
            and not override.is_sweep_override()
            and not override.is_hydra_override()
            and override.key_or_group not in self._groups
        )

    def _compose_choices(self, choices: tuple[str, ...]) -> DictConfig:
        """The composition that all runs with these choices share. Copy it before a change."""
        if choices not in self._compositions:
            paths = [text for text in choices if text.startswith("hydra.searchpath=")]
            new = {text: (*paths, text) for text in choices if (*paths, text) not in self._checked}
            check_options([*paths, *new])
            self._compositions[choices] = compose(self._config_name, list(choices))
            self._checked.update(new.values())
        return self._compositions[choices]


def validate_config(config: DictConfig) -> RunConfig:
    """Validate a composed configuration. Raises UserError."""
    try:
        raw: Any = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        raise explain_error(error) from error
    marked = raw.get("oracle")
    if isinstance(marked, list):
        raw["oracle"] = [*dict.fromkeys([*marked, *keys_set_from_noise(config)])]
    return parse_config(raw)


def keys_set_from_noise(config: DictConfig) -> list[str]:
    """Keys of method and training that refer to the noise, such as `${noise.epsilon}`."""
    found: list[str] = []
    for section in ("method", "train"):
        values: Any = config.get(section)
        if isinstance(values, DictConfig):
            values = OmegaConf.to_container(values, resolve=False)
            found += [f"{section}.{key}" for key in values if "${noise." in str(values[key])]
    return found


@lru_cache(maxsize=4096)
def parse_override(text: str) -> Override:
    """One override. Sweeps over the experiments of a paper repeat them often."""
    return OverridesParser.create().parse_overrides([text])[0]


def check_options(overrides: Iterable[str]) -> None:
    """Raise UserError for unknown options. Hydra accepts any option of an optional config group."""
    loader = GlobalHydra.instance().config_loader()
    overrides = list(overrides)
    search_path = [text for text in overrides if text.startswith("hydra.searchpath=")]
    for override in map(parse_override, overrides):
        group = override.key_or_group
        if "." in group:
            continue
        options = loader.get_group_options(group, overrides=search_path)
        if options and override.is_delete():
            raise missing(group)
        if options and override.get_value_string() not in options:
            raise unknown(group, override.get_value_string(), options)


@contextmanager
def keep_hydra_state() -> Iterator[None]:
    """Start without an initialized Hydra; restore the previous one at the end."""
    previous = GlobalHydra.instance().hydra
    GlobalHydra.instance().clear()
    try:
        yield
    finally:
        GlobalHydra.instance().hydra = previous


@contextmanager
def hydra_session() -> Iterator[None]:
    """Initialize Hydra with the suite's configuration directory for a while."""
    with (
        keep_hydra_state(),
        initialize_config_dir(str(experiments.CONF), job_name="run", version_base="1.3"),
    ):
        yield


@contextmanager
def errors_for_missing_sources() -> Iterator[None]:
    """Turn Hydra's warning about a missing directory of `hydra.searchpath` into an error."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="provider=.* is not available")
        yield
