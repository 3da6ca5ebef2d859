"""A model is a vector: the trainable weights first, then the float buffers (batch-norm statistics)."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

Engine = Callable[
    ["FlatModel", str, Tensor], Tensor
]  # computes a pass of a network: which part of it, and its input


class FlatModel:
    """A module whose parameters, gradients and float buffers are views of three flat vectors.

    `vector` is what travels; `weights` is its trainable prefix; `grad` is the gradient of `weights`; `start` is the vector last loaded, that is
    the model as the client received it. Integer buffers (batch-norm's step counter) stay behind: nothing reads them.
    An engine, where there is one, computes the passes; without one they are the module's own.
    """

    def __init__(self, module: nn.Module, engine: Engine | None = None):
        self.module, self._engine = module, engine
        parameters = list(module.parameters())
        buffers = [
            (owner, name)
            for owner in module.modules()
            for name, b in owner.named_buffers(recurse=False)
            if b.is_floating_point()
        ]
        tensors = parameters + [getattr(owner, name) for owner, name in buffers]
        self.num_trainable = sum(p.numel() for p in parameters)
        self.vector = torch.cat([t.detach().reshape(-1) for t in tensors])
        self.weights = self.vector[: self.num_trainable]
        self.buffers = self.vector[self.num_trainable :]
        self.grad = torch.zeros_like(self.weights)
        self.start = self.vector
        self.leaf = (
            self.weights.detach().requires_grad_()
        )  # all weights as one leaf of autograd, for engines
        self.leaf.grad = self.grad
        offset = 0
        for parameter in parameters:
            end = offset + parameter.numel()
            parameter.data = self.vector[offset:end].view(parameter.shape)
            parameter.grad = self.grad[offset:end].view(parameter.shape)
            offset = end
        for owner, name in buffers:
            buffer = getattr(owner, name)
            end = offset + buffer.numel()
            setattr(owner, name, self.vector[offset:end].view(buffer.shape))
            offset = end

    def __call__(self, x: Tensor) -> Tensor:
        return self._pass("forward", x)

    def features(self, x: Tensor) -> Tensor:
        return self._pass("features", x)

    def head(self, h: Tensor) -> Tensor:
        return self._pass("head", h)

    def _pass(self, part: str, x: Tensor) -> Tensor:
        return self.plain(part, x) if self._engine is None else self._engine(self, part, x)

    @property
    def learns(self) -> bool:
        """Whether a pass now is one that trains."""
        return self.module.training and torch.is_grad_enabled()

    def plain(self, part: str, x: Tensor) -> Any:
        """A pass of the module itself."""
        return getattr(self.module, part)(x)

    def load(self, vector: Tensor) -> "FlatModel":
        self.vector.copy_(vector)
        self.start = vector
        return self

    def train(self) -> "FlatModel":
        self.module.train()
        return self

    def eval(self) -> "FlatModel":
        self.module.eval()
        return self

    @property
    def drift(self) -> Tensor:
        """w - w_start over the trainable weights."""
        return self.weights - self.start[: self.num_trainable]
