"""Checks before a run starts, so that an invalid run stops a sweep before its first run."""

import os
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import nn

from benchmarks import data, models
from benchmarks.config.labels import run_label
from benchmarks.config.schema import RunConfig
from benchmarks.config.sweep import PlannedRun
from benchmarks.federation.devices import first_device
from benchmarks.scenario.scenario import build_scenario
from methods.core import registry
from methods.core.contract import Method
from methods.core.errors import UserError, invalid
from methods.core.flat_model import FlatModel
from methods.core.task import TaskSpec


def module_builder(config: RunConfig, dataset: data.Dataset) -> Callable[[], nn.Module]:
    """Function that creates the model of the configuration."""
    name, params = config.model.name, config.model.params
    return partial(models.build, name, dataset.num_classes, dataset.shape, params)


def build_method(config: RunConfig, dataset: data.Dataset) -> tuple[Method, TaskSpec]:
    """Build the method and its TaskSpec. Raises UserError if the task is not supported."""
    method = registry.build(config.method.name, vars(config.method.params))
    build_module = module_builder(config, dataset)
    _require_memory(config, build_module)
    model = FlatModel(build_module())
    spec = TaskSpec(
        dataset=config.dataset.name,
        shape=dataset.shape,
        num_classes=dataset.num_classes,
        num_clients=config.federation.num_clients,
        clients_per_round=config.federation.clients_per_round,
        participations=config.budget.participations,
        feature_dim=int(model.module.feature_dim),  # type: ignore[arg-type]
        num_trainable=model.num_trainable,
    )
    method.validate(spec)
    if config.executor.cuda_graph and not registry.get(config.method.name).static_step:
        raise invalid("executor.cuda_graph", True, f"false with method={config.method.name}")
    return method, spec


def _require_memory(config: RunConfig, build_module: Callable[[], nn.Module]) -> None:
    """Raise UserError if the weights alone need more memory than the machine has."""
    with torch.device("meta"):
        size = sum(weight.numel() * weight.element_size() for weight in build_module().parameters())
    available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if size > available:
        needed = f"weights of {size / 1e9:.0f} GB, the machine has {available / 1e9:.0f} GB"
        raise UserError(f"cannot build model={config.model.name}: {needed}")


def validate_runs(runs: Sequence[PlannedRun]) -> None:
    """Load every distinct dataset, build every distinct scenario and method, and train nothing."""
    datasets: dict[str, data.Dataset] = {}
    checked: set[str] = set()
    for overrides, config in runs:
        try:
            _validate(config, datasets, checked)
        except UserError as error:
            suffix = f" (run {run_label(overrides)})" if len(runs) > 1 else ""
            raise UserError(f"{error}{suffix}") from error


def _validate(config: RunConfig, datasets: dict[str, data.Dataset], checked: set[str]) -> None:
    key = repr(config.dataset)
    if key not in datasets:
        datasets[key] = data.load(config.dataset.name, config.data_dir, config.dataset.params)
    dataset = datasets[key]
    components = (config.dataset, config.model, config.partition, config.noise)
    scenario_key = repr((*components, config.federation, config.seed, config.labels))
    if scenario_key not in checked:
        models.validate_model(config.model.name, dataset.shape, config.model.params)
        build_scenario(config, dataset)
        checked.add(scenario_key)
    build_method(config, dataset)
    first_device(config.executor)
