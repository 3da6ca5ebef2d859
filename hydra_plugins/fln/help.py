"""Resolver `${fln.options:GROUP}` of the help text: the options of a config group."""

import textwrap
from functools import cache

from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

INDENT = 19  # column of the options in conf/hydra/help/fln.yaml


def list_options(group: str) -> str:
    """Options of a config group, separated by bars."""
    search_path = GlobalHydra.instance().config_loader().get_search_path().get_path()
    return _list_options(group, tuple(entry.path for entry in search_path))


@cache  # Hydra resolves the help text in every composition.
def _list_options(group: str, search_path: tuple[str, ...]) -> str:
    options = " | ".join(GlobalHydra.instance().config_loader().get_group_options(group))
    lines = textwrap.wrap(options, width=80, break_long_words=False)
    return ("\n" + " " * INDENT).join(lines)


OmegaConf.register_new_resolver("fln.options", list_options, replace=True)
