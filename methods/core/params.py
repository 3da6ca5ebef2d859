"""Parameter classes with declared constraints.

    @parameters
    class FedProxParams:
        mu: NonNegative = 1.0  # mu, weight of the proximal term
        form: Literal["squared", "norm"] = "squared"

A parameter class is a frozen pydantic dataclass. Values are not converted, except integers to
floats and lists to tuples. `build_params` turns a violated constraint into a one-line `UserError`.
"""

import typing
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, dataclass_transform

import pydantic
from pydantic import BeforeValidator, Field
from pydantic.dataclasses import dataclass

from methods.core.errors import UserError, invalid, missing, unknown

T = TypeVar("T")

Fraction = Annotated[float, Field(ge=0, le=1)]
ProperFraction = Annotated[float, Field(ge=0, lt=1)]
PositiveFraction = Annotated[float, Field(gt=0, le=1)]
Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
PositiveInt = Annotated[int, Field(ge=1)]
NonNegativeInt = Annotated[int, Field(ge=0)]

_IS_DATA_FILE = object()
# A file whose content affects results. Its content is part of a run's identity, its path is not.
DataFile = Annotated[str, _IS_DATA_FILE]

_STRICT = pydantic.ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
_KINDS: dict[type, str] = {int: "an integer", float: "a number", bool: "true or false"}
_KINDS |= {str: "a string", Path: "a path", NoneType: "null"}

Item = TypeVar("Item")
# Accepts a list, because YAML has no tuples.
_from_list = BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value)
Tuple = Annotated[tuple[Item, ...], _from_list]


@dataclass_transform(frozen_default=True)
def parameters(cls: type[T]) -> type[T]:
    """Class decorator: a frozen dataclass whose fields are validated when it is created."""
    return dataclass(frozen=True, config=_STRICT)(cls)  # type: ignore[return-value]


@parameters
class NoParams:
    """For components without parameters."""


def build_params(cls: type[T], values: Mapping[str, Any], section: str) -> T:
    """Create `cls(**values)`. A violated constraint is a UserError that names `section.key`.

    The section of top-level keys is empty.
    """
    if not isinstance(values, Mapping):
        raise invalid(section, values, f"keys {', '.join(field_names(cls)) or '(none)'}")
    for key in values:
        if key not in field_names(cls):
            raise unknown("key", _join_key(section, key), field_names(cls))
    try:
        return cls(**values)
    except pydantic.ValidationError as error:
        raise _explain(cls, values, error, section) from None


def field_names(cls: type) -> list[str]:
    """Names of the parameters of a class, in order."""
    return list(getattr(cls, "__dataclass_fields__", {}))


def data_file_names(cls: type) -> list[str]:
    """Names of the parameters of type DataFile or `DataFile | None`."""
    return _data_file_names(cls)


@cache
def _data_file_names(cls: Any) -> list[str]:
    hints = typing.get_type_hints(cls, include_extras=True)
    return [
        name
        for name, hint in hints.items()
        if any(_IS_DATA_FILE in getattr(part, "__metadata__", ()) for part in _parts(hint))
    ]


def _parts(hint: Any) -> tuple[Any, ...]:
    """The members of a union, or the type itself."""
    is_union = typing.get_origin(hint) in (typing.Union, UnionType)
    return typing.get_args(hint) if is_union else (hint,)


def describe(hint: Any) -> str:
    """What a type accepts, in words: `a number in [0, 1]`, `sgd or adam`."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return _describe_bounds(describe(arguments[0]), arguments[1:])
    if origin is Literal:
        return _join([str(argument) for argument in arguments])
    if origin in (typing.Union, UnionType):
        return _join([describe(argument) for argument in arguments])
    if origin in (tuple, list):
        return f"a list, each entry {describe(arguments[0])}"
    return _KINDS.get(hint, str(hint))


def _describe_bounds(kind: str, metadata: tuple[Any, ...]) -> str:
    rules = [rule for entry in metadata for rule in getattr(entry, "metadata", [entry])]
    names = ("gt", "ge", "lt", "le")
    bounds = {name: getattr(rule, name) for rule in rules for name in names if hasattr(rule, name)}
    low, high = bounds.get("ge", bounds.get("gt")), bounds.get("le", bounds.get("lt"))
    if low is not None and high is not None:
        opening, closing = "[" if "ge" in bounds else "(", "]" if "le" in bounds else ")"
        return f"{kind} in {opening}{low}, {high}{closing}"
    if low is not None:
        return f"{kind} {'of at least' if 'ge' in bounds else 'above'} {low}"
    if high is not None:
        return f"{kind} {'of at most' if 'le' in bounds else 'below'} {high}"
    return kind


def _join(options: list[str]) -> str:
    return " or ".join(filter(None, [", ".join(options[:-1]), options[-1]]))


def _join_key(section: str, name: str) -> str:
    return f"{section}.{name}" if section else name


def _explain(
    cls: type, values: Mapping[str, Any], error: pydantic.ValidationError, section: str
) -> UserError:
    first = error.errors()[0]
    if first["type"] == "value_error":
        cause = first["ctx"]["error"]
        return cause if isinstance(cause, UserError) else UserError(str(cause))
    name = str(first["loc"][0])
    if first["type"] == "missing":
        return missing(_join_key(section, name))
    hint = typing.get_type_hints(cls, include_extras=True)[name]
    return invalid(_join_key(section, name), values[name], describe(hint))
