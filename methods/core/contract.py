"""The contract between a method and the runner.

A method has a server side and a client side. Server-side hooks run in the main process. Client-side
hooks run in workers, on an instance that has `params` and nothing else: a client receives data
through the payload and keeps data in `client.state` and `client.labels`. Optional hooks have a
default here, and `FedAvg` implements the others. Other methods subclass it and override hooks.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np
from torch import Tensor

from methods.core.flat_model import FlatModel
from methods.core.task import Batch, LocalTask, Models, Payload, Reply, RoundContext, TaskSpec

TaskFunction = Callable[[LocalTask], Reply]
PayloadFunction = Callable[[int, RoundContext], Payload]


class DivergenceError(Exception):
    """Training produced NaN or Inf. The run ends with status `diverged`."""


class ClientPool(Protocol):
    """All clients, in server-side code."""

    @property
    def num_clients(self) -> int: ...

    @property
    def client_sizes(self) -> np.ndarray:
        """Number of samples of each client."""

    def run_task(
        self,
        ids: Sequence[int],
        task: TaskFunction,
        payload: PayloadFunction,
        ctx: RoundContext,
        participation: bool = False,  # True: counts against the budget
    ) -> list[Reply]:
        """Run a client-side function on each client. Replies are in the order of `ids`."""

    def initial_weights(self, index: int = 0) -> Tensor:
        """Initial parameter vector number `index`; the same for all methods of a seed."""

    def labels(self, client_id: int) -> Tensor:
        """Current labels of a client. For `diagnose` only."""

    def state(self, client_id: int) -> Mapping[str, Any]:
        """State of a client. For `diagnose` only."""


@dataclass(frozen=True)
class Diagnosis:
    """A method's estimate of the label noise, scored by the runner. All fields are optional."""

    client_scores: np.ndarray | None = None  # (K,), higher: noisier
    noisy_clients: Sequence[int] | None = None
    noise_rates: np.ndarray | None = None  # (K,) estimated fraction of mislabeled samples
    noisy_samples: Mapping[int, np.ndarray] | None = None  # mask of predicted mislabeled samples
    labels: Mapping[int, np.ndarray] | None = None  # labels after correction; None: current labels
    values: Mapping[str, float] = field(default_factory=dict)  # scalars for the learning curve
    arrays: Mapping[str, Any] = field(default_factory=dict)  # arrays for the journal


@dataclass
class ServerState:
    """Everything that the server keeps between rounds; a checkpoint holds all of it.

    Subclasses add fields: tensors, arrays, numbers, strings, and lists or dicts of these.
    """

    models: dict[str, Tensor]  # the global models
    shared: dict[str, Any] = field(default_factory=dict)  # sent with every payload


class Method(ABC):
    """Base class of all methods. Subclass `FedAvg`, which implements the abstract hooks."""

    name: ClassVar[str]
    params: Any  # annotated in a subclass with its parameter class, which is then registered
    model_names: ClassVar[tuple[str, ...]] = ("model",)
    client_state_doc: ClassVar[str] = "none"  # client state, for the table of methods
    skip_nonfinite_updates: ClassVar[bool] = False  # False: NaN or Inf ends the run as diverged
    fedavg_equivalent_params: ClassVar[Mapping[str, Any] | None] = None  # these give FedAvg exactly

    spec: TaskSpec
    state: ServerState
    planned_participations: int  # for progress reports

    def __init__(self, params: Any):
        self.params = params

    # Server side

    @abstractmethod
    def validate(self, spec: TaskSpec) -> None:
        """Raise UserError if the method does not support this task.
        Side: server. Called by: the checks before a sweep starts. May read: parameters, spec."""

    @abstractmethod
    def setup(self, spec: TaskSpec, pool: ClientPool, ctx: RoundContext) -> None:
        """Prepare the first round, or a resume: derived attributes and the initial server state.
        Side: server. Called by: the round loop. May read: parameters, spec, client sizes."""

    @abstractmethod
    def initial_state(self, pool: ClientPool, ctx: RoundContext) -> ServerState:
        """Return the server state before the first round. Side: server. Called by: `setup`.
        May read: parameters, spec, client sizes, initial weights."""

    @abstractmethod
    def stage(self, round: int) -> str | None:
        """Name the stage of a round; None after the last round.
        Side: server. Called by: the round loop. May read: parameters, spec, server state."""

    @abstractmethod
    def select_clients(self, pool: ClientPool, ctx: RoundContext) -> Sequence[int]:
        """Return the cohort of the round, in ascending order.
        Side: server. Called by: the round loop. May read: server state, client sizes, replies."""

    def before_round(self, pool: ClientPool, ids: Sequence[int], ctx: RoundContext) -> None:
        """Act before the cohort trains, for example query clients.
        Side: server. Called by: the round loop. May read: server state, replies."""

    @abstractmethod
    def payload(self, client_id: int, ctx: RoundContext) -> Payload:
        """Return the message to one client.
        Side: server. Called by: the client pool, for each client. May read: server state."""

    @abstractmethod
    def aggregate(self, replies: Sequence[Reply], ctx: RoundContext) -> None:
        """Update the server state from the replies of the cohort. There is at least one.
        Side: server. Called by: the round loop. May read: server state, replies."""

    @abstractmethod
    def aggregation_weights(self, replies: Sequence[Reply]) -> np.ndarray:
        """Return the weight of each reply; the sum is 1.
        Side: server. Called by: `aggregate`. May read: server state, replies."""

    @abstractmethod
    def aggregate_models(self, matrix: Tensor, weights: np.ndarray) -> Tensor:
        """Combine the rows of an (M, P) matrix of client models into one parameter vector.
        Side: server. Called by: `aggregate`, once per model name. May read: server state."""

    def after_round(self, pool: ClientPool, ctx: RoundContext) -> None:
        """Act after aggregation, for example query clients.
        Side: server. Called by: the round loop. May read: server state, replies."""

    @abstractmethod
    def eval_models(self) -> Mapping[str, Tensor]:
        """Return the models that are evaluated on the test split.
        Side: server. Called by: the evaluation. May read: server state."""

    def diagnose(self, pool: ClientPool) -> Diagnosis:
        """Return the method's estimate of the label noise. Changes nothing.
        Side: server. Called by: the evaluation. May read: server state, client labels, states."""
        return Diagnosis()

    # Client side

    @abstractmethod
    def local_update(self, task: LocalTask) -> Reply:
        """Train on one client. Override it only to replace the training loop.
        Side: client. Called by: the worker. May read: parameters, task."""

    def start_local_update(self, models: Models, task: LocalTask) -> None:
        """Prepare the local update; store values in `task.local`.
        Side: client. Called by: `local_update`, before training. May read: parameters, task."""

    def train_options(self, task: LocalTask) -> Mapping[str, Any]:
        """Return options of `training.train`, such as `lr`, `view`, `local_epochs`, `batch_size`.
        Side: client. Called by: `local_update`. May read: parameters, task."""
        return {}

    @abstractmethod
    def joint_loss(self, models: Models, batch: Batch, task: LocalTask) -> Tensor:
        """Return the loss of all models on a batch; by default the sum of their `batch_loss`.
        Side: client. Called by: `local_update`. May read: parameters, task, batch."""

    @abstractmethod
    def batch_loss(self, model: FlatModel, batch: Batch, task: LocalTask) -> Tensor:
        """Return the loss of one model on a batch.
        Side: client. Called by: `joint_loss`. May read: parameters, task, batch."""

    def add_penalty_grad(self, model: FlatModel, batch: Batch, task: LocalTask) -> None:
        """Add the gradient of a penalty on the weights to `model.grad`, which is already clipped.
        Side: client. Called by: `local_update`. May read: parameters, task, batch."""

    def before_epoch(self, epoch: int, order: Tensor, task: LocalTask) -> None:
        """Prepare a local epoch, which trains on the samples in this order; see `batch.rows`.
        Side: client. Called by: `local_update`. May read: parameters, task."""

    def after_epoch(self, epoch: int, task: LocalTask) -> None:
        """Act after a local epoch, for example update labels.
        Side: client. Called by: `local_update`. May read: parameters, task."""

    def finish_local_update(self, models: Models, task: LocalTask) -> Mapping[str, Any] | None:
        """Store client state and return the values of the reply, besides the models, if any.
        Side: client. Called by: `local_update`, after training. May read: parameters, task."""

    @abstractmethod
    def predict(self, models: Models, x: Tensor) -> Tensor:
        """Return class probabilities (n, classes) of models in evaluation mode.
        Side: client. Called by: the evaluation. May read: parameters."""
