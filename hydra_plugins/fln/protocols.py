"""Config source `fln://`: the values of a protocol as configurations that Hydra composes.

`settings/HYPERPARAMETERS/PROTOCOL/METHOD/DATASET/SCALE` has the values of one run. The options of
the group `protocol` are empty: the file conf/protocol/NAME.yaml holds the values of all runs.
"""

from pathlib import Path

from hydra.core.global_hydra import GlobalHydra
from hydra.core.object_type import ObjectType
from hydra.plugins.config_source import ConfigResult, ConfigSource
from omegaconf import DictConfig, OmegaConf

from benchmarks.config.protocols import GROUPS, Selection, protocol_names, resolve


class ProtocolSource(ConfigSource):
    """Serves configurations made from protocol files and files of tuned hyperparameters."""

    @staticmethod
    def scheme() -> str:
        return "fln"

    def available(self) -> bool:
        """Always: without a protocol file, no option is listed."""
        return True

    def load_config(self, config_path: str) -> ConfigResult:
        """Configuration of a run, or the empty one of a protocol. Raises UserError."""
        selection = _parse(config_path)
        node = _node(selection) if selection else DictConfig({})
        return ConfigResult(self.provider, self.full_path(), node, {"package": "_global_"})

    def is_group(self, config_path: str) -> bool:
        return config_path.strip("/") == "protocol"

    def is_config(self, config_path: str) -> bool:
        """True for a protocol, and for the values of any run."""
        group, _, name = config_path.strip("/").removesuffix(".yaml").rpartition("/")
        return _parse(config_path) is not None or (group == "protocol" and name in _protocols())

    def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:
        if config_path.strip("/") == "protocol" and results_filter is not ObjectType.GROUP:
            return _protocols()
        return ["protocol"] if not config_path and results_filter is not ObjectType.CONFIG else []


def _parse(config_path: str) -> Selection | None:
    """The choices in the path of a run's values; None for another path."""
    group, *names = config_path.strip("/").removesuffix(".yaml").split("/")
    is_run = group == "settings" and len(names) == len(Selection._fields)
    return Selection(*names) if is_run else None


def _node(selection: Selection) -> DictConfig:
    """Values as nested sections; selected options of config groups as a defaults list."""
    overrides = resolve(selection, _conf_dirs())
    defaults = [{f"/{group}": overrides.pop(group)} for group in GROUPS if group in overrides]
    node = OmegaConf.create({"defaults": [*defaults, "_self_"]})
    for key, value in overrides.items():
        OmegaConf.update(node, key, value)
    return node


def _protocols() -> list[str]:
    return protocol_names(_conf_dirs())


def _conf_dirs() -> list[Path]:
    """Directories of the search path: of the suite, of installed packages, of --config-dir."""
    search_path = GlobalHydra.instance().config_loader().get_search_path().get_path()
    paths = [str(entry.path).removeprefix("file://") for entry in search_path]
    return [Path(path) for path in paths if "://" not in path]
