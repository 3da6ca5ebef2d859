"""Our own convolution and pooling, against torch's."""

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
    kernels.replacements()
    return torch.ops.fln


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def agree(ours: Tensor, exact: Tensor) -> bool:
    return ours.shape == exact.shape and float((ours - exact).abs().max()) <= 3e-6 * float(
        exact.abs().max()
    )


# images, channels, height, width, filters, side, padding: LeNet-5's two, and the corners of the layout
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
def test_a_convolution_and_its_gradients_are_exact_up_to_rounding(
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
        normal(images, channels, height, width),
        normal(filters, channels, side, side, seed=1),
        normal(filters, seed=2),
    )
    out = F.conv2d(x, w, bias, padding=padding)
    g = normal(*out.shape, seed=3)
    of_x, of_w, of_bias = torch.ops.aten.convolution_backward(
        g, x, w, [filters], [1, 1], [padding] * 2, [1, 1], False, [0, 0], 1, [True, True, True]
    )
    assert agree(operators.convolve(x.float(), w.float(), bias.float(), padding, False), out)
    assert agree(
        operators.convolve(x.float(), w.float(), None, padding, False),
        F.conv2d(x, w, padding=padding),
    )
    assert agree(operators.convolve(g.float(), w.float(), None, side - 1 - padding, True), of_x)
    ours = operators.weight_gradient(x.float(), g.float(), side, padding)
    assert agree(ours[0], of_w) and agree(ours[1], of_bias)


def test_strided_inputs_are_read_as_they_are_meant(operators: Any) -> None:
    x, w, bias = (
        normal(2, 9, 8, 3).float().permute(0, 3, 1, 2),
        normal(3, 3, 3, 4).float().permute(3, 0, 1, 2),
        normal(8).float()[::2],
    )
    assert not any(part.is_contiguous() for part in (x, w, bias))
    assert agree(
        operators.convolve(x, w, bias, 0, False), F.conv2d(x.double(), w.double(), bias.double())
    )


def test_what_an_earlier_call_left_behind_does_not_leak_into_a_gradient(operators: Any) -> None:
    """The vectors that reach past the last image meet zeros, not the NaN of a network that has diverged."""
    operators.weight_gradient(
        torch.full((4, 3, 12, 12), torch.nan), torch.full((4, 2, 8, 8), torch.nan), 5, 0
    )
    assert all(
        part.isfinite().all()
        for part in operators.weight_gradient(
            torch.ones(1, 3, 12, 12), torch.ones(1, 2, 8, 8), 5, 0
        )
    )


def awkward() -> Iterator[Tensor]:
    yield normal(10, 6, 28, 28).float()
    yield normal(2, 3, 7, 5).float()  # a last row and column that no pool takes
    yield torch.zeros(2, 3, 6, 6)  # ties: the first wins
    broken = normal(2, 3, 6, 6).float()
    broken[0, 0, 0, 1] = broken[1, 2, 3, 3] = torch.nan
    broken[0, 1, 2, 2] = -torch.inf
    yield broken


@pytest.mark.parametrize("x", [*awkward()])
def test_pooling_is_torchs_to_the_byte(operators: Any, x: Tensor) -> None:
    out, where = F.max_pool2d(x, 2, return_indices=True)
    ours, ours_where = operators.max_pool(x)
    assert torch.equal(ours.nan_to_num(7), out.nan_to_num(7)) and torch.equal(ours_where, where)
    g = normal(*out.shape, seed=1).float()
    gradient = torch.ops.aten.max_pool2d_with_indices_backward(
        g, x, [2, 2], [2, 2], [0, 0], [1, 1], False, where
    )
    assert torch.equal(operators.max_pool_gradient(g, where, *x.shape[2:]), gradient)


@pytest.mark.parametrize(
    ("layer", "fits"),
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
def test_what_the_kernels_can_do_goes_to_them_and_the_rest_to_torch(
    layer: torch.nn.Module, fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []

    def noted(own: Any) -> Any:
        def call(*args: Any) -> Any:
            result = own(*args)
            asked.append(result is not NotImplemented)
            return result

        return call

    table = {operator: noted(own) for operator, own in kernels.replacements().items()}
    monkeypatch.setattr(kernels, "replacements", lambda: table)
    x = normal(2, 3, 13, 13).to(next(layer.parameters(), torch.zeros(0)).dtype)
    with torch.no_grad():
        expected = layer(x)
        with kernels.CustomKernelMode():
            assert torch.allclose(layer(x), expected, atol=1e-5)
    assert asked == [fits]


def test_a_compiler_that_fails_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "false")
    with pytest.raises(
        UserError,
        match=r"train.compile: false failed: exit code 1; legal here: train.compile=false, or CXX=\.\.\.",
    ):
        kernels.build()


def test_a_cache_that_cannot_be_written_is_told_in_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(kernels, "CACHE", tmp_path / "file" / "cache")
    with pytest.raises(
        UserError,
        match=r"cannot write to .*cache \(Not a directory\); legal: train.compile=false, or TORCHINDUCTOR_CACHE_DIR=FOLDER",
    ):
        kernels.build()
