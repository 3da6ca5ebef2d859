"""Cost of a run: participations, bytes, samples."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor


@dataclass
class CostMeter:
    """Cost so far. FedCorr's measure is `participations`; the others keep its simplification honest."""

    participations: int = 0  # client visits that train a model
    contacts: int = 0  # visits that only measure
    models_down: int = 0
    models_up: int = 0
    bytes_down: int = 0
    bytes_up: int = 0
    samples_trained: int = 0  # sample passes with a gradient, counted once for several networks
    samples_scored: int = 0
    dropped_models: int = 0  # client models with NaN or Inf that the method left out


def size_in_bytes(value: Any) -> int:
    """What a value weighs on the wire: tensors by their elements, numbers as 8 bytes."""
    if isinstance(value, Tensor):
        return value.numel() * value.element_size()
    if isinstance(value, (np.ndarray, np.generic)):
        return int(value.nbytes)
    if isinstance(value, Mapping):
        return sum(size_in_bytes(v) for v in value.values())
    if isinstance(value, (list, tuple)):
        return sum(size_in_bytes(v) for v in value)
    return 8 if isinstance(value, (int, float)) else 0
