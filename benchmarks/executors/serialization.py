"""Pickling of messages between a run and its own workers. Files are never pickled."""

import io
import pickle
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

Reference = tuple[int, np.ndarray | None]  # number of a shared tensor; its data, if it is new


class Exchange:
    """One side of the messages between a run and a worker, about one cohort.

    A tensor that several tasks share is sent once. In later messages, and in replies, it is a
    number: the other side has it.
    """

    def __init__(self, shared: Iterable[Tensor] = ()):
        self._numbers = {id(tensor): number for number, tensor in enumerate(shared)}
        self._known: dict[int, Tensor] = {}  # tensors that both sides have, by number

    def dumps(self, value: Any) -> bytes:
        """A message. Its first byte says if it needs tensors of earlier messages."""
        file = io.BytesIO()
        file.write(bytes([bool(self._known)]))
        _SharingPickler(file, self).dump(value)
        return file.getvalue()

    def loads(self, message: bytes) -> Any:
        file = io.BytesIO(message)
        file.seek(1)
        return _SharingUnpickler(file, self).load()

    def refer_to(self, tensor: Tensor) -> Reference | None:
        """What is sent instead of a shared tensor."""
        number = self._numbers.get(id(tensor))
        if number is None:
            return None
        if number in self._known:
            return number, None
        self._known[number] = tensor
        return number, tensor.detach().numpy()

    def resolve(self, reference: Reference) -> Tensor:
        """The tensor of a reference."""
        number, data = reference
        if data is not None:
            tensor = self._known[number] = torch.from_numpy(data)
            self._numbers[id(tensor)] = number
        return self._known[number]


def is_independent(message: bytes) -> bool:
    """True if a message needs no tensors of earlier messages: those can be forgotten."""
    return message[0] == 0


class _Pickler(pickle.Pickler):
    """Pickles tensors as NumPy arrays, many times faster than torch does for small tensors."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return torch.from_numpy, (value.detach().numpy(),)
        return NotImplemented


class _SharingPickler(_Pickler):
    def __init__(self, file: io.BytesIO, exchange: Exchange):
        super().__init__(file, protocol=5)
        self._exchange = exchange

    def persistent_id(self, value: Any) -> Reference | None:
        return self._exchange.refer_to(value) if isinstance(value, Tensor) else None


class _SharingUnpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, exchange: Exchange):
        super().__init__(file)
        self._exchange = exchange

    def persistent_load(self, reference: Any) -> Tensor:
        return self._exchange.resolve(reference)


def dumps_with_buffers(value: Any) -> tuple[bytes, list[pickle.PickleBuffer]]:
    """Pickle with the data of arrays and tensors apart, for shared memory."""
    file, buffers = io.BytesIO(), list[pickle.PickleBuffer]()
    _Pickler(file, protocol=5, buffer_callback=buffers.append).dump(value)
    return file.getvalue(), buffers
