"""Parameters of FedCorr (Xu et al., CVPR 2022), and the rounds of its stages."""

from dataclasses import dataclass, fields, replace
from typing import Annotated, Literal, NamedTuple

from pydantic import Field, model_validator

from methods.core.errors import invalid
from methods.core.params import Fraction, NonNegative, NonNegativeInt, parameters
from methods.core.task import TaskSpec
from methods.toolkit.final_stage import final_stage_methods


@dataclass(frozen=True)
class ImplementationOptions:
    """Choices where the official code and the paper differ."""

    prox: str  # l2: |w - w_t|, except on the first batch of an epoch; l2sq: |w - w_t|^2, eq. 5
    sample_loss: str  # ce: cross-entropy; ce_on_probs: softmax twice, an interval of width 1
    rank_loss: str  # local: the client's model after its local update; global: the global model
    relabel_pool: str  # client: rank all samples of a client; noisy: the predicted noisy samples
    mixup_stages: str  # all: all stages; preprocessing: the first stage only
    stage2_relabel: str  # lid_noisy: noisy clients of the last LID mixture; kappa: above kappa
    score_view: str  # train: one random training view; plain: no augmentation


OFFICIAL = ("l2", "ce_on_probs", "local", "client", "all", "lid_noisy", "train")
PAPER = ("l2sq", "ce", "global", "noisy", "preprocessing", "kappa", "plain")
PROFILES = {"official": ImplementationOptions(*OFFICIAL), "paper": ImplementationOptions(*PAPER)}


@parameters
class FedCorrParams:
    iterations: NonNegativeInt = 5  # T_1, participations of every client in preprocessing
    finetuning_fraction: Fraction = 0.5263  # T_2 / (T_2 + T_3): 500 of 950 rounds
    theta: Fraction = 0.5  # theta, confidence above which a prediction replaces a label
    pi: Fraction = 0.5  # pi, fraction of the noisy samples that one iteration may relabel
    kappa: Fraction = 0.1  # kappa, highest estimated noise level of a client in finetuning
    beta: NonNegative = 5.0  # beta, weight of the proximal term
    alpha: NonNegative = 1.0  # alpha of mixup's Beta distribution
    num_neighbors: Annotated[int, Field(ge=2)] = 20  # k, number of neighbors of the LID estimate
    final_method: str = "fedavg"  # method of the final stage (Fig. 4)
    # Components that the ablation of Table 6 removes one by one.
    correction: bool = True  # relabeling
    fraction_scheduling: bool = True  # one client per preprocessing round, instead of a cohort
    proximal: bool = True  # the proximal term
    finetuning: bool = True  # the stage finetuning
    usual_training: bool = True  # the stage training
    mixup: bool = True  # mixup in local training
    # Choices of ImplementationOptions. null: the choice of the profile.
    profile: Literal["official", "paper"] = "official"  # official code or text of the paper
    prox: Literal["l2", "l2sq"] | None = None  # form of the proximal term
    sample_loss: Literal["ce_on_probs", "ce"] | None = None  # loss of a sample
    rank_loss: Literal["local", "global"] | None = None  # model whose loss ranks samples, eq. 6
    relabel_pool: Literal["client", "noisy"] | None = None  # samples that are ranked
    mixup_stages: Literal["all", "preprocessing"] | None = None  # stages with mixup
    stage2_relabel: Literal["lid_noisy", "kappa"] | None = None  # clients of the 2nd relabeling
    score_view: Literal["train", "plain"] | None = None  # images for scoring

    @model_validator(mode="after")
    def _validate_final_method(self) -> "FedCorrParams":
        if self.final_method not in (available := final_stage_methods()):
            raise invalid(
                "method.final_method", self.final_method, f"one of {', '.join(available)}"
            )
        return self

    @property
    def options(self) -> ImplementationOptions:
        """The options of the profile, with those that are set."""
        values = {f.name: getattr(self, f.name) for f in fields(ImplementationOptions)}
        changes = {name: value for name, value in values.items() if value is not None}
        return replace(PROFILES[self.profile], **changes)


class FedCorrSchedule(NamedTuple):
    iterations: int  # T_1
    rounds_per_iteration: int
    finetuning: int  # T_2
    training: int  # T_3

    @property
    def preprocessing_rounds(self) -> int:
        return self.iterations * self.rounds_per_iteration

    @property
    def rounds_before_training(self) -> int:
        return self.preprocessing_rounds + self.finetuning


def make_schedule(params: FedCorrParams, spec: TaskSpec) -> FedCorrSchedule:
    """Divide the budget: T_1 participations of every client, then rounds of the usual cohort."""
    # T_1 is reduced to fit in half of the budget, but not below 1.
    iterations = min(params.iterations, max(spec.participations // 2 // spec.num_clients, 1))
    cohort = 1 if params.fraction_scheduling else spec.clients_per_round
    rounds = (spec.participations - iterations * spec.num_clients) // spec.clients_per_round
    finetuning = round(rounds * params.finetuning_fraction)
    training = rounds - finetuning if params.usual_training else 0
    finetuning = finetuning if params.finetuning else 0
    return FedCorrSchedule(iterations, -(-spec.num_clients // cohort), finetuning, training)
