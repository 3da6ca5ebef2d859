"""Search path: configuration of installed packages that add components to the suite."""

import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from hydra.core.config_search_path import ConfigSearchPath
from hydra.plugins.search_path_plugin import SearchPathPlugin

from methods.core.plugins import all_entry_points

SUITE_CONF = Path(__file__).resolve().parents[2] / "conf"


class InstalledPackages(SearchPathPlugin):
    """Adds the directory `conf` of every package with an entry point in a group `fln.*`."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Extend the search path of the suite; leave that of other applications unchanged."""
        main = [entry.path for entry in search_path.get_path() if entry.provider == "main"]
        if [Path(path.removeprefix("file://")) for path in main] != [SUITE_CONF]:
            return
        search_path.prepend(provider="protocols", path="fln://protocols")
        for directory in plugin_conf_dirs():
            search_path.append(provider=directory.parent.name, path=f"file://{directory}")


def plugin_conf_dirs() -> list[Path]:
    """Directories `conf` of the packages with an entry point in a group `fln.*`."""
    return _find_conf_dirs(tuple(sys.path))


@cache
def _find_conf_dirs(import_path: tuple[str, ...]) -> list[Path]:
    # Listing all entry points takes 10 ms, and every composition of a run needs them.
    packages = {entry.module.partition(".")[0] for entry in all_entry_points()}
    specs = filter(None, map(find_spec, sorted(packages)))
    roots = [root for spec in specs for root in spec.submodule_search_locations or []]
    return [conf for root in roots if (conf := Path(root) / "conf").is_dir()]
