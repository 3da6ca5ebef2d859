"""Resolver `${fln.options:GROUP}` of the help text: the options of a config group."""

from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf


def list_options(group: str) -> str:
    """Options of a config group, separated by bars."""
    return " | ".join(GlobalHydra.instance().config_loader().get_group_options(group))


OmegaConf.register_new_resolver("fln.options", list_options, replace=True)
