"""Flat models: memory of vector, gradients and buffers. Optimizers equal those of torch."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from benchmarks import models
from benchmarks.models.base import BatchNorm
from methods.core.flat_model import FlatModel
from methods.core.task import TrainParams
from methods.core.training import Optimizer, clip_grad_norm_

LABELS = torch.tensor([0, 1, 1, 0, 1, 0])


def small_module() -> nn.Sequential:
    """23 parameters: 6 + 3, batch norm 3 + 3, 6 + 2. Buffers: running mean and variance, 3 + 3."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(2, 3, 1), BatchNorm(3), nn.Flatten(), nn.Linear(3, 2))


def images(count: int = 6, seed: int = 1) -> Tensor:
    return torch.randn(count, 2, 1, 1, generator=torch.Generator().manual_seed(seed))


def gradients(module: nn.Module) -> Tensor:
    return torch.cat([p.grad.flatten() for p in module.parameters() if p.grad is not None])


@pytest.fixture
def module() -> nn.Sequential:
    return small_module()


@pytest.fixture
def model() -> FlatModel:
    """A flat model with the same weights as `module`."""
    return FlatModel(small_module())


def test_vector_holds_weights_then_float_buffers(model: FlatModel) -> None:
    assert model.num_trainable == len(model.weights) == len(model.grad) == 23
    assert len(model.vector) == 29 and model.vector.dtype == torch.float32
    assert model.buffers.tolist() == [0.0] * 3 + [1.0] * 3
    assert torch.equal(model.weights, nn.utils.parameters_to_vector(model.module.parameters()))


def test_vector_and_module_share_memory(model: FlatModel) -> None:
    parameters, norm = list(model.module.parameters()), list(model.module.modules())[2]
    model.weights.fill_(0.5)
    assert all(torch.equal(parameter, torch.full_like(parameter, 0.5)) for parameter in parameters)
    with torch.no_grad():
        parameters[-1].copy_(torch.tensor([7.0, 8.0]))
    assert model.weights[-2:].tolist() == [7.0, 8.0]
    model.buffers[:] = torch.arange(6.0)
    assert norm.running_mean.tolist() == [0, 1, 2] and norm.running_var.tolist() == [3, 4, 5]


def test_backward_fills_the_flat_gradient(module: nn.Sequential, model: FlatModel) -> None:
    cross_entropy(module(images()), LABELS).backward()
    for _ in range(2):  # gradients are still views after zero_()
        model.grad.zero_()
        cross_entropy(model(images()), LABELS).backward()
    assert torch.equal(model.grad, gradients(module))


def test_training_pass_updates_the_buffers(module: nn.Sequential, model: FlatModel) -> None:
    module(images())
    model(images())
    assert torch.equal(model.buffers, torch.cat([module[1].running_mean, module[1].running_var]))
    assert model.buffers[:3].any()


def test_load_copies_the_vector(model: FlatModel) -> None:
    received = torch.linspace(-1, 1, len(model.vector))
    before = received.clone()
    model.load(received)
    model.weights.add_(2)
    assert torch.equal(received, before)
    assert torch.allclose(model.drift, torch.full((model.num_trainable,), 2.0))


def test_moved_module_is_refused(model: FlatModel) -> None:
    """Its parameters would no longer be views of the vector, and training would change nothing."""
    vector = model.vector.clone()
    model.load(vector)
    model.module.double()
    with pytest.raises(RuntimeError, match="moved after"):
        model.load(vector)


def test_gradients_of_whole_vector_parameters_and_offset_add_up(model: FlatModel) -> None:
    ones = [torch.ones_like(leaf) for leaf in model.leaves]
    model.set_grad([None] * len(ones))
    assert not model.grad.any()
    model.set_grad([ones[0], *[None] * (len(ones) - 1)])
    assert model.grad.tolist() == [1] * 23
    model.grad_offset = torch.full_like(model.grad, 0.5)
    model.set_grad([ones[0], None, *ones[2:]])
    assert model.grad.tolist() == [1.5] * 6 + [2.5] * 17
    assert model.load(model.vector.clone()).grad_offset is None


def test_batch_of_one_uses_and_keeps_running_statistics(model: FlatModel) -> None:
    model.train()(images())
    before = model.vector.clone()
    logits = model(images(1))
    assert model.module.training and torch.equal(model.vector, before)
    assert torch.equal(logits, model.eval()(images(1)))


@pytest.mark.parametrize("name", ["resnet18", "mlp"])
def test_head_of_features_equals_forward(name: str) -> None:
    model = FlatModel(models.build(name, 4, (3, 32, 32))).eval()
    x = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        features = model.features(x)
        assert features.shape == (2, model.module.feature_dim)
        assert torch.equal(model.head(features), model(x))


@pytest.mark.parametrize(
    "changes",
    [
        {"momentum": 0.0},
        {"momentum": 0.9},
        {"momentum": 0.5, "weight_decay": 0.01},
        {"momentum": 0.0, "weight_decay": 0.1},
        {"optimizer": "adam", "lr": 0.01},
        {"optimizer": "adam", "lr": 0.01, "weight_decay": 0.1},
    ],
    ids=str,
)
def test_optimizer_equals_torch(module: nn.Sequential, model: FlatModel, changes) -> None:
    train = TrainParams(**{"lr": 0.1, **changes})
    options = {"lr": train.lr, "weight_decay": train.weight_decay}
    reference = (
        torch.optim.Adam(module.parameters(), **options)
        if train.optimizer == "adam"
        else torch.optim.SGD(module.parameters(), momentum=train.momentum, **options)
    )
    optimizer, before = Optimizer(model, train, train.lr), model.weights.clone()
    for step in range(8):
        model.grad.zero_()
        cross_entropy(model(images(seed=step)), LABELS).backward()
        optimizer.step()
        reference.zero_grad()
        cross_entropy(module(images(seed=step)), LABELS).backward()
        reference.step()
        expected = nn.utils.parameters_to_vector(module.parameters())
        assert torch.allclose(model.weights, expected, rtol=0, atol=1e-6)
    assert (model.weights - before).abs().max() > 0.01


@pytest.mark.parametrize("limit", [0.1, 100.0])
def test_clipping_equals_torch(module: nn.Sequential, model: FlatModel, limit: float) -> None:
    cross_entropy(module(images()), LABELS).backward()
    cross_entropy(model(images()), LABELS).backward()
    nn.utils.clip_grad_norm_(module.parameters(), limit)
    clip_grad_norm_(model.grad, limit)
    assert torch.allclose(model.grad, gradients(module), rtol=0, atol=1e-7)
