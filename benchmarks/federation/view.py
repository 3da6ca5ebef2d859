"""The client pool as server-side code of a method sees it."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from benchmarks.federation.internals import hide, internals_of
from benchmarks.federation.pool import ClientPool
from methods.core.contract import PayloadFunction, TaskFunction
from methods.core.task import Reply, RoundContext


class PoolView:
    """Implements `methods.core.contract.ClientPool`. Shares no memory with the client pool."""

    __slots__ = ("__weakref__",)

    def __init__(self, pool: ClientPool):
        hide(self, pool)

    @property
    def num_clients(self) -> int:
        return _pool(self).num_clients

    @property
    def client_sizes(self) -> np.ndarray:
        return _pool(self).client_sizes.copy()

    def run_task(
        self,
        ids: Sequence[int],
        task: TaskFunction,
        payload: PayloadFunction,
        ctx: RoundContext,
        participation: bool = False,
    ) -> list[Reply]:
        return _pool(self).run_task(ids, task, payload, ctx, participation)

    def initial_weights(self, index: int = 0) -> Tensor:
        return _pool(self).initial_weights(index)

    def labels(self, client_id: int) -> Tensor:
        return _pool(self).labels(client_id).clone()

    def state(self, client_id: int) -> Mapping[str, Any]:
        return copy.deepcopy(_pool(self).state(client_id))


def _pool(view: PoolView) -> ClientPool:
    pool: ClientPool = internals_of(view)
    return pool
