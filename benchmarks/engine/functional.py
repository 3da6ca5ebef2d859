"""A module as a function of its flat vectors."""

import torch
from torch import Tensor, nn


class FunctionalModule(nn.Module):
    """A part of a module as a function of its flat vectors: (weights, buffers, x) -> (output, buffers after it). For training passes."""

    def __init__(self, module: nn.Module, part: str):
        super().__init__()
        self.inner, self.part = module.train(), part
        for owner in module.modules():
            owner._buffers.update(
                {
                    name: None
                    for name, b in owner._buffers.items()
                    if b is not None and not b.is_floating_point()
                }
            )
        self._parameters_of = [(f"inner.{name}", p.shape) for name, p in module.named_parameters()]
        self._buffers_of = [(f"inner.{name}", b.shape) for name, b in module.named_buffers()]

    def forward(self, x: Tensor) -> Tensor:
        return getattr(self.inner, self.part)(x)

    def run(self, weights: Tensor, buffers: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        # The module writes its statistics into tensors of their own: into slices of one, vmap would lose them.
        statistics = {name: part.clone() for name, part in _cut(buffers, self._buffers_of).items()}
        output = torch.func.functional_call(
            self, _cut(weights, self._parameters_of) | statistics, (x,)
        )
        return output, torch.cat(
            [part.reshape(-1) for part in statistics.values()]
        ) if statistics else buffers.clone()


def _cut(vector: Tensor, layout: list[tuple[str, torch.Size]]) -> dict[str, Tensor]:
    """The entries of a flat vector under their names."""
    parts = vector.split([shape.numel() for _, shape in layout])
    return {name: part.view(shape) for (name, shape), part in zip(layout, parts, strict=True)}
