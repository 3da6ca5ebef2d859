"""Registry of methods: every module of this package, and installed packages with entry points in `fln.methods`."""

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import Any, TypeVar

import methods
from methods.core.contract import Method
from methods.core.errors import UserError, unknown
from methods.core.params import build_params

ENTRY_POINT_GROUP = "fln.methods"
MethodClass = TypeVar("MethodClass", bound=type[Method])


@dataclass(frozen=True)
class MethodInfo:
    """A registered method."""

    name: str
    cls: type[Method]
    params: type
    family: str
    paper: str
    summary: str  # first line of the class docstring

    @property
    def num_models(self) -> int:
        return len(self.cls.model_names)


_METHODS: dict[str, MethodInfo] = {}


def register(*, family: str, paper: str) -> Callable[[MethodClass], MethodClass]:
    """Class decorator: `@register(family="aggregation", paper="Author et al., Venue Year")`."""

    def add(cls: MethodClass) -> MethodClass:
        known = _METHODS.get(cls.name)
        if known is not None and known.cls.__module__ != cls.__module__:
            owner = known.cls.__module__
            raise UserError(f"duplicate method name {cls.name!r}: already registered by {owner}")
        summary = (cls.__doc__ or "").strip().split("\n")[0]
        _METHODS[cls.name] = MethodInfo(cls.name, cls, cls.Params, family, paper, summary)
        return cls

    return add


@cache
def _discover() -> None:
    for module in pkgutil.iter_modules(methods.__path__):
        importlib.import_module(f"methods.{module.name}")
    for entry in entry_points(group=ENTRY_POINT_GROUP):
        entry.load()


def list_methods() -> list[MethodInfo]:
    """All methods, by name."""
    _discover()
    return [_METHODS[name] for name in sorted(_METHODS)]


def get(name: str) -> MethodInfo:
    """One method by name. Raises UserError."""
    _discover()
    if name not in _METHODS:
        raise unknown("method", name, sorted(_METHODS))
    return _METHODS[name]


def build(name: str, params: Mapping[str, Any]) -> Method:
    """Create a method from its name and parameters. Missing parameters have their defaults."""
    info = get(name)
    return info.cls(build_params(info.params, params, "method"))
