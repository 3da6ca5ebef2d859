"""Compiled forward and backward passes of small models (`executor.compile`).

A pass is one call of a kernel for all layers of the model. Losses and other code of a method run as
usual, so a method needs no changes. Results equal those of the eager passes up to rounding. They
are identical between runs, and independent of the other images of a batch.
"""

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.engine.chain import UnsupportedError, record_chain
from benchmarks.engine.functional import FunctionalModule
from methods.core.errors import UserError
from methods.core.flat_model import FlatModel
from methods.toolkit.native import load_library

SLACK = 16  # values that kernels may write beyond the last one: the lanes of a vector
KERNELS = Path(__file__).with_name("kernels.cpp")


class CompiledEngine:
    """Passes of models that are chains of convolutions, pooling, ReLU and linear layers."""

    def __init__(self, build_module: Callable[[], nn.Module], shape: tuple[int, ...]):
        """Raises UserError if the model has other layers, or without a compiler."""
        self._arguments = build_module, shape
        with torch.random.fork_rng(devices=[]):
            module = build_module()
        if any(True for _ in module.buffers()):
            raise UserError("the model has buffers, for which there are no kernels")
        images = torch.zeros(2, *shape)
        try:
            self._chains = {"forward": Chain(module, "forward", images)}
        except UnsupportedError as error:
            raise UserError(f"the model has other layers than kernels ({error})") from None
        for name in ("features", "head"):
            try:
                chain = Chain(module, name, images)
                self._chains[name] = chain
                images = torch.zeros(2, chain.num_outputs)
            except (AttributeError, UnsupportedError):
                break

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process compiles again, or loads the kernels that its machine has compiled."""
        return CompiledEngine, self._arguments

    def __call__(self, model: FlatModel, submodule: str, x: Tensor) -> Tensor:
        chain = self._chains.get(submodule)
        if chain is None or not chain.accepts(x, model.weights):
            return model.module_forward(submodule, x)
        if not torch.is_grad_enabled():
            return chain.forward(model.weights, x.contiguous())[0]
        output: Tensor = _ChainPass.apply(model.weights_leaf, x, chain)  # type: ignore[no-untyped-call]
        return output


class Chain:
    """Kernel calls of one chain of layers."""

    def __init__(self, module: nn.Module, submodule: str, example: Tensor):
        function = getattr(module, submodule)
        layers = record_chain(module, function, example)
        self.functional = FunctionalModule(module, submodule)
        self._table = np.array([[*vars(layer).values()] for layer in layers], dtype=np.int64)
        self._head = (ctypes.c_void_p(self._table.ctypes.data), len(layers))
        self._input_shape = example.shape[1:]
        self._num_weights = sum(parameter.numel() for parameter in module.parameters())
        self._num_hidden = sum(layer.output_size for layer in layers)
        self.num_outputs = layers[-1].output_size
        self._output_shape = function(example).shape[1:]
        size, pointer = ctypes.c_int64, ctypes.c_void_p
        kernels = load_library(KERNELS)
        self._forward, self._backward = kernels.forward, kernels.backward
        self._forward.argtypes = [pointer, size, size, *[pointer] * 5]
        self._backward.argtypes = [pointer, size, size, *[pointer] * 7]

    def accepts(self, x: Tensor, weights: Tensor) -> bool:
        """True for a batch that the kernels can read."""
        return (
            x.shape[1:] == self._input_shape
            and x.dtype == weights.dtype == torch.float32
            and x.device.type == weights.device.type == "cpu"
            and x.shape[0] > 0
            and weights.numel() == self._num_weights
        )

    def forward(self, weights: Tensor, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Output, and what the backward pass needs: outputs of all layers, positions of maxima."""
        count = x.shape[0]
        hidden = x.new_empty(count * self._num_hidden + SLACK)
        where = torch.empty(hidden.shape, dtype=torch.int32)
        out = x.new_empty(count, *self._output_shape)
        self._call(self._forward, count, weights, x, hidden, where, out)
        return out, hidden, where

    def backward(
        self, weights: Tensor, x: Tensor, hidden: Tensor, where: Tensor, grad: Tensor, needs_x: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Gradients of the weights and of x."""
        weights_out = torch.zeros_like(weights)  # a chain need not have all layers of the model
        x_out = torch.empty_like(x) if needs_x else None
        tensors = (weights, x, hidden, where, grad, weights_out, x_out)
        self._call(self._backward, x.shape[0], *tensors)
        return weights_out, x_out

    def _call(self, kernel: Callable[..., int], count: int, *tensors: Tensor | None) -> None:
        pointers = (None if tensor is None else tensor.data_ptr() for tensor in tensors)
        if kernel(*self._head, count, *pointers):
            raise MemoryError("not enough memory for a training pass")


class _ChainPass(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weights: Tensor, x: Tensor, chain: Chain) -> Tensor:
        x = x.contiguous()
        out, hidden, where = chain.forward(weights, x)
        ctx.save_for_backward(weights, x, hidden, where)
        ctx.chain = chain
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        needs_x = ctx.needs_input_grad[1]
        if torch.is_grad_enabled():  # the gradient will be differentiated: eager passes
            weights, x, *_ = ctx.saved_tensors
            output = ctx.chain.functional.functional_forward(weights, x)
            inputs = (weights, x) if needs_x else (weights,)
            gradients = torch.autograd.grad(output, inputs, grad, create_graph=True)
            return (*gradients, *[None] * (3 - len(gradients)))
        return *ctx.chain.backward(*ctx.saved_tensors, grad.contiguous(), needs_x), None
