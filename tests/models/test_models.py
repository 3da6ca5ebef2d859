"""Properties of every registered model, on the smallest images that it supports."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from benchmarks.models import MODELS, build
from benchmarks.models.base import ImageClassifier, Shape
from benchmarks.models.vgg import pool_to_7x7
from methods.core.params import build_params

# VGG-11 has 129 million parameters. Tests that need several copies of a model exclude it.
LIGHT = [name for name in MODELS.names() if name != "vgg11"]


def make(
    name: str, num_classes: int, shape: Shape, values: Mapping[str, Any] = {}
) -> ImageClassifier:
    return build(name, num_classes, shape, build_params(MODELS.get(name).params, values, "model"))


def seeded(
    name: str, shape: Shape, values: Mapping[str, Any] = {}, seed: int = 0, num_classes: int = 10
) -> ImageClassifier:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return make(name, num_classes, shape, values)


def smallest_shape(name: str) -> Shape:
    side = max(MODELS.get(name).min_image_size, 4)
    return (3, side, side)


def images(shape: Shape, number: int = 2) -> Tensor:
    return torch.randn(number, *shape, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    ("name", "num_classes", "shape", "params", "expected"),
    [
        ("lenet5", 10, (3, 32, 32), {}, 62_006),
        ("lenet5", 10, (1, 28, 28), {}, 44_426),
        ("cnn9", 10, (3, 32, 32), {}, 4_434_570),
        ("cnn9", 10, (1, 28, 28), {}, 4_432_266),
        ("resnet18", 10, (3, 32, 32), {}, 11_173_962),
        ("resnet34", 100, (3, 32, 32), {}, 21_328_292),
        ("resnet18", 1000, (3, 224, 224), {"stem": "imagenet"}, 11_689_512),
        ("resnet34", 1000, (3, 224, 224), {"stem": "imagenet"}, 21_797_672),
        ("resnet50", 14, (3, 224, 224), {}, 23_536_718),
        ("vgg11", 1000, (3, 224, 224), {}, 132_863_336),
        ("mlp", 10, (1, 28, 28), {}, 784 * 512 + 512 + 512 * 512 + 512 + 512 * 10 + 10),
        ("mlp", 10, (1, 8, 8), {"hidden": []}, 64 * 10 + 10),
        ("digits_cnn", 10, (1, 8, 8), {}, 13_706),
    ],
)
def test_parameter_count(
    name: str, num_classes: int, shape: Shape, params: Mapping[str, Any], expected: int
) -> None:
    with torch.device("meta"):
        model = make(name, num_classes, shape, params)
    assert sum(parameter.numel() for parameter in model.parameters()) == expected


@pytest.mark.parametrize("name", MODELS.names())
def test_output_shapes_and_features(name: str) -> None:
    shape = smallest_shape(name)
    model = seeded(name, shape, num_classes=7).eval()
    batch = images(shape)
    with torch.no_grad():
        features = model.features(batch)
        logits = model(batch)
        assert features.shape == (2, model.feature_dim)
        assert logits.shape == (2, 7)
        assert torch.equal(logits, model.head(features))
        assert torch.equal(logits, model(batch)), "evaluation is deterministic"


@pytest.mark.parametrize(("height", "width"), [(32, 32), (28, 28), (33, 47)])
@pytest.mark.parametrize("name", ["lenet5", "cnn9", "resnet18", "mlp", "digits_cnn"])
def test_other_image_sizes(name: str, height: int, width: int) -> None:
    model = seeded(name, (1, height, width)).eval()
    assert model(images((1, height, width))).shape == (2, 10)


@pytest.mark.parametrize("name", LIGHT)
def test_initial_weights_depend_on_the_seed_only(name: str) -> None:
    shape = smallest_shape(name)
    models = [seeded(name, shape, seed=seed) for seed in (3, 3, 4)]
    vectors = [nn.utils.parameters_to_vector(model.parameters()) for model in models]
    assert torch.equal(vectors[0], vectors[1])
    assert not torch.equal(vectors[0], vectors[2])


@pytest.mark.parametrize("name", MODELS.names())
def test_state_is_float_except_the_batch_counter(name: str) -> None:
    with torch.device("meta"):
        state = build(name, 10, smallest_shape(name)).state_dict()
    for key, tensor in state.items():
        assert tensor.dtype == (
            torch.int64 if key.endswith("num_batches_tracked") else torch.float32
        ), key


@pytest.mark.parametrize("name", LIGHT)
def test_functional_call_equals_forward(name: str) -> None:
    shape = smallest_shape(name)
    model = seeded(name, shape).eval()
    batch = images(shape)
    parameters = {
        key: tensor.detach().clone().requires_grad_() for key, tensor in model.named_parameters()
    }
    called = torch.func.functional_call(model, parameters, (batch,))
    direct = model(batch)
    assert torch.equal(called, direct)
    called.square().sum().backward()
    direct.square().sum().backward()
    for key, parameter in model.named_parameters():
        torch.testing.assert_close(parameters[key].grad, parameter.grad, rtol=0, atol=0, msg=key)


@pytest.mark.parametrize("name", ["cnn9", "resnet18"])
def test_compiles_to_one_graph(name: str) -> None:
    shape = smallest_shape(name)
    model = seeded(name, shape).eval()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    assert torch.equal(compiled(images(shape)), model(images(shape)))


@pytest.mark.parametrize("name", ["cnn9", "vgg11"])
def test_dropout_is_active_in_training(name: str) -> None:
    shape = smallest_shape(name)
    model = seeded(name, shape)
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        assert not torch.equal(model(images(shape)), model(images(shape)))


def test_cnn9_dropout_in_eval() -> None:
    shape = smallest_shape("cnn9")
    model = seeded("cnn9", shape, {"dropout_in_eval": True}).eval()
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        assert not torch.equal(model(images(shape)), model(images(shape)))


BATCH_OF_ONE = [
    ("lenet5", (3, 32, 32), {}),
    ("mlp", (1, 8, 8), {}),
    ("digits_cnn", (1, 8, 8), {}),
    ("cnn9", (1, 28, 28), {}),
    ("cnn9", (3, 32, 32), {}),
    ("resnet18", (1, 8, 8), {}),
    ("resnet18", (1, 28, 28), {}),
    ("resnet18", (3, 32, 32), {}),
    ("resnet18", (3, 32, 32), {"stem": "imagenet"}),
    ("resnet18", (3, 64, 64), {"stem": "imagenet"}),
    ("resnet34", (1, 8, 8), {}),
    ("resnet34", (3, 32, 32), {}),
    ("resnet50", (3, 32, 32), {}),
    ("resnet50", (3, 64, 64), {}),
]


@pytest.mark.parametrize(("name", "shape", "params"), BATCH_OF_ONE)
def test_training_on_a_batch_of_one(name: str, shape: Shape, params: Mapping[str, Any]) -> None:
    """torch's batch normalization does not support one value per channel in training.

    cnn9 reduces 28 x 28 to 1 x 1. A ResNet divides the side by 8 (cifar) or 32 (imagenet).
    """
    model = seeded(name, shape, params)
    assert torch.isfinite(model(images(shape, number=1))).all()
    model.eval()
    assert torch.isfinite(model(images(shape, number=1))).all()


@pytest.mark.parametrize("side", [1, 2, 7, 8])
def test_pooling_of_vgg_equals_that_of_torch(side: int) -> None:
    maps = torch.randn(2, 3, side, side, generator=torch.Generator().manual_seed(0))
    expected = torch.nn.functional.adaptive_avg_pool2d(maps, 7)
    assert torch.equal(pool_to_7x7(maps), expected)
