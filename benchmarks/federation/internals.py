"""Storage of internals outside of the objects that methods receive.

A method can read every attribute of an object, also private ones and closures. The client and the
client pool that methods receive therefore have no attribute that leads to sample indices, image
files or the executor. Their internals are stored here, for as long as the object exists.
"""

from typing import Any
from weakref import ref

_INTERNALS: dict[ref[Any], Any] = {}


def hide(owner: object, internals: object) -> None:
    """Store the internals of an object that is hashed by identity."""
    _INTERNALS[ref(owner, _forget)] = internals


def internals_of(owner: object) -> Any:
    """The internals that were stored for an object."""
    return _INTERNALS[ref(owner)]


# A module function: the callback of a weak reference is an attribute that methods can read.
def _forget(owner: ref[Any]) -> None:
    del _INTERNALS[owner]
