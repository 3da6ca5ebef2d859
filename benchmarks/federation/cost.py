"""Cost of a run: participations, messages, samples."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass
class CostMeter:
    """Cumulative cost; a section of the run record.

    `participations` is FedCorr's cost measure. The other fields complete it.
    """

    participations: int = 0  # local updates
    queries: int = 0  # client tasks without training
    models_down: int = 0
    models_up: int = 0
    bytes_down: int = 0
    bytes_up: int = 0
    samples_trained: int = 0  # per epoch; counted once if several models train on a batch
    samples_scored: int = 0  # samples fetched outside the training batches
    dropped_models: int = 0  # client models with NaN or Inf that the method skipped


def size_in_bytes(value: Any) -> int:
    """Serialized size: tensor and array data, and 8 bytes per number."""
    if hasattr(value, "nbytes"):
        return int(value.nbytes)
    if isinstance(value, Mapping):
        return sum(size_in_bytes(entry) for entry in value.values())
    if isinstance(value, (list, tuple)):
        return sum(size_in_bytes(entry) for entry in value)
    return 8 if isinstance(value, (int, float)) else 0
