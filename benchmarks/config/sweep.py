"""Runs of a sweep: expansion of a command line such as `method=fedavg,fedcorr experiment=NAME`."""

from collections.abc import Sequence
from itertools import product
from typing import Any, NamedTuple

from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import OmegaConf

from benchmarks.config.compose import Composer, hydra_session
from benchmarks.config.experiments import merge_overrides, parse_experiment
from benchmarks.config.explain import explain_error
from benchmarks.config.schema import RunConfig
from benchmarks.records.references import REFERENCE_METHOD
from methods.core.errors import UserError, invalid


class PlannedRun(NamedTuple):
    """A run of a sweep: its overrides and its validated configuration."""

    overrides: list[str]
    config: RunConfig


def expand(overrides: Sequence[str]) -> list[PlannedRun]:
    """Runs of a command line, composed and validated. Raises UserError."""
    with hydra_session():
        return plan_runs(overrides, Composer())


def plan_runs(overrides: Sequence[str], composer: Composer) -> list[PlannedRun]:
    """Runs of a command line in the order of its values, without duplicates."""
    runs: dict[str, PlannedRun] = {}
    for values in expand_sweeps(overrides):
        for run in _expand_experiment(values, composer):
            config = composer.compose_run(run)
            runs.setdefault(config.run_id, PlannedRun(run, config))
    if not runs:
        raise UserError("cannot start a sweep without runs: the experiment skips all of them")
    return add_references([*runs.values()], composer)


def add_references(runs: Sequence[PlannedRun], composer: Composer) -> list[PlannedRun]:
    """The runs, followed by the reference runs of those with `references=true`."""
    planned = {run.config.run_id: run for run in runs}
    method = f"method={REFERENCE_METHOD}"
    shared = dict.fromkeys(
        merge_overrides(overrides, [method]) for overrides, config in runs if config.references
    )
    for overrides, labels in product(shared, ("given", "clean")):
        run = list(merge_overrides(overrides, [f"labels={labels}"]))
        reference = composer.compose_run(run)
        planned.setdefault(reference.run_id, PlannedRun(run, reference))
    return list(planned.values())


def expand_sweeps(overrides: Sequence[str]) -> list[list[str]]:
    """All combinations of `key=a,b`, `range(...)`, `glob(...)` and `choice(...)`."""
    parser = OverridesParser.create(config_loader=GlobalHydra.instance().config_loader())
    values: dict[str, list[str]] = {}
    try:
        for override in parser.parse_overrides(list(overrides)):
            key, sweep = override.get_key_element(), str(override.input_line).partition("=")[2]
            if not override.is_sweep_override():
                values[key] = [str(override.input_line)]
            elif override.is_discrete_sweep():
                values[key] = [f"{key}={value}" for value in override.sweep_string_iterator()]
                if not values[key]:
                    raise invalid(key, sweep, "at least one value")
            else:
                raise invalid(key, sweep, "discrete values, such as 1,2 or range(1,3)")
    except HydraException as error:
        raise explain_error(error) from error
    return [list(run) for run in product(*values.values())]


def _expand_experiment(overrides: list[str], composer: Composer) -> list[list[str]]:
    """The runs of `experiment=NAME`, over which the other overrides take precedence."""
    given = dict(text.split("=", 1) for text in overrides if "=" in text)
    if "experiment" not in given:
        return [overrides]
    name = given["experiment"]
    hydra_overrides = [text for text in overrides if text.startswith("hydra")]
    config = composer.compose([f"experiment={name}", *hydra_overrides])
    content: Any = OmegaConf.to_container(config.experiment, resolve=False)
    experiment = parse_experiment(name, content)
    rest = [text for text in overrides if not text.startswith("experiment=")]
    return [
        list(merge_overrides([*run, f"experiment_name={name}"], rest))
        for run in experiment.run_overrides(given.get("scale", config.scale))
    ]
