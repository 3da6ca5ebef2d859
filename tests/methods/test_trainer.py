"""Local training: epochs of the trainer, models that are not trained, and batches of one sample."""

import pytest
import torch
from method_helpers import make_task
from torch import Tensor, nn

from benchmarks.models.base import BatchNorm
from methods.core import training
from methods.core.flat_model import FlatModel
from methods.core.registry import build
from methods.toolkit.losses import cross_entropy


def test_epochs_of_a_trainer_equal_train(make_client, make_ctx, initial_vector):
    """Momentum and random streams continue from epoch to epoch."""
    ctx = make_ctx(local_epochs=3, momentum=0.9, lr=0.02)
    tasks = [make_task(make_client(), initial_vector, ctx) for _ in range(2)]
    first, second = (task.load_models()["model"] for task in tasks)
    training.train(tasks[0], [first], lambda batch: cross_entropy(first(batch.x), batch.y))
    trainer = training.Trainer(tasks[1], [second])
    for _ in range(3):
        ((_, batches),) = trainer.epochs([None])
        trainer.fit(batches, lambda batch: cross_entropy(second(batch.x), batch.y))
    assert torch.equal(first.vector, second.vector)


def test_other_models_are_in_evaluation_mode_and_unchanged(make_client, make_ctx, initial_vector):
    """Weight decay and momentum would change a model without a gradient."""
    ctx = make_ctx(momentum=0.9, weight_decay=0.1)
    task = make_task(make_client(), {"a": initial_vector, "b": initial_vector}, ctx)
    a, b = task.load_models().values()
    modes = []

    def loss(batch):
        modes.append((a.module.training, b.module.training))
        return cross_entropy(a(batch.x), batch.y)

    trainer = training.Trainer(task, [a, b])
    trainer.fit(trainer.epochs([None])[0].batches, loss, models=[a])
    assert set(modes) == {(True, False)}
    assert torch.equal(b.vector, initial_vector) and not torch.equal(a.vector, initial_vector)


class NormalizedCNN(nn.Module):
    """Batch normalization over maps of one pixel, as at the end of cnn9 with 28x28 images."""

    feature_dim = 6

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 6, 8), BatchNorm(6), nn.ReLU(), nn.Flatten())
        self.head = nn.Linear(6, 10)

    def features(self, x: Tensor) -> Tensor:
        return self.body(x)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x))


@pytest.mark.parametrize(
    ("name", "stage", "params"),
    [
        ("fedavg", "train", {}),
        ("rofl", "train", {}),
        ("jointopt", "joint", {"joint_epochs": 2}),
        ("dividemix", "warmup", {"warmup_batch_size": 10}),
        ("dividemix", "divide", {"divide_epochs": 2}),
    ],
)
@pytest.mark.parametrize("num_samples", [1, 11])
def test_batch_of_one_with_batch_norm(make_client, make_ctx, name, stage, params, num_samples):
    """With 11 samples and batches of 10, the last batch has one sample."""
    client = make_client(num_samples=num_samples)
    client.load_model = lambda vector: FlatModel(NormalizedCNN()).load(vector)
    method = build(name, params)
    vectors = {model: FlatModel(NormalizedCNN()).vector for model in method.model_names}
    shared = {"centroids": torch.zeros(10, 6)}
    reply = method.local_update(make_task(client, vectors, make_ctx(stage=stage), shared))
    assert all(torch.isfinite(vector).all() for vector in reply.models.values())
