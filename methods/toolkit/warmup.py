"""Methods made for one machine, moved to clients as FedCorr's appendix B does it: rounds of FedAvg first, then fewer and longer visits."""

from dataclasses import dataclass
from typing import Any, ClassVar

from methods.core.contract import ClientPool, RoundContext, TaskSpec
from methods.fedavg import FedAvg


@dataclass(frozen=True)
class WarmupParams:
    budget_share: float = 0.1  # share of the participations that is used, because the visits after the warm-up are longer
    warmup_share: float = 0.2  # share of the rounds that are plain FedAvg

    def __post_init__(self) -> None:
        if not 0 < self.budget_share <= 1:
            raise ValueError(
                f"method.budget_share={self.budget_share} is not legal; legal: above 0, at most 1"
            )
        if not 0 <= self.warmup_share <= 1:
            raise ValueError(f"method.warmup_share={self.warmup_share} is not legal; legal: 0 to 1")


class WarmupMethod(FedAvg):
    """Base of JointOpt and DivideMix: a budget of its own, and the stages `warmup` and `own_stage`."""

    params: Any  # WarmupParams and what the method adds
    own_stage: ClassVar[str]

    def setup(self, spec: TaskSpec, fleet: ClientPool, ctx: RoundContext) -> None:
        super().setup(spec, fleet, ctx)
        self.rounds = self.num_rounds(spec)
        self.planned_participations = self.rounds * spec.clients_per_round

    def stage(self, round: int) -> str | None:
        if round >= self.rounds:
            return None
        return "warmup" if round < self.num_warmup(self.spec) else self.own_stage

    def num_rounds(self, spec: TaskSpec) -> int:
        """Those that the share of the budget pays for; one at least, which any legal budget does."""
        return max(
            int(self.params.budget_share * spec.participations + 1e-9) // spec.clients_per_round, 1
        )

    def num_warmup(self, spec: TaskSpec) -> int:
        return round(self.params.warmup_share * self.num_rounds(spec))
