"""Checks before a run starts, so that an invalid run stops a sweep before its first run."""

import os
import resource
import sys
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import nn

from benchmarks import data, models
from benchmarks.config.labels import run_label
from benchmarks.config.schema import RunConfig
from benchmarks.config.sweep import PlannedRun
from benchmarks.federation.devices import first_device
from benchmarks.records.estimates import format_duration, planned_work
from benchmarks.scenario.scenario import build_scenario
from methods.core import registry
from methods.core.contract import Method
from methods.core.errors import UserError, invalid
from methods.core.flat_model import FlatModel
from methods.core.task import TaskSpec

# Of one sample in training, for the smallest models on a fast machine.
MIN_SECONDS_PER_SAMPLE = 1e-6
MAX_HOURS, MAX_HOURS_WITHOUT_WARNING = 24 * 365, 12
# The model of the server, that of a worker, its gradient and the momentum.
NUM_WEIGHT_VECTORS = 4


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
    """Raise UserError if the vectors of weights alone need more memory than there is."""
    with torch.device("meta"):
        size = sum(weight.numel() * weight.element_size() for weight in build_module().parameters())
    available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    available = available if limit == resource.RLIM_INFINITY else min(limit, available)
    if NUM_WEIGHT_VECTORS * size > available:
        needed = f"{NUM_WEIGHT_VECTORS} vectors of weights with {size / 1e9:.3g} GB each"
        has = f"memory for {available / 1e9:.3g} GB"
        raise UserError(f"cannot train model={config.model.name}: {needed}, but {has}")


def _limit_duration(config: RunConfig, num_samples: int) -> None:
    """Raise UserError for a run of more than a year, and warn about a run of many hours."""
    hours = planned_work(config) * num_samples * MIN_SECONDS_PER_SAMPLE / 3600
    if hours < MAX_HOURS_WITHOUT_WARNING:
        return
    time = f"{config.run_id} takes at least {format_duration(3600 * hours)}"
    fix = "lower budget.participations, train.local_epochs or the epochs of the method"
    if hours > MAX_HOURS:
        raise UserError(f"cannot start an endless run: {time}; {fix}")
    print(f"warning: {time}", file=sys.stderr)


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
    components = (config.dataset, config.partition, config.noise)
    scenario_key = repr((*components, config.federation, config.seed, config.labels))
    if scenario_key not in checked:
        build_scenario(config, dataset)
        checked.add(scenario_key)
    _limit_duration(config, len(dataset.train))
    build_method(config, dataset)
    first_device(config.executor)
