"""From a command line to cells, and from cells to Hydra's launcher.

Hydra's own sweep composes cells one by one while it runs; here every cell is composed and checked before the first one starts, and a list of cells need not
be a product. Cells are then handed to whatever launcher Hydra is configured with (`hydra/launcher=joblib` runs them side by side).
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra._internal.callbacks import Callbacks
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_config_search_path
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins
from hydra.core.utils import JobStatus
from hydra.errors import HydraException
from hydra.types import HydraContext, RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from benchmarks.config import RunConfig, near, parse
from benchmarks.errors import UserError

CONF = Path(__file__).resolve().parent.parent / "conf"
Cell = tuple[list[str], RunConfig]


def expand(overrides: Sequence[str]) -> list[Cell]:
    """The cells of a command line in Hydra's order, each composed and checked. Raises on the first mistake, before anything runs."""
    parsed = OverridesParser.create().parse_overrides(list(overrides))
    cells = [list(cell) for batch in BasicSweeper.split_arguments(parsed, max_batch_size=None) for cell in batch]
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return [(cell, checked(_compose(cell))) for cell in cells]


def checked(raw: DictConfig) -> RunConfig:
    return parse(OmegaConf.to_container(raw, resolve=True, throw_on_missing=True))  # type: ignore[arg-type]


def _compose(cell: list[str]) -> DictConfig:
    try:
        return compose("config", cell)
    except (HydraException, OmegaConfBaseException) as error:
        raise UserError(_explain(cell) or str(error).strip().split("\n")[0]) from error


def _explain(cell: list[str]) -> str:
    """Hydra's composition errors in our words: the key, the value, what is legal. Looks for the first override that cannot be."""
    loader = GlobalHydra.instance().config_loader()
    groups: list[tuple[str, str]] = []
    keys: list[tuple[str, str]] = []
    for text in cell:
        key, _, value = text.lstrip("+~").partition("=")
        options = loader.get_group_options(key) if "." not in key else []
        if options and value not in options:
            return f"{key}={value} is not legal; legal: {', '.join(options)}"
        (groups if options or key.startswith("hydra") else keys).append((text, key))
    base = compose("config", [text for text, _ in groups])
    for _, key in keys:
        node: Any = base
        path = key.split(".")
        for depth, name in enumerate(path):
            if not isinstance(node, DictConfig):
                return f"{key} is not a key; {'.'.join(path[:depth])} is a value"
            if name not in node:
                return f"{key} is not a key{near(name, [str(k) for k in node])}"
            node = node._get_node(name)
    return ""


def launch(job: Callable[[DictConfig], Any], cells: Sequence[Cell], overrides: Sequence[str]) -> None:
    """Run `job` on every cell through the configured launcher. Raises what a job raised."""
    hydra = Hydra.create_main_hydra2("benchmarks.run", create_config_search_path(str(CONF)))
    of_hydra = [text for text in overrides if text.lstrip("+~").startswith("hydra")]
    config = hydra.compose_config("config", [*of_hydra, *_runs_dir(overrides)], RunMode.MULTIRUN, with_log_configuration=False)
    context = HydraContext(config_loader=hydra.config_loader, callbacks=Callbacks(config))
    launcher = Plugins.instance().instantiate_launcher(hydra_context=context, task_function=job, config=config)
    for result in launcher.launch([cell for cell, _ in cells], initial_job_idx=0):
        if result.status is JobStatus.FAILED:
            result.return_value  # noqa: B018 - the attribute raises the job's exception


def _runs_dir(overrides: Sequence[str]) -> list[str]:
    return [text for text in overrides if text.startswith("runs_dir=") and "," not in text]
