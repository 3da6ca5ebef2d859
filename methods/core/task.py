"""Client tasks: the task, the round, the messages, and one client as client-side code sees it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import torch
from torch import Generator, Tensor

from methods.core import streams
from methods.core.flat_model import FlatModel
from methods.core.params import NonNegative, Positive, PositiveInt, ProperFraction, parameters

Models = Mapping[str, FlatModel]  # by name, as in `Method.model_names`
View = tuple[str, Generator]  # name of a view and the generator of its random numbers


@parameters
class TrainParams:
    """Local training. Each local update has a new optimizer, so momentum does not persist."""

    local_epochs: PositiveInt = 5  # E
    batch_size: PositiveInt = 10  # B
    optimizer: Literal["sgd", "adam"] = "sgd"
    lr: Positive = 0.01  # eta
    momentum: ProperFraction = 0.5  # sgd only
    weight_decay: NonNegative = 0.0  # L2 penalty
    lr_decay: Positive = 1.0  # factor per round
    clip_norm: NonNegative = 0.0  # limit of the global gradient norm; 0: no clipping


@dataclass(frozen=True)
class TaskSpec:
    """Static information about the task, known to a method before training."""

    dataset: str
    shape: tuple[int, int, int]  # channels, height, width
    num_classes: int
    num_clients: int
    clients_per_round: int
    participations: int  # the budget
    feature_dim: int
    num_trainable: int  # length of the trainable prefix of a parameter vector


@dataclass(frozen=True)
class RoundContext:
    """One round and its random streams.

    Streams are named by purpose, not by method: methods of one seed share cohorts and batch order.
    The seed itself is not available, because label noise can be replayed from it.
    """

    stream_root: int  # start of all streams, a hash of the run's seed
    round: int
    stage: str
    spec: TaskSpec
    train: TrainParams

    def rng(self, *key: int | str) -> np.random.Generator:
        """NumPy stream of this round for one purpose, such as `ctx.rng("select")`."""
        return streams.numpy_generator(self.stream_root, self.round, *key)

    def generator(self, *key: int | str) -> Generator:
        """PyTorch stream of this round for one purpose."""
        return streams.torch_generator(self.stream_root, self.round, *key)


class Payload(NamedTuple):
    """Message from the server to a client."""

    models: Mapping[str, Tensor]  # parameter vectors by name
    shared: Mapping[str, Any]  # other tensors and numbers by name


@dataclass(frozen=True)
class Reply:
    """Message from a client to the server. Created by `client.reply(models, **values)`."""

    client_id: int
    num_samples: int
    models: Mapping[str, Tensor]
    values: Mapping[str, Any]


@dataclass(slots=True)
class Batch:
    """One batch of a client's samples."""

    x: Tensor  # float32 images, augmented and normalized
    y: Tensor  # current labels: int64 (n,), or float (n, classes) if soft
    index: Tensor  # positions in the client's sample order
    epoch: int  # within the local update
    step: int  # within the epoch
    rows: slice  # of the epoch's order
    second: Tensor | None = None  # the same images under a second view, if the epoch has one

    def both_views(self) -> tuple[Tensor, Tensor]:
        """The images under both views of the epoch."""
        assert self.second is not None, "the epoch has no second view"
        return self.x, self.second


class Epoch(NamedTuple):
    """One shuffled pass over samples of a client."""

    order: Tensor  # positions of the samples in training order
    batches: Iterator[Batch]


class Client(Protocol):
    """One client in client-side code, without clean labels, test data or other clients."""

    id: int
    num_samples: int
    num_classes: int
    labels: Tensor  # current labels; assign a new tensor to change them permanently
    device: torch.device  # of the labels, images, models, and of all tensors that the task receives

    @property
    def given_labels(self) -> Tensor:
        """(n,) int64."""

    @property
    def state(self) -> dict[str, Any]:
        """Tensors, arrays and numbers that persist between rounds."""

    def load_model(self, vector: Tensor) -> FlatModel:
        """A model with these parameters. Each call returns a different instance."""

    def images(
        self, index: Tensor, view: str = "plain", generator: Generator | None = None
    ) -> Tensor:
        """Images at these positions under a view: `plain`, `train`, `strong` or `second`.

        `strong` and `second` are made on the host, because devices round differently.
        """

    def epochs(
        self,
        subsets: Sequence[Tensor | None],
        batch_size: int,
        view: str,
        order: Generator,
        augment: Generator,
        second_view: View | None = None,
    ) -> list[Epoch]:
        """One shuffled epoch for each subset: positions on the host, or None for all samples.

        All random numbers are drawn now, except those of the views `strong` and `second`.
        """

    def upload(self, *tensors: Tensor) -> list[Tensor]:
        """Copies of host tensors on the device of the client, in one transfer."""

    def upload_later(self, *tensors: Tensor) -> Callable[[], list[Tensor]]:
        """As `upload`, but in one transfer with the next upload, such as that of `epochs`.

        Returns a function that gives the copies.
        """

    def prepare_step(self, step: Callable[[Batch], None]) -> Callable[[Batch], None]:
        """A training step for the next batches, in the form that is fastest on the device."""

    def reply(self, models: Mapping[str, Tensor], **values: Any) -> Reply:
        """The reply to the server, with copies of the parameter vectors."""


@dataclass(frozen=True)
class LocalTask:
    """A client task while it runs: the client, the payload, the round and the random streams."""

    client: Client
    payload: Payload
    ctx: RoundContext
    local: SimpleNamespace = field(default_factory=SimpleNamespace)  # values of this task only

    def rng(self, purpose: str) -> np.random.Generator:
        """NumPy stream of this client and round for one purpose."""
        return self.ctx.rng(purpose, self.client.id)

    def generator(self, purpose: str) -> Generator:
        """PyTorch stream of this client and round for one purpose."""
        return self.ctx.generator(purpose, self.client.id)

    def load_models(self) -> dict[str, FlatModel]:
        """The models of the payload."""
        vectors = self.payload.models
        return {name: self.client.load_model(vector) for name, vector in vectors.items()}
