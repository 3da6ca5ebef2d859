"""The reference work in pfl-research: two processes, central evaluation on both."""

import os
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.central_evaluation import CentralEvaluationCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam.base import NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn

from benchmarks.speed.harness import Batches
from benchmarks.speed.peers import answer, reference_work

ROUNDS = 1_000_000


class Samples:
    """Data of one user, or images of the test split, in the form that pfl reads."""

    train_kwargs: dict[str, Any] = {}
    eval_kwargs: dict[str, Any] = {}

    def __init__(self, client: int | None, images: range = range(0)):
        self.user_id, self.images = client, images

    def __len__(self) -> int:
        client = self.user_id
        return len(self.images if client is None else reference_work().client_indices[client])

    def iter(self, batch_size: int | None) -> Batches:
        work, client = reference_work(), self.user_id
        return work.test_batches(self.images) if client is None else work.batches(client)

    def get_worker_partition(self) -> "Samples":
        rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        return Samples(None, self.images[rank::size])


class LossModule(nn.Module):
    """The model with the two functions that pfl calls."""

    def __init__(self, module: nn.Module):
        super().__init__()
        self.module = module

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        self.module.train()
        return F.cross_entropy(self.module(x), y)

    @torch.no_grad()
    def metrics(self, x: Tensor, y: Tensor) -> dict[str, Any]:
        self.module.eval()
        return {"accuracy": Weighted(int((self.module(x).argmax(1) == y).sum()), len(y))}


class Answer:
    """Callback that answers before the first and after every round."""

    def on_train_begin(self, *, model: Any) -> Any:
        answer(float("nan"))
        return Metrics()

    def after_central_iteration(
        self, metrics: Any, model: Any, *, central_iteration: int
    ) -> tuple[bool, Any]:
        values = {str(name): value for name, value in metrics.to_simple_dict().items()}
        accuracy = values.get("Central val | accuracy", float("nan"))
        return not answer(accuracy), Metrics()

    def on_train_end(self, *, model: Any) -> None:
        pass


def main() -> None:
    work = reference_work()
    torch.manual_seed(int(os.environ["RANK"]))
    module = work.build_module()
    users = range(len(work.client_indices))
    dataset = FederatedDataset(Samples, get_user_sampler("minimize_reuse", list(users)))
    model = PyTorchModel(
        LossModule(module),
        partial(torch.optim.SGD, momentum=work.momentum),
        torch.optim.SGD(module.parameters(), lr=1.0),
    )
    evaluation = CentralEvaluationCallback(Samples(None, range(len(work.dataset.test))))
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=ROUNDS,
            evaluation_frequency=ROUNDS,
            train_cohort_size=work.clients_per_round,
            val_cohort_size=0,
        ),
        backend=SimulatedBackend(training_data=dataset, val_data=dataset),
        model=model,
        model_train_params=NNTrainHyperParams(
            local_num_epochs=work.epochs,
            local_learning_rate=work.lr,
            local_batch_size=work.batch_size,
        ),
        callbacks=[evaluation, Answer()],
    )
