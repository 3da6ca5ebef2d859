"""Custom kernels for convolution and pooling in small models (kernels.cpp).

The source is compiled once per machine, in about two seconds, and cached with other compiled code.
"""

import ctypes
import hashlib
import os
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from methods.core.errors import UserError

# torch's compiler uses the same directory.
CACHE = Path(os.environ.get("TORCHINDUCTOR_CACHE_DIR") or Path.home() / ".cache" / "fln-compiled")
# Input times output channels. Above this, torch's convolution is as fast.
MAX_CHANNEL_PRODUCT = 128
FLAGS = ["-std=c++17", "-O3", "-march=native", "-shared", "-fPIC"]

Library = ctypes.CDLL | None  # None: meta tensors, which have only a shape
Override = Callable[..., Any]  # returns NotImplemented for unsupported arguments

aten = torch.ops.aten


class Convolution(ctypes.Structure):
    """Sizes of a convolution. Mirrors the struct in kernels.cpp."""

    _names = ("images", "channels", "height", "width", "filters", "side", "padding")
    _fields_ = [(name, ctypes.c_int) for name in _names]


def compiler() -> str:
    """Name of the C++ compiler."""
    return os.environ.get("CXX", "g++")


def compiler_error(reason: str) -> UserError:
    """Error of a missing or failing compiler."""
    fix = "set the environment variable CXX, or train.compile=false"
    return UserError(f"cannot compile: {reason}; {fix}")


def with_custom_kernels(decompositions: Mapping[Any, Override]) -> dict[Any, Override]:
    """Extend a table of decompositions, so that supported calls use the custom kernels."""

    def override(own: Override, default: Override | None) -> Override:
        def decompose(*args: Any, **kwargs: Any) -> Any:
            result = own(*args, **kwargs)
            return default(*args, **kwargs) if default and result is NotImplemented else result

        return decompose

    return dict(decompositions) | {
        operator: override(own, decompositions.get(operator))
        for operator, own in kernel_overrides().items()
    }


class CustomKernelMode(TorchDispatchMode):
    """Context in which supported calls use the custom kernels. For passes without gradients."""

    if TYPE_CHECKING:  # torch does not annotate the constructor

        def __init__(self) -> None: ...

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        own = kernel_overrides().get(func)
        result = NotImplemented if own is None else own(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {})) if result is NotImplemented else result


@cache
def kernel_overrides() -> dict[Any, Override]:
    """Map operators of torch to functions that call a kernel or return NotImplemented."""
    register(build())
    own = torch.ops.fln

    def convolution(x: Tensor, w: Tensor, bias: Tensor | None, *options: Any) -> Any:
        if not conv_supported(x, w, *options):
            return NotImplemented
        return own.convolve.default(x, w, bias, options[1][0], False)

    def convolution_backward(
        grad: Tensor, x: Tensor, w: Tensor, bias_sizes: Any, *arguments: Any
    ) -> Any:
        *options, (needs_x, needs_w, needs_bias) = arguments
        if not conv_supported(x, w, *options):
            return NotImplemented
        side, padding = w.shape[2], options[1][0]
        grad_x = grad_w = grad_bias = None
        if needs_x:
            grad_x = own.convolve.default(grad, w, None, side - 1 - padding, True)
        if needs_w or needs_bias:
            grad_w, grad_bias = own.weight_gradient.default(x, grad, side, padding)
        return grad_x, grad_w if needs_w else None, grad_bias if needs_bias else None

    def pool(x: Tensor, *options: Any) -> Any:
        return own.max_pool.default(x) if max_pool_supported(x, *options) else NotImplemented

    def pool_backward(grad: Tensor, x: Tensor, *arguments: Any) -> Any:
        *options, indices = arguments
        if not max_pool_supported(x, *options):
            return NotImplemented
        return own.max_pool_gradient.default(grad, indices, x.shape[2], x.shape[3])

    return {
        aten.convolution.default: convolution,
        aten.convolution_backward.default: convolution_backward,
        aten.max_pool2d_with_indices.default: pool,
        aten.max_pool2d_with_indices_backward.default: pool_backward,
    }


def conv_supported(
    x: Tensor,
    w: Tensor,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> bool:
    """True for a square convolution with stride 1 and few channels."""
    return (
        is_image_batch(x)
        and w.shape[0] * w.shape[1] <= MAX_CHANNEL_PRODUCT
        and w.shape[2] == w.shape[3]
        and list(stride) == list(dilation) == [1, 1]
        and padding[0] == padding[1] < w.shape[2]
        and not transposed
        and groups == 1
    )


def max_pool_supported(
    x: Tensor,
    kernel: Any,
    stride: Any = (),
    padding: Any = (0,),
    dilation: Any = (1,),
    ceil_mode: bool = False,
) -> bool:
    """True for 2x2 max-pooling with stride 2 and no padding."""
    is_2x2 = {*kernel, *stride} == {2} and {*dilation} == {1}
    return is_image_batch(x) and is_2x2 and not any(padding) and not ceil_mode


def is_image_batch(x: Tensor) -> bool:
    """True for a 4-dimensional float32 tensor on the CPU, or its meta tensor."""
    return x.dim() == 4 and x.dtype == torch.float32 and x.device.type in ("cpu", "meta")


def build() -> ctypes.CDLL:
    """Compile kernels.cpp, or load it from the cache."""
    source = Path(__file__).with_suffix(".cpp")
    # The macros identify the compiler and the native CPU, as machines can share a cache directory.
    macros = run_compiler("-dM", "-E", "-x", "c++", os.devnull)
    target = CACHE / f"kernels-{hashlib.sha256(source.read_bytes() + macros).hexdigest()[:16]}.so"
    if not target.exists():
        try:
            CACHE.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=CACHE) as directory:
                library = Path(directory, target.name)
                run_compiler(str(source), "-o", str(library))
                library.replace(target)
        except OSError as error:
            reason = f"{CACHE} is not writable ({error.strerror})"
            fix = "set TORCHINDUCTOR_CACHE_DIR=DIR, or train.compile=false"
            raise UserError(f"cannot compile: {reason}; {fix}") from error
    return ctypes.CDLL(str(target))


def run_compiler(*arguments: str) -> bytes:
    """Run the C++ compiler and return its standard output."""
    result = subprocess.run([compiler(), *FLAGS, *arguments], capture_output=True, check=False)
    if result.returncode:
        lines = result.stderr.decode(errors="replace").splitlines()
        reason = next((line for line in lines if "error" in line), f"exit code {result.returncode}")
        raise compiler_error(f"{compiler()} failed ({reason})")
    return result.stdout


def register(library: ctypes.CDLL) -> None:
    """Define the operators fln::*, on the CPU and for meta tensors."""
    pointer, number = ctypes.c_void_p, ctypes.c_int
    library.convolve.argtypes = [pointer] * 4 + [Convolution, number]
    library.weight_gradient.argtypes = [pointer] * 4 + [Convolution]
    library.max_pool.argtypes = library.max_pool_gradient.argtypes = [pointer] * 3 + [number] * 3
    function: Callable[..., Any]
    for function, schema in (
        (convolve, "(Tensor x, Tensor w, Tensor? bias, int padding, bool backward) -> Tensor"),
        (weight_gradient, "(Tensor x, Tensor grad, int side, int padding) -> (Tensor, Tensor)"),
        (max_pool, "(Tensor x) -> (Tensor, Tensor)"),
        (max_pool_gradient, "(Tensor grad, Tensor indices, int height, int width) -> Tensor"),
    ):
        name = f"fln::{function.__name__}"
        torch.library.define(name, schema)
        torch.library.impl(name, "cpu", partial(function, library))
        torch.library.impl(name, "meta", partial(function, None))


def convolve(
    library: Library, x: Tensor, w: Tensor, bias: Tensor | None, padding: int, backward: bool
) -> Tensor:
    """Convolution, or with `backward` the gradient of its input."""
    images, channels, height, width = x.shape
    filters, side = w.shape[1 if backward else 0], w.shape[2]
    margin = side - 1 - 2 * padding
    out = x.new_empty(images, filters, height - margin, width - margin)
    if library is not None:
        shape = Convolution(images, channels, height, width, filters, side, padding)
        _call(library.convolve, x, w, bias, out, shape, backward)
    return out


def weight_gradient(
    library: Library, x: Tensor, grad: Tensor, side: int, padding: int
) -> tuple[Tensor, Tensor]:
    """Gradients of the weights and the bias of a convolution."""
    images, channels, height, width = x.shape
    filters = grad.shape[1]
    weights, bias = x.new_empty(filters, channels, side, side), x.new_empty(filters)
    if library is not None:
        shape = Convolution(images, channels, height, width, filters, side, padding)
        _call(library.weight_gradient, x, grad, weights, bias, shape)
    return weights, bias


def max_pool(library: Library, x: Tensor) -> tuple[Tensor, Tensor]:
    """2x2 max-pooling: maxima and their indices in the input plane."""
    images, channels, height, width = x.shape
    out = x.new_empty(images, channels, height // 2, width // 2)
    indices = out.new_empty(out.shape, dtype=torch.int64)
    if library is not None:
        _call(library.max_pool, x, out, indices, images * channels, height, width)
    return out, indices


def max_pool_gradient(
    library: Library, grad: Tensor, indices: Tensor, height: int, width: int
) -> Tensor:
    """Gradient of the input of 2x2 max-pooling."""
    images, channels, out_height, out_width = grad.shape
    out = grad.new_empty(images, channels, height, width)
    if library is not None:
        sizes = (images * channels, height * width, out_height * out_width)
        _call(library.max_pool_gradient, grad, indices, out, *sizes)
    return out


def _call(kernel: Callable[..., Any], *arguments: Any) -> None:
    """Call a kernel with pointers to contiguous tensors. Outputs are contiguous already."""
    # The list keeps contiguous copies alive during the call.
    values = [value.contiguous() if isinstance(value, Tensor) else value for value in arguments]
    kernel(*(value.data_ptr() if isinstance(value, Tensor) else value for value in values))
