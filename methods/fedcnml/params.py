"""Parameters of Fed-CNML (Wu et al., Computer Science 51(10), 2024), and its schedule."""

from typing import Annotated, Literal, NamedTuple

from pydantic import Field, model_validator

from methods.core.errors import invalid
from methods.core.params import (
    NonNegative,
    NonNegativeInt,
    PositiveFraction,
    PositiveInt,
    parameters,
)
from methods.core.task import RoundContext, TaskSpec

AtLeastOne = Annotated[float, Field(ge=1)]


@parameters
class FedCNMLParams:
    """Parameters of Fed-CNML. Numbers of rounds refer to a run of `paper_rounds` rounds."""

    # none; c1: no mutual scoring; c2: one model that selects for itself; c3: no triplet loss
    ablation: Literal["none", "c1", "c2", "c3"] = "none"
    scoring_epochs: PositiveInt = 25  # E0, local epochs of the models that are scored
    scoring_samples: NonNegativeInt = 0  # samples on which a client scores other models; 0: all
    tau1: AtLeastOne = 2.0  # tau_1, score threshold mu_1: 1 gives the mean, large the maximum
    mu2: NonNegativeInt = 5  # mu_2, a clean client has more neighbors; 0: all clients are clean
    paper_rounds: Annotated[int, Field(ge=2)] = 350  # number of rounds in the paper
    warmup: PositiveInt = 25  # T_w, rounds on clean clients
    decay_every: PositiveInt = 120  # rounds between two decays of the learning rate
    decay: PositiveFraction = 0.1  # factor of each decay
    tau2: AtLeastOne = 5.0  # tau_2, filter coefficient of the divergence cutoff
    jsd_limit: NonNegative = 0.7  # J_u, mean divergence (base 2) from which the cutoff is lowered
    # Clients whose divergences are measured each round. merged: the cohort; full: all clients
    statistics: Literal["merged", "full"] = "merged"
    temperature: PositiveFraction = 0.5  # T, temperature of the pseudo-labels
    triplet_weight: NonNegative = 0.025  # lambda, weight of the triplet loss
    margin: NonNegative = 0.0  # margin of the triplet loss
    # Loss of a batch. subsets: mean of the clean plus mean of the noisy samples; batch: one mean
    mean_over: Literal["subsets", "batch"] = "subsets"
    view: Literal["strong", "train"] = "strong"  # images in the federation stage

    @model_validator(mode="after")
    def _validate_warmup(self) -> "FedCNMLParams":
        if self.warmup >= self.paper_rounds:
            raise invalid(
                "method.warmup", self.warmup, f"below method.paper_rounds={self.paper_rounds}"
            )
        return self

    @property
    def client_scoring_enabled(self) -> bool:
        return self.ablation != "c1" and self.mu2 > 0

    @property
    def uses_triplet(self) -> bool:
        return self.ablation not in ("c2", "c3") and self.triplet_weight > 0


class FedCNMLSchedule(NamedTuple):
    scoring: int  # 1, or 0 without mutual scoring
    warmup: int
    rounds: int  # warm-up and federation together


def make_schedule(params: FedCNMLParams, spec: TaskSpec) -> FedCNMLSchedule:
    """Divide the budget. Follows from parameters and budget, so server and clients agree."""
    scoring = int(params.client_scoring_enabled)
    rounds = (spec.participations - scoring * spec.num_clients) // spec.clients_per_round
    warmup = round(params.warmup * rounds / params.paper_rounds)
    return FedCNMLSchedule(scoring, min(max(warmup, 1), rounds - 1), rounds)


def learning_rate(params: FedCNMLParams, ctx: RoundContext) -> float:
    """Learning rate of a round, with step decay."""
    scoring, _, rounds = make_schedule(params, ctx.spec)
    decays = max(ctx.round - scoring, 0) * params.paper_rounds // (params.decay_every * rounds)
    return ctx.train.lr * ctx.train.lr_decay**ctx.round * params.decay**decays
