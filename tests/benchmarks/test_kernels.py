"""Kernels of chains of layers, against torch in float64."""

import shutil
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from benchmarks.engine.chain import UnsupportedError, record_chain
from benchmarks.engine.compiled import CompiledEngine
from methods.core.flat_model import FlatModel

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ on this machine")


def random_normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def passes(module: nn.Module, x: Tensor, engine: Any = None) -> list[Tensor]:
    """Output, gradient of the weights and gradient of the images."""
    model, x = FlatModel(module, engine), x.clone().requires_grad_()
    output = model(x)
    output.backward(random_normal(*output.shape, seed=1).to(x.dtype))
    assert x.grad is not None
    return [output.detach(), model.grad, x.grad]


def assert_close_to_torch(module: nn.Module, x: Tensor) -> None:
    expected = passes(module.double(), x)
    engine = CompiledEngine(module.float, x.shape[1:])
    for ours, exact in zip(passes(module, x.float(), engine), expected, strict=True):
        assert ours.shape == exact.shape
        assert float((ours - exact).abs().max()) <= 3e-6 * float(exact.abs().max())


# images, channels, height, width, filters, side, padding: the two of LeNet-5, and edge cases.
SHAPES = [
    (10, 3, 32, 32, 6, 5, 0),
    (10, 6, 14, 14, 16, 5, 0),
    (3, 1, 8, 8, 16, 3, 1),
    (2, 2, 7, 9, 5, 3, 2),
    (4, 3, 6, 11, 7, 5, 2),
    (2, 8, 5, 5, 8, 5, 4),
    (5, 3, 40, 3, 3, 3, 0),
    (1, 4, 2, 2, 4, 3, 2),
    (1, 1, 1, 1, 1, 1, 0),
    (2, 1, 4, 90, 3, 3, 1),
]


@pytest.mark.parametrize(
    ("images", "channels", "height", "width", "filters", "side", "padding"), SHAPES
)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    "others", [[], [nn.ReLU()], [nn.MaxPool2d(2)], [nn.ReLU(), nn.MaxPool2d(2)]]
)
def test_convolution(
    images: int,
    channels: int,
    height: int,
    width: int,
    filters: int,
    side: int,
    padding: int,
    bias: bool,
    others: list[nn.Module],
) -> None:
    torch.manual_seed(0)
    layer = nn.Conv2d(channels, filters, side, padding=padding, bias=bias)
    module, x = nn.Sequential(layer, *others), random_normal(images, channels, height, width)
    if min(height, width) + 2 * padding - side + 1 >= 2 or not any(
        isinstance(other, nn.MaxPool2d) for other in others
    ):
        assert_close_to_torch(module, x)


@pytest.mark.parametrize("images", [1, 4, 5, 11])
@pytest.mark.parametrize("sizes", [(400, 120, 84, 10), (1, 1), (16, 3), (7, 33), (31, 32, 5)])
def test_linear_layers(images: int, sizes: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    layers = [nn.Linear(*pair, bias=sizes != (7, 33)) for pair in pairwise(sizes)]
    modules = [part for layer in layers for part in (layer, nn.ReLU())][:-1]
    assert_close_to_torch(nn.Sequential(*modules), random_normal(images, sizes[0]))


def test_chain_of_all_layers() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(2, 5, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(5, 4, 2, bias=False),
        nn.Conv2d(4, 6, 3),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(6 * 2 * 3, 9),
        nn.ReLU(),
        nn.Linear(9, 3, bias=False),
    )
    assert_close_to_torch(module, random_normal(4, 2, 15, 19))


def test_pooling_selects_as_torch_does() -> None:
    """Of equal values the first; NaN has precedence. The convolution copies its input."""
    layer = nn.Conv2d(1, 1, 1)
    nn.init.ones_(layer.weight)
    nn.init.zeros_(layer.bias)  # type: ignore[arg-type]
    module = nn.Sequential(layer, nn.MaxPool2d(2), nn.ReLU())
    x = torch.zeros(3, 1, 7, 5)
    x[1] = random_normal(1, 7, 5).float()
    x[1, 0, 0, 1] = x[1, 0, 3, 3] = torch.nan
    x[1, 0, 2, 0] = -torch.inf
    x[2] = random_normal(1, 7, 5, seed=2).float().round()
    engine = CompiledEngine(lambda: module, (1, 7, 5))
    ours, expected = passes(module, x, engine), passes(module, x)
    for index in (0, 2):
        assert torch.equal(ours[index].nan_to_num(7), expected[index].nan_to_num(7))


def test_gradient_does_not_read_scratch_memory_of_earlier_calls() -> None:
    """Vectors beyond the last image must read zeros, not NaN of an earlier call."""
    module = nn.Sequential(nn.Conv2d(3, 2, 5), nn.Flatten(), nn.Linear(2 * 8 * 8, 3))
    engine = CompiledEngine(lambda: module, (3, 12, 12))
    assert passes(module, torch.full((4, 3, 12, 12), torch.nan), engine)[1].isnan().any()
    assert all(value.isfinite().all() for value in passes(module, torch.ones(1, 3, 12, 12), engine))


SHARED = nn.Linear(4, 4)


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(3, 512, 5),
        nn.Conv2d(3, 6, 5, stride=2),
        nn.Conv2d(3, 6, (5, 3)),
        nn.Conv2d(3, 6, 3, padding=(1, 0)),
        nn.Conv2d(3, 6, 3, padding="same"),
        nn.Conv2d(3, 6, 3, dilation=2),
        nn.Conv2d(3, 6, 5, groups=3),
        nn.Conv2d(3, 6, 1, padding=1),
        nn.ConvTranspose2d(3, 6, 3),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Linear(13, 2),
        nn.Sequential(nn.Conv2d(3, 6, 5), nn.MaxPool2d(2, stride=1)),
        nn.Sequential(nn.Conv2d(3, 6, 5), nn.MaxPool2d(3, stride=2)),
        nn.Sequential(nn.Conv2d(3, 6, 5), nn.MaxPool2d(2, padding=1)),
        nn.Sequential(nn.Conv2d(3, 6, 5), nn.MaxPool2d(2, ceil_mode=True)),
        nn.Sequential(nn.Conv2d(3, 6, 5), nn.MaxPool2d(2), nn.MaxPool2d(2)),
        nn.Sequential(nn.Conv2d(3, 6, 5), nn.Dropout()),
        nn.Sequential(nn.Conv2d(3, 6, 5), nn.Sigmoid()),
        nn.Sequential(nn.Conv2d(3, 4, 13), nn.Flatten(), SHARED, SHARED),
    ],
    ids=str,
)
def test_layers_without_kernels_are_not_recorded(layer: nn.Module) -> None:
    with pytest.raises(UnsupportedError):
        record_chain(layer, layer, torch.zeros(2, 3, 13, 13))


def test_branches_and_changes_of_values_are_not_recorded() -> None:
    class Branch(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 3, 3, padding=1)

        def forward(self, x: Tensor) -> Tensor:
            return self.conv(x) + x

    class Doubled(Branch):
        def forward(self, x: Tensor) -> Tensor:
            output: Tensor = self.conv(x).mul_(2)
            return output

    class OnlyInTraining(Branch):
        def forward(self, x: Tensor) -> Tensor:
            output: Tensor = self.conv(x)
            return output.relu() if self.training else output

    for module in (Branch(), Doubled(), OnlyInTraining()):
        with pytest.raises(UnsupportedError):
            record_chain(module, module, torch.zeros(2, 3, 13, 13))
