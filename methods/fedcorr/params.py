"""What can be set about FedCorr (Xu et al., CVPR 2022), and how its stages share the budget."""

from dataclasses import dataclass, fields, replace
from typing import NamedTuple

from methods.core.contract import TaskSpec
from methods.toolkit.final_stage import successors


@dataclass(frozen=True)
class Switches:
    """Where the released code and the paper differ."""

    prox: str  # l2: beta mu |w - w_t|, not on the first batch of an epoch; l2sq: beta mu |w - w_t|^2, eq. 5
    sample_loss: str  # ce_on_probs: softmax acts twice, so losses lie in a window of width 1; ce: cross-entropy
    rank_loss: str  # whose loss ranks the samples to relabel. local: the client's own model at its turn; global: the global model, eq. 6
    relabel_pool: (
        str  # client: ranked among all of the client's samples; noisy: among those held to be noisy
    )
    mixup_stages: str  # all | preprocessing
    stage2_relabel: str  # lid_noisy: the clients that the last LID mixture calls noisy; kappa: those left out of finetuning
    score_view: str  # train: one random training view; plain: images as they are


PROFILES = {
    "official": Switches("l2", "ce_on_probs", "local", "client", "all", "lid_noisy", "train"),
    "paper": Switches("l2sq", "ce", "global", "noisy", "preprocessing", "kappa", "plain"),
}


@dataclass(frozen=True)
class FedCorrParams:
    iterations: int = 5  # T_1, visits of every client in the pre-processing stage
    finetuning_share: float = 0.5263  # T_2 / (T_2 + T_3): 500 of 950 rounds
    theta: float = 0.5  # theta, confidence above which a prediction replaces a label
    pi: float = 0.5  # pi, share of the noisy samples that may be relabelled in one iteration
    kappa: float = (
        0.1  # kappa, highest estimated noise level of a client that takes part in finetuning
    )
    beta: float = 5.0  # beta, strength of the proximal term
    alpha: float = 1.0  # alpha of mixup's Beta distribution
    neighbours: int = 20  # k of the LID estimate
    final: str = "fedavg"  # the method of the last stage (Fig. 4)
    # The parts that Table 6 takes away one by one.
    correction: bool = True
    fraction_scheduling: bool = True
    proximal: bool = True
    finetuning: bool = True
    usual_training: bool = True
    mixup: bool = True
    # Which reading of the method, and single departures from it.
    profile: str = "official"
    prox: str | None = None
    sample_loss: str | None = None
    rank_loss: str | None = None
    relabel_pool: str | None = None
    mixup_stages: str | None = None
    stage2_relabel: str | None = None
    score_view: str | None = None

    def __post_init__(self) -> None:
        for name, low, high in (
            ("finetuning_share", 0, 1),
            ("theta", 0, 1),
            ("pi", 0, 1),
            ("kappa", 0, 1),
        ):
            if not low <= getattr(self, name) <= high:
                raise ValueError(
                    f"method.{name}={getattr(self, name)} is not legal; legal: {low} to {high}"
                )
        for name, least in (("iterations", 0), ("beta", 0), ("alpha", 0), ("neighbours", 2)):
            if getattr(self, name) < least:
                raise ValueError(
                    f"method.{name}={getattr(self, name)} is not legal; legal: at least {least}"
                )
        if self.profile not in PROFILES:
            raise ValueError(
                f"method.profile={self.profile!r} is not legal; legal: {', '.join(PROFILES)}"
            )
        for field in fields(Switches):
            legal = [getattr(profile, field.name) for profile in PROFILES.values()]
            if getattr(self, field.name) not in (None, *legal):
                raise ValueError(
                    f"method.{field.name}={getattr(self, field.name)!r} is not legal; legal: null, {', '.join(legal)}"
                )
        if self.final not in successors():
            raise ValueError(
                f"method.final={self.final!r} is not legal; legal: {', '.join(successors())}"
            )

    @property
    def switches(self) -> Switches:
        """The profile's, with the departures from it."""
        return replace(
            PROFILES[self.profile],
            **{
                f.name: getattr(self, f.name)
                for f in fields(Switches)
                if getattr(self, f.name) is not None
            },
        )


class Plan(NamedTuple):
    """How the budget of client visits becomes rounds."""

    iterations: int  # T_1
    rounds_per_iteration: int
    finetuning: int  # T_2
    training: int  # T_3

    @property
    def preprocessing(self) -> int:
        return self.iterations * self.rounds_per_iteration

    @property
    def before_training(self) -> int:
        return self.preprocessing + self.finetuning


def make_plan(params: FedCorrParams, spec: TaskSpec) -> Plan:
    """T_1 visits of every client, then rounds of the usual cohort. T_1 is cut to fit in half the budget, but not below 1."""
    iterations = min(params.iterations, max(spec.participations // 2 // spec.num_clients, 1))
    per_iteration = (
        spec.num_clients
        if params.fraction_scheduling
        else -(-spec.num_clients // spec.clients_per_round)
    )
    rounds = (spec.participations - iterations * spec.num_clients) // spec.clients_per_round
    finetuning = round(rounds * params.finetuning_share)
    return Plan(
        iterations,
        per_iteration,
        finetuning if params.finetuning else 0,
        rounds - finetuning if params.usual_training else 0,
    )
