"""A model whose parameters form one flat vector: trainable parameters first, then float buffers."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

Engine = Callable[["FlatModel", str, Tensor], Tensor]  # (model, submodule, input) -> output


class FlatModel:
    """A module whose parameters, gradients and float buffers are views of flat vectors.

    Integer buffers are not in the vector. The step counter of batch norm is removed: nothing reads
    it. A module must be on its device before: moving it later would separate it from the vector.
    An engine, if given, computes the forward passes; otherwise the module does.
    """

    def __init__(self, module: nn.Module, engine: Engine | None = None):
        self.module, self._engine = module, engine
        for owner in module.modules():
            if hasattr(owner, "num_batches_tracked") and owner.momentum is not None:
                setattr(owner, "num_batches_tracked", None)  # noqa: B010 (its type is unknown)
        parameters = list(module.parameters())
        buffers = [
            (owner, name)
            for owner in module.modules()
            for name, buffer in owner.named_buffers(recurse=False)
            if buffer.is_floating_point()
        ]
        tensors = parameters + [getattr(owner, name) for owner, name in buffers]
        self.num_trainable = sum(parameter.numel() for parameter in parameters)
        # All parameters and float buffers; what clients and server exchange.
        self.vector = torch.cat([tensor.detach().reshape(-1) for tensor in tensors])
        self.weights = self.vector[: self.num_trainable]
        self.buffers = self.vector[self.num_trainable :]
        self.grad = torch.zeros_like(self.weights)  # the gradient of `weights`
        self.grad_offset: Tensor | None = None  # added to the gradient of every batch
        self.received_vector = self.vector  # the vector that was loaded last
        self.weights_leaf = self.weights.detach().requires_grad_()  # one autograd leaf, for engines
        self.weights_leaf.grad = self.grad
        self.leaves = (self.weights_leaf, *parameters)
        self._memory = self.vector.untyped_storage().data_ptr()
        sizes = [tensor.numel() for tensor in tensors]
        views = [v.view(t.shape) for v, t in zip(self.vector.split(sizes), tensors, strict=True)]
        grads = self.grad.split(sizes[: len(parameters)])
        for parameter, view, grad in zip(parameters, views, grads, strict=False):
            parameter.data, parameter.grad = view, grad.view(parameter.shape)
        for (owner, name), view in zip(buffers, views[len(parameters) :], strict=True):
            setattr(owner, name, view)

    def __call__(self, x: Tensor) -> Tensor:
        """Logits (n, classes)."""
        return self._forward("forward", x)

    def features(self, x: Tensor) -> Tensor:
        """Feature vectors (n, feature_dim), the input of `head`."""
        return self._forward("features", x)

    def head(self, features: Tensor) -> Tensor:
        """Logits of feature vectors."""
        return self._forward("head", features)

    def _forward(self, submodule: str, x: Tensor) -> Tensor:
        if self._engine is None:
            return self.module_forward(submodule, x)
        return self._engine(self, submodule, x)

    def module_forward(self, submodule: str, x: Tensor) -> Tensor:
        """Forward pass of the module itself."""
        output: Tensor = getattr(self.module, submodule)(x)
        return output

    @property
    def is_training_pass(self) -> bool:
        """True in training mode with gradients enabled."""
        return self.module.training and torch.is_grad_enabled()

    @property
    def drift(self) -> Tensor:
        """w - w_received over the trainable parameters."""
        return self.weights - self.received_vector[: self.num_trainable]

    def load(self, vector: Tensor) -> "FlatModel":
        if next(self.module.parameters()).untyped_storage().data_ptr() != self._memory:
            raise RuntimeError("the module was moved after its parameters became views of a vector")
        self.vector.copy_(vector)
        self.received_vector, self.grad_offset = vector, None
        return self

    def set_grad(self, grads: Sequence[Tensor | None]) -> None:
        """Set `grad` from the gradients of `leaves`; None is zero."""
        whole, *parts = grads
        if any(part is not None for part in parts):
            flat = [
                torch.zeros_like(leaf).view(-1) if part is None else part.reshape(-1)
                for part, leaf in zip(parts, self.leaves[1:], strict=True)
            ]
            torch.cat(flat, out=self.grad)
            if whole is not None:
                self.grad.add_(whole)
        elif whole is not None:
            self.grad.copy_(whole)
        else:
            self.grad.zero_()
        if self.grad_offset is not None:
            self.grad.add_(self.grad_offset)

    def train(self) -> "FlatModel":
        self.module.train()
        return self

    def eval(self) -> "FlatModel":
        self.module.eval()
        return self
