"""A model as one vector: views of weights, gradients and batch-norm statistics; optimisers on it that equal torch's."""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks import models
from benchmarks.models.base import BatchNorm
from methods.core.contract import TrainParams
from methods.core.flat_model import FlatModel
from methods.core.training import Optimizer, clip


def small_module() -> nn.Module:
    """Weights 3 x 2 x 1 x 1 + 3 and 2 x 3 + 2, batch norm 3 + 3; buffers: running mean and variance 3 + 3, and a step counter."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(2, 3, 1), BatchNorm(3), nn.Flatten(), nn.Linear(3, 2))


def images(count: int = 6, seed: int = 1) -> Tensor:
    return torch.randn(count, 2, 1, 1, generator=torch.Generator().manual_seed(seed))


def test_vector_is_weights_first_then_float_buffers() -> None:
    net = FlatModel(small_module())
    assert net.num_trainable == (6 + 3) + (3 + 3) + (6 + 2) == len(net.weights) == len(net.grad)
    assert len(net.vector) == net.num_trainable + 6 and net.vector.dtype == torch.float32
    assert torch.equal(net.vector[net.num_trainable :], torch.tensor([0.0] * 3 + [1.0] * 3)), (
        "running mean 0, running variance 1"
    )
    assert torch.equal(net.weights, nn.utils.parameters_to_vector(net.module.parameters()))


def test_vector_and_module_share_their_memory() -> None:
    net = FlatModel(small_module())
    parameters = list(net.module.parameters())
    net.weights.fill_(0.5)
    assert all(torch.equal(parameter, torch.full_like(parameter, 0.5)) for parameter in parameters)
    with torch.no_grad():
        parameters[-1].copy_(torch.tensor([7.0, 8.0]))
    assert net.vector[net.num_trainable - 2 : net.num_trainable].tolist() == [7.0, 8.0]
    net.vector[net.num_trainable :] = torch.arange(6.0)
    assert net.module[1].running_mean.tolist() == [0, 1, 2] and net.module[
        1
    ].running_var.tolist() == [3, 4, 5]  # type: ignore[index]


def test_backward_fills_the_flat_gradient_and_batch_norm_the_vector() -> None:
    module = small_module()
    net = FlatModel(copy.deepcopy(module))
    labels = torch.tensor([0, 1] * 3)
    functional.cross_entropy(module(images()), labels).backward()
    functional.cross_entropy(net(images()), labels).backward()
    assert torch.equal(
        net.grad,
        torch.cat(
            [
                parameter.grad.flatten()
                for parameter in module.parameters()
                if parameter.grad is not None
            ]
        ),
    )
    statistics = torch.cat([module[1].running_mean, module[1].running_var])  # type: ignore[index]
    assert torch.equal(net.vector[net.num_trainable :], statistics) and not torch.equal(
        statistics[:3], torch.zeros(3)
    )
    net.grad.zero_()
    functional.cross_entropy(net(images()), labels).backward()
    assert net.grad.abs().sum() > 0, "the gradients are still views after the gradient was cleared"


def test_loading_copies_and_remembers_where_it_started() -> None:
    net = FlatModel(small_module())
    received = torch.linspace(-1, 1, len(net.vector))
    before = received.clone()
    net.load(received)
    net.weights.add_(2)
    assert torch.equal(received, before), "what was received is not written on"
    assert torch.allclose(net.drift, torch.full((net.num_trainable,), 2.0))


def test_single_value_per_channel_trains_with_running_statistics_and_leaves_them() -> None:
    net = FlatModel(small_module()).train()
    net(images())
    before = net.vector.clone()
    one = net(images(1))
    assert net.module.training and torch.equal(net.vector, before)
    assert torch.equal(one, net.eval()(images(1)))


@pytest.mark.parametrize("name", ["resnet18", "mlp"])
def test_models_of_the_suite_come_apart_into_features_and_head(name: str) -> None:
    net = FlatModel(models.build(name, 4, (3, 32, 32))).eval()
    x = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        features = net.features(x)
        assert features.shape == (2, net.module.feature_dim)
        assert torch.equal(net.head(features), net(x))


@pytest.mark.parametrize(
    "settings",
    [
        {"momentum": 0.0},
        {"momentum": 0.9},
        {"momentum": 0.5, "weight_decay": 0.01},
        {"momentum": 0.0, "weight_decay": 0.1},
        {"optimizer": "adam", "lr": 0.01},
        {"optimizer": "adam", "lr": 0.01, "weight_decay": 0.1},
    ],
    ids=lambda settings: " ".join(f"{key}={value}" for key, value in settings.items()),
)
def test_optimiser_equals_torch(settings: dict[str, float | str]) -> None:
    train = TrainParams(**{"lr": 0.1, **settings})  # type: ignore[arg-type]
    module = small_module()
    net = FlatModel(copy.deepcopy(module))
    ours = Optimizer(net, train, train.lr)
    theirs: torch.optim.Optimizer
    if train.optimizer == "adam":
        theirs = torch.optim.Adam(module.parameters(), lr=train.lr, weight_decay=train.weight_decay)
    else:
        theirs = torch.optim.SGD(
            module.parameters(),
            lr=train.lr,
            momentum=train.momentum,
            weight_decay=train.weight_decay,
        )
    start = net.weights.clone()
    for step in range(8):
        x, labels = images(seed=step), torch.tensor([0, 1, 1, 0, 1, 0])
        net.grad.zero_()
        functional.cross_entropy(net(x), labels).backward()
        ours.step()
        theirs.zero_grad()
        functional.cross_entropy(module(x), labels).backward()
        theirs.step()
        assert torch.allclose(
            net.weights, nn.utils.parameters_to_vector(module.parameters()), rtol=0, atol=1e-6
        )
    assert (net.weights - start).abs().max() > 0.01, "eight steps go somewhere"


def test_clipping_equals_torch() -> None:
    for limit in (0.1, 100.0):
        module = small_module()
        net = FlatModel(copy.deepcopy(module))
        for model in (module, net):
            functional.cross_entropy(model(images()), torch.tensor([0, 1] * 3)).backward()
        nn.utils.clip_grad_norm_(module.parameters(), limit)
        clip(net.grad, limit)
        assert torch.allclose(
            net.grad,
            torch.cat([p.grad.flatten() for p in module.parameters() if p.grad is not None]),
            rtol=0,
            atol=1e-7,
        )
