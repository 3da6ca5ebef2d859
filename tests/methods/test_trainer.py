"""What lasts through a visit, and networks on batches of one."""

import pytest
import torch
from torch import Tensor, nn

from benchmarks.models.base import BatchNorm
from methods.core import training
from methods.core.contract import Payload
from methods.core.flat_model import FlatModel
from methods.core.registry import build
from methods.toolkit.losses import cross_entropy


def test_epochs_one_by_one_equal_train(make_client, make_ctx, initial_vector):
    """Momentum and streams go on from epoch to epoch."""
    ctx = make_ctx(local_epochs=3, momentum=0.9, lr=0.02)
    first, second = make_client(), make_client()
    whole, parts = first.network(initial_vector), second.network(initial_vector)
    training.train(first, [whole], lambda batch: cross_entropy(whole(batch.x), batch.y), ctx)
    trainer = training.Trainer(second, [parts], ctx)
    for epoch in range(3):
        trainer.epoch(lambda batch: cross_entropy(parts(batch.x), batch.y), epoch)
    assert torch.equal(whole.vector, parts.vector)


def test_networks_that_rest_are_in_evaluation_mode_and_do_not_move(
    make_client, make_ctx, initial_vector
):
    """Although weight decay and momentum would move a network without a gradient."""
    client, ctx = make_client(), make_ctx(momentum=0.9, weight_decay=0.1)
    a, b = client.network(initial_vector), client.network(initial_vector)
    trainer = training.Trainer(client, [a, b], ctx)
    modes = []

    def loss(batch):
        modes.append((a.module.training, b.module.training))
        return cross_entropy(a(batch.x), batch.y)

    trainer.epoch(loss, nets=[a])
    assert set(modes) == {(True, False)}
    assert torch.equal(b.vector, initial_vector) and not torch.equal(a.vector, initial_vector)


class Normalised(nn.Module):
    """Our batch normalisation over maps of a single pixel, as at the end of cnn9 on 28x28 images."""

    feature_dim = 6

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 6, 8), BatchNorm(6), nn.ReLU(), nn.Flatten())
        self.head = nn.Linear(6, 10)

    def features(self, x: Tensor) -> Tensor:
        return self.body(x)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x))


def test_one_image_uses_the_running_statistics():
    net = FlatModel(Normalised()).train()
    before = net.vector.clone()
    x = torch.rand(1, 1, 8, 8)
    alone = net(x)
    assert torch.equal(net.vector, before)
    assert torch.equal(alone, net.eval()(x))


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
def test_last_batch_of_one_with_batch_normalisation(
    make_client, make_ctx, name, stage, params, num_samples
):
    """11 samples in batches of 10."""
    client = make_client(num_samples=num_samples)
    client.network = lambda vector: FlatModel(Normalised()).load(vector)
    method = build(name, params)
    vectors = {model: FlatModel(Normalised()).vector for model in method.model_names}
    reply = method.local_update(
        client, Payload(vectors, {"centroids": torch.zeros(10, 6)}), make_ctx(stage=stage)
    )
    assert all(torch.isfinite(vector).all() for vector in reply.models.values())
