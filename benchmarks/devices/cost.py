"""Operations of training passes, counted by torch on tensors without data."""

from collections import defaultdict
from functools import lru_cache

import torch
from torch.nn.functional import cross_entropy
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import models
from benchmarks.config.schema import RunConfig
from benchmarks.config.sweep import expand
from benchmarks.data.registry import DATASETS
from methods.core import registry
from methods.core.errors import UserError

COUNTED_BATCH = 8
Row = tuple[str, str, int, float]  # model, method, runs, operations


def count_experiment(experiment: str, scale: str) -> list[Row]:
    """Operations of all runs of an experiment, by model and method."""
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for _, config in expand([f"experiment={experiment}", f"scale={scale}"]):
        model = f"{config.model.name} ({config.dataset.name})"
        found[model, config.method.name].append(count_run(config))
    return [(*key, len(values), sum(values)) for key, values in sorted(found.items())]


def count_run(config: RunConfig) -> float:
    """Operations of the training passes of a run: one pass per model, sample and local epoch."""
    info = DATASETS.get(config.dataset.name)
    if info.shape is None or info.num_classes is None or info.num_samples is None:
        raise UserError(f"cannot count operations: the size of {info.name} is not known")
    clients, budget = config.federation.num_clients, config.budget.participations
    samples = budget * config.train.local_epochs * info.num_samples[0] / clients
    num_models = registry.get(config.method.name).num_models
    share = getattr(config.method.params, "budget_fraction", 1.0)
    per_sample = count_pass(config.model.name, info.num_classes, info.shape, config.model.params)
    return float(samples * share * num_models * per_sample)


@lru_cache
def count_pass(
    model: str, num_classes: int, shape: tuple[int, int, int], params: object = None
) -> float:
    """Operations of one training pass, forward and backward, per sample."""
    with torch.device("meta"):
        module = models.build(model, num_classes, shape, params)
        images = torch.empty(COUNTED_BATCH, *shape)
        labels = torch.zeros(COUNTED_BATCH, dtype=torch.int64)
    with FlopCounterMode(display=False) as counter:
        torch.autograd.backward(cross_entropy(module(images), labels))
    return float(counter.get_total_flops() / COUNTED_BATCH)
