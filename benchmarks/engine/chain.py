"""Modules as chains of layers that have kernels: what a forward pass calls, in order."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

# Input times output channels of a convolution. Above this, torch's convolution is as fast.
MAX_CHANNEL_PRODUCT = 1024


class UnsupportedError(Exception):
    """The module has an operation without a kernel."""


@dataclass
class Layer:
    """A convolution or linear layer. Mirrors the struct in kernels.cpp, which describes it."""

    is_convolution: int
    channels: int
    height: int
    width: int
    filters: int
    side: int
    padding: int
    pool: int
    relu: int
    weight: int
    bias: int

    @property
    def output_size(self) -> int:
        """Values per image."""
        if not self.is_convolution:
            return self.filters
        height, width = (
            (size + 2 * self.padding - self.side + 1) // (2 if self.pool else 1)
            for size in (self.height, self.width)
        )
        return self.filters * height * width


def record_chain(module: nn.Module, function: Callable[[Tensor], Tensor], x: Tensor) -> list[Layer]:
    """Layers that `function`, a part of the module, applies to x. Raises UnsupportedError."""
    chains: list[list[Layer]] = []
    for training in (True, False):
        module.train(training)
        with torch.no_grad(), _Recorder(module, x) as recorder:
            output = function(x)
        if output is not recorder.current or not recorder.layers:
            raise UnsupportedError("the module does not return the output of its last layer")
        chains.append(recorder.layers)
    if chains[0] != chains[1]:
        raise UnsupportedError("the module has other layers in evaluation mode")
    return chains[0]


class _Recorder(TorchFunctionMode):
    """Context that records the layers. Every operation must act on the output of the last one."""

    def __init__(self, module: nn.Module, x: Tensor):
        super().__init__()
        self.layers: list[Layer] = []
        self.current = x
        self._positions: dict[int, int] = {}
        position = 0
        for parameter in module.parameters():
            self._positions[id(parameter)] = position
            position += parameter.numel()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        if func not in _READ_ONLY:
            name = getattr(func, "__name__", str(func))
            if func not in _RECORDERS or args[0] is not self.current:
                raise UnsupportedError(f"no kernel for {name}")
            if not _RECORDERS[func](self, *args, **(kwargs or {})):
                raise UnsupportedError(f"no kernel for this form of {name}")
            self.current = output
        return output

    def conv2d(
        self,
        x: Tensor,
        w: Tensor,
        bias: Tensor | None = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> bool:
        filters, channels, side, columns = w.shape
        first = padding if isinstance(padding, int) else padding[0]
        _, _, height, width = x.shape
        layer = Layer(1, channels, height, width, filters, side, first, 0, 0, -1, -1)
        self._add(layer, w, bias)
        return (
            side == columns
            and _all(stride, 1)
            and _all(dilation, 1)
            and _all(padding, first)
            and groups == 1
            and first < side
            and filters * channels <= MAX_CHANNEL_PRODUCT
        )

    def linear(self, x: Tensor, w: Tensor, bias: Tensor | None = None) -> bool:
        self._add(Layer(0, w.shape[1], 1, 1, w.shape[0], 1, 0, 0, 0, -1, -1), w, bias)
        return x.dim() == 2

    def _add(self, layer: Layer, w: Tensor, bias: Tensor | None) -> None:
        parameters = [w] if bias is None else [w, bias]
        if any(id(p) not in self._positions or p.dtype != torch.float32 for p in parameters):
            raise UnsupportedError("a layer has other weights than float32 parameters of its own")
        layer.weight, *rest = (self._positions.pop(id(p)) for p in parameters)
        layer.bias = rest[0] if rest else -1
        self.layers.append(layer)

    def max_pool2d(
        self,
        x: Tensor,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> bool:
        if x.dim() != 4 or not self.layers or self.layers[-1].pool:
            return False
        self.layers[-1].pool = 1
        is_2x2 = _all(kernel_size, 2) and (not stride or _all(stride, 2)) and _all(dilation, 1)
        return is_2x2 and _all(padding, 0) and not ceil_mode and not return_indices

    def relu(self, x: Tensor, inplace: bool = False) -> bool:
        """Before or after pooling: values and gradients are the same."""
        if self.layers:
            self.layers[-1].relu = 1
        return bool(self.layers)

    def flatten(self, x: Tensor, start_dim: int = 0, end_dim: int = -1) -> bool:
        return start_dim == 1 and end_dim == -1


def _all(value: Any, expected: int) -> bool:
    """True if a number, or each of several numbers, equals `expected`."""
    return value == expected or (isinstance(value, (tuple, list)) and {*value} == {expected})


_READ_ONLY = {getattr(Tensor, name).__get__ for name in ("shape", "ndim", "device", "dtype")}
_READ_ONLY |= {Tensor.size, Tensor.dim, Tensor.numel, Tensor.__len__}
_RECORDERS: dict[Any, Callable[..., bool]] = {
    torch.conv2d: _Recorder.conv2d,
    F.linear: _Recorder.linear,
    F.max_pool2d: _Recorder.max_pool2d,
    torch.max_pool2d: _Recorder.max_pool2d,
    F.relu: _Recorder.relu,
    torch.relu: _Recorder.relu,
    Tensor.relu: _Recorder.relu,
    torch.flatten: _Recorder.flatten,
    Tensor.flatten: _Recorder.flatten,
}
