"""The search of `object_graph` follows every kind of reference that an attacker can follow."""

import functools
import types
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from object_graph import contains, reachable

SECRET = np.arange(7)


class WithSlot:
    __slots__ = ("_secret",)

    def __init__(self, secret: np.ndarray):
        self._secret = secret

    def method(self) -> None:
        pass


class Holder:
    """An object that supports weak references."""

    __module__ = "benchmarks.example"


MAPPING: weakref.WeakKeyDictionary[Holder, np.ndarray] = weakref.WeakKeyDictionary()


def weakly_mapped(secret: np.ndarray) -> Holder:
    """The callback of the weak reference leads to the mapping, and the mapping to its value."""
    owner = Holder()
    MAPPING[owner] = secret
    return owner


class WithProperty(Holder):
    __module__ = "benchmarks.example"

    @property
    def secret(self) -> np.ndarray:
        return SECRET


def suspended(secret: np.ndarray) -> Iterator[int]:
    generator = (len(secret) for _ in range(2))
    next(generator)
    return generator


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(types.SimpleNamespace(_secret=SECRET), id="attribute"),
        pytest.param(WithSlot(SECRET), id="slot"),
        pytest.param(WithSlot(SECRET).method, id="bound method"),
        pytest.param((lambda secret: lambda: secret)(SECRET), id="closure"),
        pytest.param(lambda secret=SECRET: secret, id="default argument"),
        pytest.param(functools.partial(len, SECRET), id="partial function"),
        pytest.param(suspended(SECRET), id="generator"),
        pytest.param(weakly_mapped(SECRET), id="weak reference"),
        pytest.param(WithProperty(), id="property"),
        pytest.param([{"a": (SECRET[:3],)}], id="memory of a view"),
    ],
)
def test_search_follows(value: Any) -> None:
    assert contains(reachable(value), SECRET)
