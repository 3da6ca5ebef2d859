"""Functional form of a module: parameters and buffers are arguments."""

import torch
from torch import Tensor, nn


class FunctionalModule(nn.Module):
    """A submodule call as a function of flat vectors, for training passes."""

    def __init__(self, module: nn.Module, submodule: str):
        super().__init__()
        self.inner, self.submodule = module.train(), submodule
        for owner in module.modules():
            for name, buffer in list(owner.named_buffers(recurse=False)):
                if not buffer.is_floating_point():
                    setattr(owner, name, None)
        # Names start with "inner.".
        self._parameter_shapes = [(name, p.shape) for name, p in self.named_parameters()]
        self._buffer_shapes = [(name, b.shape) for name, b in self.named_buffers()]

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = getattr(self.inner, self.submodule)(x)
        return output

    def functional_forward(
        self, weights: Tensor, buffers: Tensor, x: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the output and the updated buffers."""
        # The module updates the buffers in place, so each one is a copy.
        parts = _unflatten(buffers, self._buffer_shapes)
        statistics = {name: buffer.clone() for name, buffer in parts.items()}
        state = _unflatten(weights, self._parameter_shapes) | statistics
        output = torch.func.functional_call(self, state, (x,))
        if not statistics:
            return output, buffers.clone()
        return output, torch.cat([buffer.reshape(-1) for buffer in statistics.values()])


def _unflatten(vector: Tensor, shapes: list[tuple[str, torch.Size]]) -> dict[str, Tensor]:
    """Views of the entries of a flat vector, by name."""
    parts = torch.split(vector, [shape.numel() for _, shape in shapes])
    return {name: part.view(shape) for (name, shape), part in zip(shapes, parts, strict=True)}
