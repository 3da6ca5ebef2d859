"""Methods, one file per method. This module is the public interface for method authors.

    from methods import FedAvg, NonNegative, parameters, register

Names are imported on first use, so that `methods.core.errors` and `.params` need no torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from methods.core import training
    from methods.core.contract import ClientPool, Diagnosis, Method, ServerState
    from methods.core.errors import UserError, invalid
    from methods.core.flat_model import FlatModel
    from methods.core.params import (
        Fraction,
        NonNegative,
        NonNegativeInt,
        Positive,
        PositiveFraction,
        PositiveInt,
        ProperFraction,
        parameters,
    )
    from methods.core.registry import register
    from methods.core.task import (
        Batch,
        Client,
        LocalTask,
        Models,
        Payload,
        Reply,
        RoundContext,
        TaskSpec,
    )
    from methods.fedavg import FedAvg

__all__ = ["Batch", "Client", "ClientPool", "Diagnosis", "FedAvg", "FlatModel", "Fraction"]
__all__ += ["LocalTask", "Method", "Models", "NonNegative", "NonNegativeInt", "Payload"]
__all__ += ["Positive", "PositiveFraction", "PositiveInt", "ProperFraction", "Reply"]
__all__ += ["RoundContext", "ServerState", "TaskSpec", "UserError", "invalid", "parameters"]
__all__ += ["register", "training"]

_SOURCES = ("core.params", "core.errors", "core.task", "core.contract", "core.registry", "fedavg")


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    if name in __all__:
        for source in _SOURCES:
            module = importlib.import_module(f"methods.{source}")
            if hasattr(module, name):
                return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
