"""Run state as an .npz archive without code: a tree in JSON, and the bytes of tensors and arrays.

Containers and arrays are written as one-key objects, such as {"list": [...]}. Dataclasses are
subclasses of `ServerState`, which the reader looks up by name among the imported ones.
"""

import dataclasses
import io
import json
from typing import Any

import numpy as np
import torch
from torch import Tensor

from methods.core.contract import ServerState
from methods.core.errors import UserError, first_line

TREE = "tree"
STORED = "tensors, arrays, numbers, strings, None, and lists, tuples, dicts and states of these"


def encode(value: Any) -> bytes:
    """Encode nested data. Raises UserError with the path of a value that cannot be stored."""
    arrays: dict[int, np.ndarray] = {}
    tree = _encode(value, "state", arrays, {})
    text = np.frombuffer(json.dumps(tree).encode(), np.uint8)
    named: dict[str, Any] = {TREE: text} | {str(index): array for index, array in arrays.items()}
    buffer = io.BytesIO()
    np.savez(buffer, **named)
    return buffer.getvalue()


def decode(content: bytes) -> Any:
    """Decode what `encode` has written. Raises ValueError for all other content."""
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            return _decode(json.loads(archive[TREE].tobytes()), archive, {})
    except Exception as error:  # A forged archive can cause every kind of error.
        raise ValueError(
            f"no stored state ({type(error).__name__}: {first_line(error)})"
        ) from error


def _encode(value: Any, path: str, arrays: dict[int, np.ndarray], seen: dict[int, Any]) -> Any:
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, (Tensor, np.ndarray, np.generic)):
        if id(value) not in seen:  # An array that occurs twice is stored once.
            seen[id(value)] = _encode_array(value, path, arrays)
        return seen[id(value)]

    def inner(entry: Any, key: object) -> Any:
        return _encode(entry, f"{path}[{key!r}]", arrays, seen)

    if type(value) in (list, tuple):
        return {type(value).__name__: [inner(entry, i) for i, entry in enumerate(value)]}
    if type(value) is dict and all(type(key) in (str, int) for key in value):
        return {"dict": [[key, inner(entry, key)] for key, entry in value.items()]}
    if isinstance(value, ServerState):
        names = [field.name for field in dataclasses.fields(value)]
        for name in vars(value):
            if name not in names:
                raise UserError(f"cannot store {path}.{name}: expected a field of the dataclass")
        fields = [
            [name, _encode(getattr(value, name), f"{path}.{name}", arrays, seen)] for name in names
        ]
        return {"state": [_class_name(type(value)), fields]}
    raise _not_stored(path, value)


def _encode_array(value: Any, path: str, arrays: dict[int, np.ndarray]) -> dict[str, Any]:
    index = len(arrays)
    if isinstance(value, Tensor):
        flat = value.detach().cpu().contiguous().reshape(-1)
        arrays[index] = flat.view(torch.uint8).numpy()  # NumPy does not have all types of torch.
        return {"tensor": [index, str(value.dtype).removeprefix("torch."), list(value.shape)]}
    if value.dtype.hasobject:
        raise _not_stored(path, value)
    arrays[index] = np.asarray(value)
    return {"array" if isinstance(value, np.ndarray) else "scalar": index}


def _decode(tree: Any, archive: Any, arrays: dict[int, Any]) -> Any:
    if not isinstance(tree, dict):
        return tree
    ((kind, content),) = tree.items()
    if kind in ("list", "tuple"):
        entries = [_decode(entry, archive, arrays) for entry in content]
        return entries if kind == "list" else tuple(entries)
    if kind == "dict":
        return {key: _decode(entry, archive, arrays) for key, entry in content}
    if kind == "state":
        name, fields = content
        return _make_state(name, {key: _decode(entry, archive, arrays) for key, entry in fields})
    index = content[0] if kind == "tensor" else content
    if index not in arrays:
        array = archive[str(index)]
        if kind == "tensor":
            _, dtype, shape = content
            tensor = torch.empty(shape, dtype=getattr(torch, dtype))
            tensor.view(-1).view(torch.uint8).copy_(torch.from_numpy(array))
            array = tensor
        arrays[index] = array[()] if kind == "scalar" else array
    return arrays[index]


def _make_state(name: str, values: dict[str, Any]) -> ServerState:
    """An instance of an imported subclass of ServerState. Its `__init__` is not called."""
    cls = _state_classes(ServerState)[name]
    if {field.name for field in dataclasses.fields(cls)} != values.keys():
        raise ValueError(f"other fields of {name}")
    state = cls.__new__(cls)
    for key, value in values.items():
        setattr(state, key, value)
    return state


def _state_classes(cls: type[ServerState]) -> dict[str, type[ServerState]]:
    found = {_class_name(cls): cls}
    for subclass in cls.__subclasses__():
        found |= _state_classes(subclass)
    return found


def _class_name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _not_stored(path: str, value: Any) -> UserError:
    return UserError(f"cannot store {path} of type {type(value).__name__}: expected {STORED}")
