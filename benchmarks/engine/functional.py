"""Functional form of a module: the parameters are an argument."""

import torch
from torch import Tensor, nn


class FunctionalModule(nn.Module):
    """A submodule call as a function of the flat weights, for modules without buffers."""

    def __init__(self, module: nn.Module, submodule: str):
        super().__init__()
        self.inner, self.submodule = module.train(), submodule
        # Names start with "inner.".
        self._shapes = {name: parameter.shape for name, parameter in self.named_parameters()}

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = getattr(self.inner, self.submodule)(x)
        return output

    def functional_forward(self, weights: Tensor, x: Tensor) -> Tensor:
        parts = torch.split(weights, [shape.numel() for shape in self._shapes.values()])
        named = zip(self._shapes.items(), parts, strict=True)
        state = {name: part.view(shape) for (name, shape), part in named}
        output: Tensor = torch.func.functional_call(self, state, (x,))
        return output
