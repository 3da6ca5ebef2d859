"""Helpers to call the hooks of a method without a whole run."""

from collections.abc import Mapping
from typing import Any

import pytest
from torch import Generator, Tensor

from benchmarks.loop.runner import Run
from methods.core import registry
from methods.core.contract import Method
from methods.core.task import Batch, Client, LocalTask, Payload, Reply, RoundContext

METHODS = registry.list_methods()
every_method = pytest.mark.parametrize("info", METHODS, ids=[info.name for info in METHODS])


def make_task(
    client: Client,
    models: Tensor | Mapping[str, Tensor],
    ctx: RoundContext,
    shared: Mapping[str, Any] | None = None,
) -> LocalTask:
    """A client task. A single parameter vector is the model named "model"."""
    named = models if isinstance(models, Mapping) else {"model": models}
    return LocalTask(client, Payload(named, shared or {}), ctx)


def run_local_update(
    method: Method,
    client: Client,
    models: Tensor | Mapping[str, Tensor],
    ctx: RoundContext,
    shared: Mapping[str, Any] | None = None,
) -> Reply:
    """The reply of one local update."""
    return method.local_update(make_task(client, models, ctx, shared))


def first_batch(client: Client, size: int, order: Generator) -> Batch:
    """The first batch of an epoch without augmentation."""
    ((_, batches),) = client.epochs([None], size, "plain", order, Generator())
    return next(batches)


def train_cohort(run: Run) -> list[Reply]:
    """The replies of the cohort of the current round."""
    method, pool = run.method, run.pool
    ctx = run.context(str(method.stage(run.round)))
    cohort = method.select_clients(pool, ctx)
    return pool.run_task(cohort, method.local_update, method.payload, ctx, participation=True)
