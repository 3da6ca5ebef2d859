"""Finds methods: every file in this folder, and other packages' through the entry-point group `fln.methods`."""

import dataclasses
import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import Any, TypeVar

import methods
from methods.core.contract import Method

ENTRY_POINT_GROUP = "fln.methods"


@dataclass(frozen=True)
class MethodInfo:
    name: str
    cls: type[Method]
    params: type
    family: str
    paper: str
    summary: str  # first line of the class's docstring

    @property
    def num_models(self) -> int:
        return len(self.cls.model_names)


_METHODS: dict[str, MethodInfo] = {}
MethodClass = TypeVar("MethodClass", bound=type[Method])


def register(*, family: str, paper: str) -> Callable[[MethodClass], MethodClass]:
    """Class decorator: `@register(family="aggregation", paper="Who, Where Year")`. The class gives `name` and `Params`."""

    def add(cls: MethodClass) -> MethodClass:
        known = _METHODS.get(cls.name)
        if known is not None and known.cls.__module__ != cls.__module__:
            raise ValueError(
                f"method name {cls.name!r} is taken by {known.cls.__module__}; {cls.__module__} must choose another"
            )
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
    _discover()
    return [_METHODS[name] for name in sorted(_METHODS)]


def get(name: str) -> MethodInfo:
    _discover()
    if name not in _METHODS:
        raise ValueError(f"method={name!r} is unknown; legal: {', '.join(sorted(_METHODS))}")
    return _METHODS[name]


def build(name: str, params: Mapping[str, Any]) -> Method:
    """A method from its name and hyper-parameters; fields that are not given keep their defaults."""
    info = get(name)
    legal = [f.name for f in dataclasses.fields(info.params)]
    for key in params:
        if key not in legal:
            raise ValueError(
                f"method.{key} is not a parameter of {name}; legal: {', '.join(legal) or 'none'}"
            )
    return info.cls(info.params(**params))
