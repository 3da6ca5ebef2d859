"""Convolution and pooling for small networks (kernels.cpp), as operators that compiled passes call in place of torch's.

The source is compiled once per machine, in about two seconds, and kept with the other compiled code.
"""

import ctypes
import hashlib
import os
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from methods.core.errors import UserError

CACHE = Path(
    os.environ.get("TORCHINDUCTOR_CACHE_DIR") or Path.home() / ".cache" / "fln-compiled"
)  # torch's compiler writes there too
LARGEST = 128  # channels times filters: beyond it torch's convolution, which fills its vectors with channels, is as fast
FLAGS = ["-std=c++17", "-O3", "-march=native", "-shared", "-fPIC"]

OPERATORS = torch.library.Library("fln", "DEF")

aten = torch.ops.aten


class Convolution(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_int)
        for name in ("images", "channels", "height", "width", "filters", "side", "padding")
    ]


def compiler() -> str:
    return os.environ.get("CXX", "g++")


def added_to(decompositions: Mapping[Any, Callable[..., Any]]) -> dict[Any, Callable[..., Any]]:
    """A compiler's table of decompositions, by which the calls that fit go to the kernels, and all others where they went before."""

    def first_of(own: Callable[..., Any], other: Callable[..., Any] | None) -> Callable[..., Any]:
        def decompose(*args: Any, **kwargs: Any) -> Any:
            result = own(*args, **kwargs)
            return (
                other(*args, **kwargs) if result is NotImplemented and other is not None else result
            )

        return decompose

    return dict(decompositions) | {
        operator: first_of(own, decompositions.get(operator))
        for operator, own in replacements().items()
    }


class CustomKernelMode(TorchDispatchMode):
    """Within it the calls that fit go to the kernels. For passes without gradients."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        own = replacements().get(func)
        result = NotImplemented if own is None else own(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {})) if result is NotImplemented else result


@cache
def replacements() -> dict[Any, Callable[..., Any]]:
    """For each of torch's operators the call of a kernel, or NotImplemented where it does not fit."""
    register(build())
    own = torch.ops.fln

    def convolution(x: Tensor, w: Tensor, bias: Tensor | None, *how: Any) -> Any:
        return (
            own.convolve.default(x, w, bias, how[1][0], False)
            if fits(x, w, *how)
            else NotImplemented
        )

    def convolution_backward(
        g: Tensor, x: Tensor, w: Tensor, bias_sizes: Any, *how_and_what: Any
    ) -> Any:
        *how, (of_images, of_weights, of_bias) = how_and_what
        if not fits(x, w, *how):
            return NotImplemented
        side, padding = w.shape[2], how[1][0]
        images = own.convolve.default(g, w, None, side - 1 - padding, True) if of_images else None
        weights, bias = (
            own.weight_gradient.default(x, g, side, padding)
            if of_weights or of_bias
            else (None, None)
        )
        return images, weights if of_weights else None, bias if of_bias else None

    def pool(x: Tensor, *how: Any) -> Any:
        return own.max_pool.default(x) if halves(x, *how) else NotImplemented

    def pool_backward(g: Tensor, x: Tensor, *how_and_where: Any) -> Any:
        *how, where = how_and_where
        return (
            own.max_pool_gradient.default(g, where, x.shape[2], x.shape[3])
            if halves(x, *how)
            else NotImplemented
        )

    return {
        aten.convolution.default: convolution,
        aten.convolution_backward.default: convolution_backward,
        aten.max_pool2d_with_indices.default: pool,
        aten.max_pool2d_with_indices_backward.default: pool_backward,
    }


def fits(
    x: Tensor,
    w: Tensor,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> bool:
    return (
        is_batch(x)
        and w.shape[0] * w.shape[1] <= LARGEST
        and w.shape[2] == w.shape[3]
        and list(stride) == list(dilation) == [1, 1]
        and padding[0] == padding[1] < w.shape[2]
        and not transposed
        and groups == 1
    )


def halves(
    x: Tensor,
    kernel: Any,
    stride: Any = (),
    padding: Any = (0,),
    dilation: Any = (1,),
    ceil_mode: bool = False,
) -> bool:
    return (
        is_batch(x)
        and {*kernel, *stride} == {2}
        and not any(padding)
        and {*dilation} == {1}
        and not ceil_mode
    )


def is_batch(x: Tensor) -> bool:
    return x.dim() == 4 and x.dtype == torch.float32 and x.device.type in ("cpu", "meta")


def build() -> ctypes.CDLL:
    source = Path(__file__).with_suffix(".cpp")
    # The compiler's own account of itself and of what "native" is here: a cache may be shared by machines.
    macros = run(compiler(), *FLAGS, "-dM", "-E", "-x", "c++", os.devnull)
    target = CACHE / f"kernels-{hashlib.sha256(source.read_bytes() + macros).hexdigest()[:16]}.so"
    if not target.exists():
        try:
            CACHE.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=CACHE) as folder:
                made = Path(folder, target.name)
                run(compiler(), *FLAGS, str(source), "-o", str(made))
                made.replace(target)
        except OSError as error:
            legal = "train.compile=false, or TORCHINDUCTOR_CACHE_DIR=FOLDER"
            raise UserError(
                f"train.compile cannot write to {CACHE} ({error.strerror}); legal: {legal}"
            ) from error
    return ctypes.CDLL(str(target))


def run(*command: str) -> bytes:
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        said = done.stderr.decode(errors="replace").splitlines()
        reason = next((line for line in said if "error" in line), f"exit code {done.returncode}")
        raise UserError(
            f"train.compile: {command[0]} failed: {reason}; legal here: train.compile=false, or CXX=..."
        )
    return done.stdout


def register(library: ctypes.CDLL) -> None:
    """The operators fln::*. While passes are traced only the outputs' shapes matter, and nothing is computed."""
    pointer, number = ctypes.c_void_p, ctypes.c_int
    library.convolve.argtypes = [pointer] * 4 + [Convolution, number]
    library.weight_gradient.argtypes = [pointer] * 4 + [Convolution]
    library.max_pool.argtypes = library.max_pool_gradient.argtypes = [pointer] * 3 + [number] * 3
    for signature, function in (
        (
            "convolve(Tensor x, Tensor w, Tensor? bias, int padding, bool backwards) -> Tensor",
            convolve,
        ),
        (
            "weight_gradient(Tensor x, Tensor g, int side, int padding) -> (Tensor, Tensor)",
            weight_gradient,
        ),
        ("max_pool(Tensor x) -> (Tensor, Tensor)", max_pool),
        (
            "max_pool_gradient(Tensor g, Tensor where, int height, int width) -> Tensor",
            max_pool_gradient,
        ),
    ):
        OPERATORS.define(signature)
        OPERATORS.impl(function.__name__, partial(function, library), "CPU")
        OPERATORS.impl(function.__name__, partial(function, None), "Meta")


def convolve(
    library: ctypes.CDLL | None,
    x: Tensor,
    w: Tensor,
    bias: Tensor | None,
    padding: int,
    backwards: bool,
) -> Tensor:
    images, channels, height, width = x.shape
    filters, side = w.shape[1 if backwards else 0], w.shape[2]
    shrinks = side - 1 - 2 * padding
    out = x.new_empty(images, filters, height - shrinks, width - shrinks)
    if library is not None:
        x, w, bias = x.contiguous(), w.contiguous(), None if bias is None else bias.contiguous()
        shape = Convolution(images, channels, height, width, filters, side, padding)
        library.convolve(
            x.data_ptr(),
            w.data_ptr(),
            None if bias is None else bias.data_ptr(),
            out.data_ptr(),
            shape,
            backwards,
        )
    return out


def weight_gradient(
    library: ctypes.CDLL | None, x: Tensor, g: Tensor, side: int, padding: int
) -> tuple[Tensor, Tensor]:
    images, channels, height, width = x.shape
    filters = g.shape[1]
    weights, bias = x.new_empty(filters, channels, side, side), x.new_empty(filters)
    if library is not None:
        x, g = x.contiguous(), g.contiguous()
        shape = Convolution(images, channels, height, width, filters, side, padding)
        library.weight_gradient(
            x.data_ptr(), g.data_ptr(), weights.data_ptr(), bias.data_ptr(), shape
        )
    return weights, bias


def max_pool(library: ctypes.CDLL | None, x: Tensor) -> tuple[Tensor, Tensor]:
    images, channels, height, width = x.shape
    out = x.new_empty(images, channels, height // 2, width // 2)
    where = out.new_empty(out.shape, dtype=torch.int64)
    if library is not None:
        x = x.contiguous()
        library.max_pool(
            x.data_ptr(), out.data_ptr(), where.data_ptr(), images * channels, height, width
        )
    return out, where


def max_pool_gradient(
    library: ctypes.CDLL | None, g: Tensor, where: Tensor, height: int, width: int
) -> Tensor:
    images, channels = g.shape[:2]
    out = g.new_empty(images, channels, height, width)
    if library is not None:
        g, where = g.contiguous(), where.contiguous()
        library.max_pool_gradient(
            g.data_ptr(),
            where.data_ptr(),
            out.data_ptr(),
            images * channels,
            height * width,
            g.shape[2] * g.shape[3],
        )
    return out
