"""Custom kernels for convolution and pooling, against torch."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.engine import kernels
from methods.core.errors import UserError

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ on this machine")


@pytest.fixture
def operators() -> Any:
    kernels.kernel_overrides()
    return torch.ops.fln


def random_normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def is_close(ours: Tensor, exact: Tensor) -> bool:
    return ours.shape == exact.shape and float((ours - exact).abs().max()) <= 3e-6 * float(
        exact.abs().max()
    )


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
]


@pytest.mark.parametrize(
    ("images", "channels", "height", "width", "filters", "side", "padding"), SHAPES
)
def test_convolution_and_gradients_equal_torchs_up_to_rounding(
    operators: Any,
    images: int,
    channels: int,
    height: int,
    width: int,
    filters: int,
    side: int,
    padding: int,
) -> None:
    x, w, bias = (
        random_normal(images, channels, height, width),
        random_normal(filters, channels, side, side, seed=1),
        random_normal(filters, seed=2),
    )
    out = F.conv2d(x, w, bias, padding=padding)
    g = random_normal(*out.shape, seed=3)
    of_x, of_w, of_bias = torch.ops.aten.convolution_backward(
        g, x, w, [filters], [1, 1], [padding] * 2, [1, 1], False, [0, 0], 1, [True, True, True]
    )
    assert is_close(operators.convolve(x.float(), w.float(), bias.float(), padding, False), out)
    assert is_close(
        operators.convolve(x.float(), w.float(), None, padding, False),
        F.conv2d(x, w, padding=padding),
    )
    assert is_close(operators.convolve(g.float(), w.float(), None, side - 1 - padding, True), of_x)
    ours = operators.weight_gradient(x.float(), g.float(), side, padding)
    assert is_close(ours[0], of_w) and is_close(ours[1], of_bias)


def test_non_contiguous_inputs(operators: Any) -> None:
    x, w, bias = (
        random_normal(2, 9, 8, 3).float().permute(0, 3, 1, 2),
        random_normal(3, 3, 3, 4).float().permute(3, 0, 1, 2),
        random_normal(8).float()[::2],
    )
    assert not any(tensor.is_contiguous() for tensor in (x, w, bias))
    assert is_close(
        operators.convolve(x, w, bias, 0, False), F.conv2d(x.double(), w.double(), bias.double())
    )


def test_gradient_does_not_read_scratch_memory_of_earlier_calls(operators: Any) -> None:
    """Vectors beyond the last image must read zeros, not NaN of an earlier call."""
    operators.weight_gradient(
        torch.full((4, 3, 12, 12), torch.nan), torch.full((4, 2, 8, 8), torch.nan), 5, 0
    )
    assert all(
        gradient.isfinite().all()
        for gradient in operators.weight_gradient(
            torch.ones(1, 3, 12, 12), torch.ones(1, 2, 8, 8), 5, 0
        )
    )


def edge_cases() -> Iterator[Tensor]:
    yield random_normal(10, 6, 28, 28).float()
    yield random_normal(2, 3, 7, 5).float()  # odd sizes: the last row and column are not pooled
    yield torch.zeros(2, 3, 6, 6)  # equal values: the first is selected
    special = random_normal(2, 3, 6, 6).float()
    special[0, 0, 0, 1] = special[1, 2, 3, 3] = torch.nan
    special[0, 1, 2, 2] = -torch.inf
    yield special


@pytest.mark.parametrize("x", [*edge_cases()])
def test_pooling_equals_torchs_exactly(operators: Any, x: Tensor) -> None:
    out, indices = F.max_pool2d(x, 2, return_indices=True)
    ours, ours_indices = operators.max_pool(x)
    assert torch.equal(ours.nan_to_num(7), out.nan_to_num(7)) and torch.equal(ours_indices, indices)
    g = random_normal(*out.shape, seed=1).float()
    gradient = torch.ops.aten.max_pool2d_with_indices_backward(
        g, x, [2, 2], [2, 2], [0, 0], [1, 1], False, indices
    )
    assert torch.equal(operators.max_pool_gradient(g, indices, *x.shape[2:]), gradient)


@pytest.mark.parametrize(
    ("layer", "is_supported"),
    [
        (torch.nn.Conv2d(3, 6, 5), True),
        (torch.nn.Conv2d(3, 6, 5, padding=2, bias=False), True),
        (torch.nn.Conv2d(3, 64, 5), False),
        (torch.nn.Conv2d(3, 6, 5, stride=2), False),
        (torch.nn.Conv2d(3, 6, (5, 3)), False),
        (torch.nn.Conv2d(3, 6, 3, padding=(1, 0)), False),
        (torch.nn.Conv2d(3, 6, 3, dilation=2), False),
        (torch.nn.Conv2d(3, 6, 5, groups=3), False),
        (torch.nn.Conv2d(3, 6, 1, padding=1), False),
        (torch.nn.ConvTranspose2d(3, 6, 3), False),
        (torch.nn.Conv2d(3, 6, 5).double(), False),
        (torch.nn.MaxPool2d(2), True),
        (torch.nn.MaxPool2d(2, stride=1), False),
        (torch.nn.MaxPool2d(3, stride=2), False),
        (torch.nn.MaxPool2d(2, padding=1), False),
        (torch.nn.MaxPool2d(2, ceil_mode=True), False),
    ],
)
def test_supported_layers_use_the_kernels(
    layer: torch.nn.Module, is_supported: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[bool] = []

    def recorded(own: Any) -> Any:
        def call(*args: Any) -> Any:
            result = own(*args)
            used.append(result is not NotImplemented)
            return result

        return call

    table = {operator: recorded(own) for operator, own in kernels.kernel_overrides().items()}
    monkeypatch.setattr(kernels, "kernel_overrides", lambda: table)
    x = random_normal(2, 3, 13, 13).to(next(layer.parameters(), torch.zeros(0)).dtype)
    with torch.no_grad():
        expected = layer(x)
        with kernels.CustomKernelMode():
            assert torch.allclose(layer(x), expected, atol=1e-5)
    assert used == [is_supported]


def test_failing_compiler_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "false")
    with pytest.raises(
        UserError,
        match=r"cannot compile: false failed \(exit code 1\); set the environment variable CXX",
    ):
        kernels.build()


def test_unwritable_cache_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(kernels, "CACHE", tmp_path / "file" / "cache")
    with pytest.raises(
        UserError,
        match=r".*cache is not writable \(Not a directory\); set TORCHINDUCTOR_CACHE_DIR",
    ):
        kernels.build()
