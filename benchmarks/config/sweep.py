"""From a command line to cells, and from cells to Hydra's launcher.

Hydra's own sweep composes cells one by one while it runs; here every cell is composed and checked before the first one starts, and a list of cells need not
be a product. Cells are then handed to whatever launcher Hydra is configured with (`hydra/launcher=joblib` runs them side by side). Entries of other packages
are found where `hydra.searchpath=[pkg://their.conf]` or `[file:///their/conf]` says.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hydra import compose, version
from hydra._internal.callbacks import Callbacks
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import IConfigRepository
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_config_search_path
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins
from hydra.core.utils import JobStatus
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from hydra.types import HydraContext, RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from benchmarks.config import experiments
from benchmarks.config.schema import RunConfig, near, parse
from methods.core.errors import UserError

DEFAULT_SCALE = "laptop"  # conf/config.yaml's
CONF = Path(__file__).resolve().parent.parent.parent / "conf"
Cell = tuple[list[str], RunConfig]


@contextmanager
def _hydra() -> Iterator[Hydra]:
    """Hydra has one instance per process; whoever had set it up finds it as it was."""
    version.setbase("1.3")
    place = GlobalHydra.instance()
    before, place.hydra = place.hydra, None
    try:
        yield Hydra.create_main_hydra2("benchmarks.run", create_config_search_path(str(CONF)))
    finally:
        place.hydra = before


def expand(overrides: Sequence[str]) -> list[Cell]:
    """The cells of a command line in Hydra's order, each composed and checked. Raises on the first mistake, before anything runs."""
    try:
        parsed = OverridesParser.create().parse_overrides(list(overrides))
        swept = [
            list(cell)
            for batch in BasicSweeper.split_arguments(parsed, max_batch_size=None)
            for cell in batch
        ]
    except OverrideParseException as error:
        raise UserError(
            f"{error.override} cannot be read; legal: key=value, with quotes around a text that holds any of , = : [ ] {{ }} ( )"
        ) from error
    except HydraException as error:
        raise UserError(
            f"{' '.join(sweeps(overrides))} is not legal ({_first_line(error)}); legal: key=a,b or key=range(a,b)"
        ) from error
    with _hydra() as hydra:
        cells = [
            (cell, checked(_compose(hydra, cell))) for values in swept for cell in _listed(values)
        ]
    return list({config.run_id: (cell, config) for cell, config in reversed(cells)}.values())[::-1]


def _listed(values: list[str]) -> list[list[str]]:
    """The cells of `experiment=NAME`, each with the command line's other values on top; without it, the one cell that the values are."""
    given = dict(text.split("=", 1) for text in values)
    if "experiment" not in given:
        return [values]
    name = given["experiment"]
    rest = [text for text in values if not text.startswith("experiment=")]
    listed = experiments.load_experiment(name).run_overrides(given.get("scale", DEFAULT_SCALE))
    return [list(experiments.merge_overrides([*run, f"part_of={name}"], rest)) for run in listed]


def sweeps(overrides: Sequence[str]) -> list[str]:
    """The overrides that give a key several values."""
    parsed = OverridesParser.create().parse_overrides(list(overrides))
    return [str(override.input_line) for override in parsed if override.is_sweep_override()]


def checked(raw: DictConfig) -> RunConfig:
    try:
        plain = OmegaConf.to_container(raw, resolve=True, throw_on_missing=True)
    except MissingMandatoryValue as error:
        room = str(error.full_key).partition(".")[0]
        raise UserError(
            f"{error.full_key} is missing; legal: {error.full_key}=VALUE, which {room}={raw[room].get('name')} needs"
        ) from error
    except OmegaConfBaseException as error:
        raise UserError(
            f"{error.full_key}: {_first_line(error)}; legal: a value, or ${{...}} around a key that exists"
        ) from error
    return parse(plain)  # type: ignore[arg-type]


def _compose(hydra: Hydra, cell: list[str]) -> DictConfig:
    loader = hydra.config_loader
    assert isinstance(loader, ConfigLoaderImpl)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="provider=.* is not available")
        try:
            _, repository = loader._parse_overrides_and_create_caching_repo("config", cell)
        except (UserWarning, HydraException) as error:
            raise UserError(
                f"{str(error).rstrip('.')}; legal: hydra.searchpath=[PLACE], each file://FOLDER or pkg://PACKAGE and there"
            ) from error
        _check_choices(cell, repository)
        try:
            return compose("config", cell)
        except (HydraException, OmegaConfBaseException) as error:
            raise UserError(_explain(cell, repository, error) or _first_line(error)) from error


def _check_choices(cell: list[str], repository: IConfigRepository) -> None:
    """Hydra passes over an unknown entry of an optional group, and names no legal ones for the others."""
    for key, value in _groups(cell, repository).values():
        options = repository.get_group_options(key)
        if value not in options:
            raise UserError(f"{key}={value} is not legal; legal: {', '.join(options) or 'none'}")


def _groups(cell: list[str], repository: IConfigRepository) -> dict[str, tuple[str, str]]:
    """The overrides that choose an entry of a group: text -> group, entry."""
    pairs = {text: text.lstrip("+").split("=", 1) for text in cell if not text.startswith("~")}
    return {
        text: (key, value)
        for text, (key, value) in pairs.items()
        if "." not in key and repository.group_exists(key)
    }


def _explain(cell: list[str], repository: IConfigRepository, error: Exception) -> str:
    """Hydra's composition errors in our words: the key, the value, what is legal. Looks for the first override that cannot be."""
    if isinstance(error, MissingConfigException) and (
        missing := str(error.missing_cfg_file)
    ).startswith("scale_dataset/"):
        scale, _, dataset = missing.removeprefix("scale_dataset/").partition("_")
        pairs = [option.partition("_") for option in repository.get_group_options("scale_dataset")]
        legal = [f"scale={name}" for name, _, owner in pairs if owner == dataset]
        return f"scale={scale} has no settings for dataset={dataset}; legal: {', '.join(legal) or 'none'}"
    groups = _groups(cell, repository)
    try:
        base = compose("config", list(groups), return_hydra_config=True)
    except (HydraException, OmegaConfBaseException):
        return ""
    for key in (text.lstrip("+~").partition("=")[0] for text in cell if text not in groups):
        node: Any = base
        path = key.split(".")
        for depth, name in enumerate(path):
            if not isinstance(node, DictConfig):
                return f"{key} is not a key; {'.'.join(path[:depth])} is a value"
            if name not in node:
                return f"{key} is not a key{near(name, [str(k) for k in node])}"
            node = node._get_node(name)
    return ""


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0]


def launch(
    job: Callable[[DictConfig], Any], cells: Sequence[Cell], overrides: Sequence[str]
) -> None:
    """Run `job` on every cell through the configured launcher. Raises what a job raised."""
    of_hydra = [text for text in overrides if _is_of_hydra(text)]
    with _hydra() as hydra:
        config = hydra.compose_config(
            "config",
            [*of_hydra, *_runs_dir(overrides)],
            RunMode.MULTIRUN,
            with_log_configuration=False,
        )
        context = HydraContext(config_loader=hydra.config_loader, callbacks=Callbacks(config))
        launcher = Plugins.instance().instantiate_launcher(
            hydra_context=context, task_function=job, config=config
        )
        # The launcher adds Hydra's own overrides to each cell, and a group may be chosen once only.
        jobs = [[text for text in cell if not _is_of_hydra(text)] for cell, _ in cells]
        for result in launcher.launch(jobs, initial_job_idx=0):
            if result.status is JobStatus.FAILED:
                raise result._return_value  # what the job raised; the public attribute would print a line of its own first


def _is_of_hydra(text: str) -> bool:
    return text.lstrip("+~").startswith(("hydra.", "hydra/"))


def _runs_dir(overrides: Sequence[str]) -> list[str]:
    return [text for text in overrides if text.startswith("runs_dir=") and "," not in text]
