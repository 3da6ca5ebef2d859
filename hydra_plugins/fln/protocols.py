"""Config source `fln://`: the values of a protocol as configurations that Hydra composes.

`settings/HYPERPARAMETERS/PROTOCOL/METHOD/DATASET/SCALE` has the values of one run. The options of
the group `protocol` are empty: the file conf/protocol/NAME.yaml holds the values of all runs.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.global_hydra import GlobalHydra
from hydra.core.object_type import ObjectType
from hydra.plugins.config_source import ConfigResult, ConfigSource
from omegaconf import OmegaConf

if TYPE_CHECKING:
    from benchmarks.config.protocols import Selection


class ProtocolSource(ConfigSource):
    """Serves configurations made from protocol files and files of tuned hyperparameters."""

    @staticmethod
    def scheme() -> str:
        """Scheme of the search-path entry."""
        return "fln"

    def available(self) -> bool:
        """Always: without a protocol file, no option is listed."""
        return True

    def load_config(self, config_path: str) -> ConfigResult:
        """Configuration of a run, or the empty one of a protocol. Raises UserError."""
        selection = _parse(config_path)
        node = _node(selection) if selection else {}
        header: dict[str, str | None] = {"package": "_global_"}
        return ConfigResult(self.provider, self.full_path(), OmegaConf.create(node), header)

    def is_group(self, config_path: str) -> bool:
        """True for the group `protocol`."""
        return config_path.strip("/") == "protocol"

    def is_config(self, config_path: str) -> bool:
        """True for a protocol, and for the values of any run."""
        group, _, name = config_path.strip("/").removesuffix(".yaml").rpartition("/")
        return _parse(config_path) is not None or (group == "protocol" and name in _protocols())

    def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:
        """Names of protocols."""
        if config_path.strip("/") == "protocol" and results_filter is not ObjectType.GROUP:
            return _protocols()
        return ["protocol"] if not config_path and results_filter is not ObjectType.CONFIG else []


# Modules of the suite are imported in functions because Hydra imports its plugins in every command.
def _parse(config_path: str) -> "Selection | None":
    from benchmarks.config.protocols import Selection

    group, *names = config_path.strip("/").removesuffix(".yaml").split("/")
    is_run = group == "settings" and len(names) == len(Selection._fields)
    return Selection(*names) if is_run else None


def _node(selection: "Selection") -> dict[str, Any]:
    """Values as nested sections; selected options of config groups as a defaults list."""
    from benchmarks.config.protocols import GROUPS, resolve

    overrides = resolve(selection, _conf_dirs())
    defaults = [{f"/{group}": overrides.pop(group)} for group in GROUPS if group in overrides]
    node: dict[str, Any] = {"defaults": [*defaults, "_self_"]}
    for key, value in overrides.items():
        *sections, name = key.split(".")
        target = node
        for section in sections:
            target = target.setdefault(section, {})
        target[name] = value
    return node


def _protocols() -> "list[str]":
    from benchmarks.config.protocols import protocol_names

    return protocol_names(_conf_dirs())


def _conf_dirs() -> "list[Path]":
    """Directories of the search path: of the suite, of installed packages, of --config-dir."""
    search_path = GlobalHydra.instance().config_loader().get_search_path().get_path()
    paths = [str(entry.path).removeprefix("file://") for entry in search_path]
    return [Path(path) for path in paths if "://" not in path]
