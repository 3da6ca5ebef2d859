"""The contract between a method, its clients and the runner.

A method has a server half (`setup`, `stage`, `select`, `before_round`, `payload`, `aggregate`, `after_round`, `serving`, `diagnosis`) and a client half
(`local_update`, `batch_loss`, `penalty`, `predict`, and any task of its own given to `fleet.ask`). The client half runs in other processes on
an instance that has `params` and nothing else: what a client may know comes in the payload, what it keeps lies in `client.state` and `client.labels`.
Every hook's default is FedAvg's (`fedavg.py`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from methods.core.flat_model import FlatModel
from methods.core.streams import numpy_generator, torch_generator


class DivergenceError(Exception):
    """Training produced NaN or Inf; the run ends and says where."""


@dataclass(frozen=True)
class TrainParams:
    """Local training as every method does it unless its paper says otherwise."""

    local_epochs: int = 5  # E
    batch_size: int = 10  # B
    optimizer: str = "sgd"  # sgd | adam; made anew at every visit, so no momentum survives a round
    lr: float = 0.01  # eta
    momentum: float = 0.5  # sgd only
    weight_decay: float = 0.0  # L2 form
    lr_decay: float = 1.0  # factor per round
    clip_norm: float = 0.0  # global gradient norm, 0: no clipping

    def __post_init__(self) -> None:
        if self.optimizer not in ("sgd", "adam"):
            raise ValueError(f"train.optimizer={self.optimizer!r} is not legal; legal: sgd, adam")
        for name, low in (
            ("local_epochs", 1),
            ("batch_size", 1),
            ("momentum", 0),
            ("weight_decay", 0),
            ("clip_norm", 0),
        ):
            if getattr(self, name) < low:
                raise ValueError(
                    f"train.{name}={getattr(self, name)} is not legal; legal: at least {low}"
                )
        for name in ("lr", "lr_decay"):
            if not getattr(self, name) > 0:
                raise ValueError(f"train.{name}={getattr(self, name)} is not legal; legal: above 0")


@dataclass(frozen=True)
class TaskSpec:
    """What a method may know of the world before it starts."""

    dataset: str
    shape: tuple[int, int, int]  # channels, height, width
    num_classes: int
    num_clients: int
    clients_per_round: int
    participations: int  # the budget: client visits in which a model is trained
    feature_dim: int
    num_trainable: int  # length of the trainable prefix of a weight vector


@dataclass(frozen=True)
class RoundContext:
    """One round, frozen. Streams are named by purpose, never by method: methods of one seed share cohorts and batch order."""

    seed: int
    round: int
    stage: str
    spec: TaskSpec
    train: TrainParams

    def rng(self, *key: int | str) -> np.random.Generator:
        return numpy_generator(self.seed, self.round, *key)

    def generator(self, *key: int | str) -> torch.Generator:
        return torch_generator(self.seed, self.round, *key)


class Payload(NamedTuple):
    """What the server sends to one client: weight vectors by name, and tensors or numbers by name."""

    models: Mapping[str, Tensor]
    shared: Mapping[str, Any]


@dataclass(frozen=True)
class Reply:
    """What a client sends back. Made by `client.reply(models, **values)`."""

    client_id: int
    num_samples: int
    models: Mapping[str, Tensor]
    values: Mapping[str, Any]


@dataclass(slots=True)
class Batch:
    x: Tensor  # float32 images, augmented and normalised
    y: Tensor  # working labels: int64 (n,), or float (n, classes) when soft
    index: Tensor  # positions in the client's own sample order
    epoch: int  # of this visit
    step: int  # within the epoch


class Client(Protocol):
    """One client as its own code sees it: its images, its labels, its state. No true labels, no test data, no other client."""

    id: int
    num_samples: int
    num_classes: int
    given: Tensor  # the labels it was given, (n,) int64, read-only
    labels: Tensor  # its working labels; assign a new tensor to change them for good
    state: dict[str, Any]  # tensors and numbers that persist between visits

    def network(self, vector: Tensor) -> FlatModel: ...
    def images(
        self, index: Tensor, view: str = "plain", generator: torch.Generator | None = None
    ) -> Tensor: ...
    def batches(
        self,
        batch_size: int,
        view: str,
        order: torch.Generator,
        augment: torch.Generator,
        epoch: int = 0,
        subset: Tensor | None = None,
    ) -> Iterator[Batch]: ...
    def reply(self, models: Mapping[str, Tensor], **values: Any) -> Reply: ...


class ClientPool(Protocol):
    """All clients as the server reaches them."""

    num_clients: int
    sizes: np.ndarray  # samples per client

    def ask(
        self,
        ids: Sequence[int],
        task: Callable[[Client, Payload, RoundContext], Reply],
        payload: Callable[[int, RoundContext], Payload],
        ctx: RoundContext,
        participation: bool = False,
    ) -> list[Reply]: ...
    def initial_weights(self, index: int = 0) -> Tensor: ...
    def labels(self, client_id: int) -> Tensor: ...  # for diagnosis only: the working labels
    def state(self, client_id: int) -> Mapping[str, Any]: ...  # for diagnosis only


@dataclass(frozen=True)
class Diagnosis:
    """What a method believes about the noise, to be scored against the truth by the runner. All optional."""

    client_scores: np.ndarray | None = None  # (K,), higher: noisier
    noisy_clients: Sequence[int] | None = None
    noise_rates: np.ndarray | None = None  # (K,) estimated share of wrong labels
    noisy_samples: Mapping[int, np.ndarray] | None = (
        None  # client -> bool mask over its samples: held to be mislabelled
    )
    labels: Mapping[int, np.ndarray] | None = (
        None  # client -> labels the method would use; None: the working labels
    )
    values: Mapping[str, float] = field(default_factory=dict)  # scalars worth a curve
    arrays: Mapping[str, Any] = field(
        default_factory=dict
    )  # arrays worth keeping (LID scores, mixtures): go to the journal


@dataclass(frozen=True)
class NoParams:
    """For methods without hyper-parameters of their own."""


class Method:
    """Base of all methods. Subclass FedAvg rather than this."""

    name: ClassVar[str]
    Params: ClassVar[type] = NoParams
    model_names: ClassVar[tuple[str, ...]] = ("model",)
    client_state: ClassVar[str] = (
        "none"  # what a client keeps between visits, for the table of methods
    )
    skip_nonfinite_updates: ClassVar[bool] = (
        False  # a client model with NaN or Inf is left out instead of ending the run
    )
    fedavg_equivalent_params: ClassVar[Mapping[str, Any] | None] = (
        None  # parameters under which the method equals FedAvg byte for byte
    )

    def __init__(self, params: Any):
        self.params = params
