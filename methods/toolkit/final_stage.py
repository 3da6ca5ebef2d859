"""Gives the last stage of a method to another registered method (FedCorr, Sections 3.4 and 4.2, Fig. 4)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from torch import Tensor

from methods.core import registry
from methods.core.contract import Client, ClientPool, Payload, Reply, RoundContext, TaskSpec
from methods.fedavg import FedAvg

TASK = "handed_over_task"  # key of a payload that names the successor's task


def successors() -> list[str]:
    """Methods that can take over: one network, and rounds like FedAvg's."""
    return [
        info.name
        for info in registry.list_methods()
        if info.num_models == 1 and getattr(info.cls, "stage", None) is FedAvg.stage
    ]


class DelegatedClientPool:
    """The fleet as the successor sees it: its first model is the one it takes over, and its tasks travel under the name of one task of its host."""

    def __init__(
        self,
        fleet: ClientPool,
        models: Mapping[str, Tensor],
        host_task: Callable[[Client, Payload, RoundContext], Reply],
    ):
        self._fleet, self._models, self._host_task = fleet, list(models.values()), host_task
        self.num_clients, self.sizes = fleet.num_clients, fleet.sizes

    def ask(
        self,
        ids: Sequence[int],
        task: Callable[[Client, Payload, RoundContext], Reply],
        payload: Callable[[int, RoundContext], Payload],
        ctx: RoundContext,
        participation: bool = False,
    ) -> list[Reply]:
        def addressed(client_id: int, ctx: RoundContext) -> Payload:
            sent = payload(client_id, ctx)
            return Payload(sent.models, {**sent.shared, TASK: task.__name__})

        return self._fleet.ask(ids, self._host_task, addressed, ctx, participation)

    def initial_weights(self, index: int = 0) -> Tensor:
        return self._models[index].clone()

    def labels(self, client_id: int) -> Tensor:
        return self._fleet.labels(client_id)

    def state(self, client_id: int) -> Mapping[str, Any]:
        return self._fleet.state(client_id)


class FinalStageDelegation(FedAvg):
    """Base of methods whose stage `final_stage` may run under another method, `params.final`; with `fedavg` the method's own hooks do it.

    The successor is built with its registered defaults and set up when its stage begins: its model is the one it finds, its state is empty, its rounds count
    from 0. It lies in the private state as it is, so a checkpoint holds all of it. Subclasses call these hooks through `super()`.
    """

    final_stage: ClassVar[str]

    def final_rounds(self, spec: TaskSpec) -> tuple[int, int]:
        """The first round of the last stage, and its number of rounds. Follows from the parameters and `spec` alone: clients ask, too."""
        raise NotImplementedError

    # --- server -------------------------------------------------------------------------------------------------------------------------

    def check(self, spec: TaskSpec) -> None:
        super().check(spec)
        if self._hands_over and self.final_rounds(spec)[1]:
            try:
                self._build().check(self._final_spec(spec))
            except ValueError as error:
                raise ValueError(f"method.final={self.params.final}: {error}") from error

    def oracle(self) -> str:
        return self._build().oracle() if self._hands_over else ""

    def select(self, fleet: ClientPool, ctx: RoundContext) -> Sequence[int]:
        if not self.is_handed_over(ctx):
            return super().select(fleet, ctx)
        if "successor" not in self._private:
            successor = self._build()
            successor.setup(
                self._final_spec(self.spec), self._view(fleet), self._final_context(ctx)
            )
            self._private["successor"] = successor
        return self._private["successor"].select(self._view(fleet), self._final_context(ctx))

    def before_round(self, fleet: ClientPool, ids: Sequence[int], ctx: RoundContext) -> None:
        if self.is_handed_over(ctx):
            self._private["successor"].before_round(
                self._view(fleet), ids, self._final_context(ctx)
            )

    def payload(self, client_id: int, ctx: RoundContext) -> Payload:
        if self.is_handed_over(ctx):
            return self._private["successor"].payload(client_id, self._final_context(ctx))
        return super().payload(client_id, ctx)

    def aggregate(self, replies: Sequence[Reply], ctx: RoundContext) -> None:
        if not self.is_handed_over(ctx):
            return super().aggregate(replies, ctx)
        successor = self._private["successor"]
        successor.aggregate(replies, self._final_context(ctx))
        self.models = successor.models

    def after_round(self, fleet: ClientPool, ctx: RoundContext) -> None:
        if self.is_handed_over(ctx):
            self._private["successor"].after_round(self._view(fleet), self._final_context(ctx))

    def serving(self) -> Mapping[str, Tensor]:
        return (
            self._private["successor"].serving()
            if "successor" in self._private
            else super().serving()
        )

    # --- client -------------------------------------------------------------------------------------------------------------------------

    def local_update(self, client: Client, payload: Payload, ctx: RoundContext) -> Reply:
        if self.is_handed_over(ctx):
            return self._build().local_update(client, payload, self._final_context(ctx))
        return super().local_update(client, payload, ctx)

    def successor_task(self, client: Client, payload: Payload, ctx: RoundContext) -> Reply:
        """The client's end of `DelegatedClientPool.ask`; `ctx` is the successor's."""
        shared = dict(payload.shared)
        task = getattr(self._build(), shared.pop(TASK))
        return task(client, Payload(payload.models, shared), ctx)

    # --- both ---------------------------------------------------------------------------------------------------------------------------

    def is_handed_over(self, ctx: RoundContext) -> bool:
        return self._hands_over and ctx.stage == self.final_stage

    @property
    def _hands_over(self) -> bool:
        return self.params.final != FedAvg.name

    def _build(self) -> FedAvg:
        method = registry.build(self.params.final, {})
        assert isinstance(method, FedAvg)
        return method

    def _view(self, fleet: ClientPool) -> DelegatedClientPool:
        return DelegatedClientPool(fleet, self.models, self.successor_task)

    def _final_spec(self, spec: TaskSpec) -> TaskSpec:
        return replace(spec, participations=self.final_rounds(spec)[1] * spec.clients_per_round)

    def _final_context(self, ctx: RoundContext) -> RoundContext:
        return replace(
            ctx,
            round=ctx.round - self.final_rounds(ctx.spec)[0],
            stage="train",
            spec=self._final_spec(ctx.spec),
        )
