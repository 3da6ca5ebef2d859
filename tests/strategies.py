"""Hypothesis strategies for tests over all registered components."""

import typing
from types import NoneType, UnionType
from typing import Annotated, Any, Literal

from hypothesis import strategies as st

LARGEST_INT = 20  # enough to exceed the classes and the samples per client of small datasets


def valid_params(cls: type) -> st.SearchStrategy[Any]:
    """Instances of a parameter class with any values that its declaration accepts."""
    hints = typing.get_type_hints(cls, include_extras=True)
    fields = {name: hints[name] for name in getattr(cls, "__dataclass_fields__", {})}
    return st.builds(cls, **{name: _values(hint) for name, hint in fields.items()})


def _values(hint: Any) -> st.SearchStrategy[Any]:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return _numbers(arguments[0], arguments[1:])
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin in (typing.Union, UnionType):
        return st.one_of([_values(argument) for argument in arguments])
    return st.none() if hint is NoneType else st.booleans() if hint is bool else _numbers(hint, ())


def _numbers(kind: type, metadata: tuple[Any, ...]) -> st.SearchStrategy[Any]:
    bounds: dict[str, Any] = {}
    for constraint in (part for field in metadata for part in getattr(field, "metadata", [])):
        bounds |= {
            key: getattr(constraint, key)
            for key in ("gt", "ge", "lt", "le")
            if hasattr(constraint, key)
        }
    if kind is int:
        return st.integers(bounds.get("ge"), bounds.get("le", LARGEST_INT))
    assert kind is float, f"no strategy for {kind}"
    low, high = bounds.get("ge", bounds.get("gt")), bounds.get("le", bounds.get("lt"))
    return st.floats(
        low,
        high,
        exclude_min="gt" in bounds,
        exclude_max="lt" in bounds,
        allow_nan=False,
        allow_infinity=False,
    )
