"""Delegation of the final stage to another method (FedCorr, Sections 3.4 and 4.2, Fig. 4)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from torch import Tensor

from methods.core import registry
from methods.core.contract import ClientPool, Method, PayloadFunction, ServerState, TaskFunction
from methods.core.errors import UserError
from methods.core.task import LocalTask, Payload, Reply, RoundContext, TaskSpec
from methods.fedavg import FedAvg

DELEGATED_TASK_KEY = "delegated_task"  # key of a payload: name of the delegate's client task


def final_stage_methods() -> list[str]:
    """Names of the methods that can run a final stage: one model, and the stages of FedAvg."""
    methods = [info for info in registry.list_methods() if info.num_models == 1]
    return [info.name for info in methods if info.cls.stage is FedAvg.stage]


class DelegatedClientPool:
    """Client pool of the delegate: starts from the host's models, runs tasks through the host."""

    def __init__(self, pool: ClientPool, models: Mapping[str, Tensor], host_task: TaskFunction):
        self._pool, self._models, self._host_task = pool, list(models.values()), host_task
        self.num_clients, self.client_sizes = pool.num_clients, pool.client_sizes
        self.labels, self.state = pool.labels, pool.state

    def run_task(
        self,
        ids: Sequence[int],
        task: TaskFunction,
        payload: PayloadFunction,
        ctx: RoundContext,
        participation: bool = False,
    ) -> list[Reply]:
        def named_payload(client_id: int, ctx: RoundContext) -> Payload:
            models, shared = payload(client_id, ctx)
            return Payload(models, {**shared, DELEGATED_TASK_KEY: task.__name__})

        return self._pool.run_task(ids, self._host_task, named_payload, ctx, participation)

    def initial_weights(self, index: int = 0) -> Tensor:
        return self._models[index].clone()


@dataclass(kw_only=True)
class DelegatingState(ServerState):
    delegate: ServerState | None = None  # state of the delegate; None before the final stage


class FinalStageDelegation(FedAvg):
    """Base of methods whose stage `final_stage` can run under `params.final_method`.

    The delegate has its default parameters. It starts from the current model with empty state in
    round 0. With `final_method=fedavg` the host runs the stage. Subclasses call `super()` in these
    hooks.
    """

    final_stage: ClassVar[str]
    state: DelegatingState

    def final_rounds(self, spec: TaskSpec) -> tuple[int, int]:
        """First round and number of rounds of the final stage. Clients call it, too."""
        raise NotImplementedError

    # Server side

    def validate(self, spec: TaskSpec) -> None:
        super().validate(spec)
        if self._delegates and self.final_rounds(spec)[1]:
            try:
                self._build_final_method().validate(self._final_spec(spec))
            except UserError as error:
                raise UserError(
                    f"cannot use method.final_method={self.params.final_method}: {error}"
                ) from error

    def setup(self, spec: TaskSpec, pool: ClientPool, ctx: RoundContext) -> None:
        super().setup(spec, pool, ctx)
        self._final_method = self._build_final_method()
        if self._delegates:  # Its initial state is created when the final stage starts.
            self._final_method.setup(self._final_spec(spec), self._delegated_pool(pool), ctx)

    def select_clients(self, pool: ClientPool, ctx: RoundContext) -> Sequence[int]:
        if not self.is_delegated(ctx):
            return super().select_clients(pool, ctx)
        pool, ctx = self._delegated_pool(pool), self._final_context(ctx)
        if self.state.delegate is None:
            self.state.delegate = self._final_method.initial_state(pool, ctx)
        return self._delegate.select_clients(pool, ctx)

    def before_round(self, pool: ClientPool, ids: Sequence[int], ctx: RoundContext) -> None:
        if self.is_delegated(ctx):
            self._delegate.before_round(self._delegated_pool(pool), ids, self._final_context(ctx))

    def payload(self, client_id: int, ctx: RoundContext) -> Payload:
        if self.is_delegated(ctx):
            return self._delegate.payload(client_id, self._final_context(ctx))
        return super().payload(client_id, ctx)

    def aggregate(self, replies: Sequence[Reply], ctx: RoundContext) -> None:
        if not self.is_delegated(ctx):
            return super().aggregate(replies, ctx)
        self._delegate.aggregate(replies, self._final_context(ctx))
        self.state.models = self._delegate.state.models

    def after_round(self, pool: ClientPool, ctx: RoundContext) -> None:
        if self.is_delegated(ctx):
            self._delegate.after_round(self._delegated_pool(pool), self._final_context(ctx))

    def eval_models(self) -> Mapping[str, Tensor]:
        return self._delegate.eval_models() if self.state.delegate else super().eval_models()

    # Client side

    def local_update(self, task: LocalTask) -> Reply:
        if not self.is_delegated(task.ctx):
            return super().local_update(task)
        task = replace(task, ctx=self._final_context(task.ctx))
        return self._build_final_method().local_update(task)

    def successor_task(self, task: LocalTask) -> Reply:
        """Run a client task of the delegate. `task.ctx` is the delegate's."""
        shared = dict(task.payload.shared)
        run = getattr(self._build_final_method(), shared.pop(DELEGATED_TASK_KEY))
        reply: Reply = run(replace(task, payload=Payload(task.payload.models, shared)))
        return reply

    # Both sides

    def is_delegated(self, ctx: RoundContext) -> bool:
        """True in the final stage if another method runs it."""
        return self._delegates and ctx.stage == self.final_stage

    @property
    def _delegates(self) -> bool:
        return bool(self.params.final_method != FedAvg.name)

    @property
    def _delegate(self) -> Method:
        """The delegate, with the state that a checkpoint may have restored."""
        assert self.state.delegate is not None, "the final stage has not started"
        self._final_method.state = self.state.delegate
        return self._final_method

    def _build_final_method(self) -> Method:
        return registry.build(self.params.final_method, {})

    def _delegated_pool(self, pool: ClientPool) -> DelegatedClientPool:
        return DelegatedClientPool(pool, self.state.models, self.successor_task)

    def _final_spec(self, spec: TaskSpec) -> TaskSpec:
        return replace(spec, participations=self.final_rounds(spec)[1] * spec.clients_per_round)

    def _final_context(self, ctx: RoundContext) -> RoundContext:
        round, spec = ctx.round - self.final_rounds(ctx.spec)[0], self._final_spec(ctx.spec)
        return replace(ctx, round=round, stage="train", spec=spec)
