"""What every network promises, checked for each registered model on the smallest images it reads."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from benchmarks.models import MODELS, build, names
from benchmarks.models.base import ImageClassifier, Shape

# VGG-11 alone has 129 million parameters: tests that need several copies of the weights leave it out
LIGHT = [name for name in names() if name != "vgg11"]


def seeded(
    name: str, shape: Shape, params: Mapping[str, Any] = {}, seed: int = 0, num_classes: int = 10
) -> ImageClassifier:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return build(name, num_classes, shape, params)


def smallest_shape(name: str) -> Shape:
    side = max(MODELS[name].smallest, 4)
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
        network = build(name, num_classes, shape, params)
    assert sum(parameter.numel() for parameter in network.parameters()) == expected


@pytest.mark.parametrize("name", names())
def test_shapes_and_the_cut_between_features_and_head(name: str) -> None:
    shape = smallest_shape(name)
    network = seeded(name, shape, num_classes=7).eval()
    batch = images(shape)
    with torch.no_grad():
        features = network.features(batch)
        logits = network(batch)
        assert features.shape == (2, network.feature_dim)
        assert logits.shape == (2, 7)
        assert torch.equal(logits, network.head(features))
        assert torch.equal(logits, network(batch)), "evaluation must be deterministic"


@pytest.mark.parametrize(("height", "width"), [(32, 32), (28, 28), (33, 47)])
@pytest.mark.parametrize("name", ["lenet5", "cnn9", "resnet18", "mlp", "digits_cnn"])
def test_other_image_sizes(name: str, height: int, width: int) -> None:
    network = seeded(name, (1, height, width)).eval()
    assert network(images((1, height, width))).shape == (2, 10)


@pytest.mark.parametrize("name", LIGHT)
def test_weights_come_from_the_seed_alone(name: str) -> None:
    shape = smallest_shape(name)
    first, again, other = (seeded(name, shape, seed=seed) for seed in (3, 3, 4))
    vectors = [
        nn.utils.parameters_to_vector(network.parameters()) for network in (first, again, other)
    ]
    assert torch.equal(vectors[0], vectors[1])
    assert not torch.equal(vectors[0], vectors[2])


@pytest.mark.parametrize("name", names())
def test_state_is_float_but_for_the_batch_counter(name: str) -> None:
    with torch.device("meta"):
        state = build(name, 10, smallest_shape(name)).state_dict()
    for key, tensor in state.items():
        assert tensor.dtype == (
            torch.int64 if key.endswith("num_batches_tracked") else torch.float32
        ), key


@pytest.mark.parametrize("name", LIGHT)
def test_functional_call_gives_the_same_output_and_gradients(name: str) -> None:
    shape = smallest_shape(name)
    network = seeded(name, shape).eval()
    batch = images(shape)
    parameters = {
        key: tensor.detach().clone().requires_grad_() for key, tensor in network.named_parameters()
    }
    called = torch.func.functional_call(network, parameters, (batch,))
    direct = network(batch)
    assert torch.equal(called, direct)
    called.square().sum().backward()
    direct.square().sum().backward()
    for key, parameter in network.named_parameters():
        torch.testing.assert_close(parameters[key].grad, parameter.grad, rtol=0, atol=0, msg=key)


@pytest.mark.parametrize("name", ["cnn9", "resnet18"])
def test_compiles_into_one_graph(name: str) -> None:
    shape = smallest_shape(name)
    network = seeded(name, shape).eval()
    compiled = torch.compile(network, backend="eager", fullgraph=True)
    assert torch.equal(compiled(images(shape)), network(images(shape)))


@pytest.mark.parametrize("name", ["cnn9", "vgg11"])
def test_dropout_is_on_in_training(name: str) -> None:
    shape = smallest_shape(name)
    network = seeded(name, shape)
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        assert not torch.equal(network(images(shape)), network(images(shape)))


def test_cnn9_dropout_in_evaluation_is_a_switch() -> None:
    shape = smallest_shape("cnn9")
    released = seeded("cnn9", shape, {"dropout_in_eval": True}).eval()
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        assert not torch.equal(released(images(shape)), released(images(shape)))


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
    """Torch's batch norm refuses a batch of one where a map is a single pixel; ours falls back to the running statistics.

    cnn9 shrinks 28 -> 14 -> 7 -> 5 -> 3 -> 1. A ResNet divides the side by 8 after the cifar stem and by 32 with the imagenet stem.
    """
    network = seeded(name, shape, params)
    assert torch.isfinite(network(images(shape, number=1))).all()
    network.eval()
    assert torch.isfinite(network(images(shape, number=1))).all()
