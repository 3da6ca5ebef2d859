"""Search of everything that can be reached from an object."""

import gc
import types
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from torch import Tensor
from torch.nn import Parameter

SUITE = ("benchmarks", "methods", "noise", "partition")


def reachable(start: Any) -> list[Any]:
    """All objects that are reachable without imports, stack frames of callers, or `gc`.

    The search follows attributes, also private ones, slots and properties, containers, bound
    methods, closures, default arguments, partial functions, suspended generators, weak references
    with their callbacks, the memory of views of arrays, and classes of the suite. It does not
    enter modules or the globals of functions, which an import gives as well.
    """
    seen, waiting, found = {id(start)}, [start], [start]
    while waiting:
        for value in _neighbors(waiting.pop()):
            if id(value) not in seen and not _is_importable(value):
                seen.add(id(value))
                waiting.append(value)
                found.append(value)  # Keeps temporary objects alive, so that ids are unique.
    return found


def _is_importable(value: Any) -> bool:
    if isinstance(value, type):
        return value.__module__.split(".")[0] not in SUITE
    return isinstance(value, types.ModuleType) or (
        isinstance(value, dict) and "__builtins__" in value
    )


def _neighbors(value: Any) -> Iterator[Any]:
    yield from gc.get_referents(value)
    if isinstance(value, Tensor):
        yield value._base
    elif isinstance(value, np.ndarray):
        yield value.base
    elif isinstance(value, weakref.ref):
        yield from (value(), value.__callback__)
    elif isinstance(value, types.GeneratorType):
        yield from value.gi_frame.f_locals.values() if value.gi_frame else ()
    elif type(value).__module__.split(".")[0] in SUITE:
        try:
            yield from weakref.getweakrefs(value)
        except TypeError:  # The class does not support weak references.
            pass
        for cls in type(value).__mro__:
            properties = (name for name, entry in vars(cls).items() if isinstance(entry, property))
            yield from (getattr(value, name, None) for name in properties)


def integers(objects: Iterable[Any]) -> set[int]:
    """All integers among objects, also those in arrays of fewer than 100 elements."""
    found = {int(value) for value in objects if isinstance(value, int | np.integer)}
    for array in arrays(objects):
        if array.dtype.kind in "iu" and array.size < 100:
            found.update(array.ravel().tolist())
    return found


def arrays(objects: Iterable[Any]) -> list[np.ndarray]:
    """All arrays and tensors among objects, as arrays. Fake tensors of compilers have no values."""
    plain = [value for value in objects if type(value) in (Tensor, Parameter, np.ndarray)]
    on_host = [value for value in plain if str(getattr(value, "device", "cpu")) == "cpu"]
    return [value if isinstance(value, np.ndarray) else value.detach().numpy() for value in on_host]


def contains(objects: Iterable[Any], secret: np.ndarray) -> bool:
    """True if an array among the objects has the values of `secret`."""
    return any(
        array.dtype.kind in "iub"
        and array.size == secret.size
        and np.array_equal(array.ravel(), secret)
        for array in arrays(objects)
    )
