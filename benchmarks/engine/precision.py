"""Training passes in bfloat16 (`executor.precision=bf16`)."""

import torch
from torch import Tensor

from methods.core.flat_model import FlatModel


def bfloat16_engine(model: FlatModel, submodule: str, x: Tensor) -> Tensor:
    """An engine: autocast in training passes. Weights, outputs and other passes are float32."""
    if not model.is_training_pass:
        return model.module_forward(submodule, x)
    with torch.autocast(x.device.type, torch.bfloat16):
        output = model.module_forward(submodule, x)
    return output.float()
