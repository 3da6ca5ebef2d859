"""Parameter classes with declared constraints.

    @parameters
    class FedProxParams:
        mu: NonNegative = 1.0  # mu, weight of the proximal term
        form: Literal["squared", "norm"] = "squared"

A parameter class is a frozen pydantic dataclass. Values are not converted, except integers to
floats and lists to tuples. `build_params` turns a violated constraint into a one-line `UserError`.
"""

import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import MISSING
from functools import cache, partial
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, dataclass_transform

import pydantic
from pydantic import BeforeValidator, Field
from pydantic.dataclasses import dataclass

from methods.core.errors import UserError, format_value, invalid, missing, unknown

T = TypeVar("T")

Fraction = Annotated[float, Field(ge=0, le=1)]
ProperFraction = Annotated[float, Field(ge=0, lt=1)]
PositiveFraction = Annotated[float, Field(gt=0, le=1)]
Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
PositiveInt = Annotated[int, Field(ge=1)]
NonNegativeInt = Annotated[int, Field(ge=0)]

# A file whose content affects results. Its content is part of a run's identity, its path is not.
DataFile = Annotated[str, "data file"]

_type_hints: Callable[[Any], dict[str, Any]]  # cached, because every run needs them often
_type_hints = cache(partial(typing.get_type_hints, include_extras=True))
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

    The section of top-level keys is empty. Fields that are parameter classes can be mappings.
    """
    if not isinstance(values, Mapping):
        raise invalid(section, values, f"keys {', '.join(field_names(cls)) or '(none)'}")
    for key in values:
        if key not in field_names(cls):
            raise unknown("key", _join_key(section, key), field_names(cls))
    nested = {
        key: build_params(hint, values[key], _join_key(section, key))
        for key, hint in _type_hints(cls).items()
        if key in values and hasattr(hint, "__dataclass_fields__") and type(values[key]) is not hint
    }
    try:
        return cls(**{**values, **nested})
    except pydantic.ValidationError as error:
        raise _explain(cls, values, error, section) from None


def field_names(cls: type) -> list[str]:
    return list(getattr(cls, "__dataclass_fields__", {}))


def data_file_names(cls: type) -> list[str]:
    """Names of the parameters of type DataFile or `DataFile | None`."""
    hints = _type_hints(cls)
    return [name for name in hints if DataFile in (hints[name], *typing.get_args(hints[name]))]


class FieldDescription(NamedTuple):
    """A parameter in words."""

    name: str
    default: str
    accepts: str
    meaning: str  # comment in the source, with the paper's symbol


def describe_fields(cls: type) -> list[FieldDescription]:
    """The parameters of a class, from its annotations and the comments in its source."""
    fields: dict[str, Any] = getattr(cls, "__dataclass_fields__", {})
    hints, comments = _type_hints(cls), _field_comments(cls)
    found = []
    for name, field in fields.items():
        default = "required" if field.default is MISSING else format_value(field.default)
        found.append(FieldDescription(name, default, describe(hints[name]), comments.get(name, "")))
    return found


def _field_comments(cls: type) -> dict[str, str]:
    """Comments of the fields, at the end of the line or on the lines above."""
    comments: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        fields = getattr(base, "__dataclass_fields__", {})
        above: list[str] = []
        for line in inspect.getsource(base).splitlines() if fields else []:
            name, comment = line.strip().partition(":")[0], line.partition("  # ")[2]
            if line.strip().startswith("# "):
                above.append(line.strip(" #"))
            elif name in fields:
                comments[name] = comment or " ".join(above)
                above = []
    return comments


def describe(hint: Any) -> str:
    """What a type accepts, in words: `a number in [0, 1]`, `sgd or adam`."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        texts = [getattr(entry, "description", None) for entry in arguments[1:]]
        return next(filter(None, texts), _describe_bounds(describe(arguments[0]), arguments[1:]))
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
    return invalid(_join_key(section, name), values[name], describe(_type_hints(cls)[name]))
