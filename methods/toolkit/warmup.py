"""Base of centralized methods adapted as in FedCorr, appendix B: FedAvg rounds come first."""

from typing import ClassVar

from methods.core.contract import ClientPool
from methods.core.params import Fraction, PositiveFraction, parameters
from methods.core.task import RoundContext, TaskSpec
from methods.fedavg import FedAvg


@parameters
class WarmupParams:
    budget_fraction: PositiveFraction = 0.1  # fraction of the budget that is used
    warmup_fraction: Fraction = 0.2  # fraction of the rounds that are FedAvg


class WarmupMethod(FedAvg):
    """FedAvg in the stage `warmup`, followed by the stage `main_stage`."""

    params: WarmupParams
    main_stage: ClassVar[str]

    def setup(self, spec: TaskSpec, pool: ClientPool, ctx: RoundContext) -> None:
        super().setup(spec, pool, ctx)
        self.rounds = self.num_rounds(spec)
        self.planned_participations = self.rounds * spec.clients_per_round

    def stage(self, round: int) -> str | None:
        if round >= self.rounds:
            return None
        return "warmup" if round < self.num_warmup_rounds(self.spec) else self.main_stage

    def num_rounds(self, spec: TaskSpec) -> int:
        """Number of rounds within the budget fraction; at least one."""
        budget = int(self.params.budget_fraction * spec.participations + 1e-9)
        return max(budget // spec.clients_per_round, 1)

    def num_warmup_rounds(self, spec: TaskSpec) -> int:
        """Number of FedAvg rounds at the start."""
        return round(self.params.warmup_fraction * self.num_rounds(spec))
