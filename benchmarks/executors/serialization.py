"""Pickling of messages between a run and its own workers. Files are never pickled."""

import io
import pickle
from typing import Any

import torch
from torch import Tensor


class _Pickler(pickle.Pickler):
    """Pickles tensors as NumPy arrays, many times faster than torch does for small tensors."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return torch.from_numpy, (value.detach().numpy(),)
        return NotImplemented


def dumps(value: Any) -> bytes:
    buffer = io.BytesIO()
    _Pickler(buffer, protocol=5).dump(value)
    return buffer.getvalue()


def dumps_with_buffers(value: Any) -> tuple[bytes, list[pickle.PickleBuffer]]:
    """Pickle with the data of arrays and tensors apart, for shared memory."""
    file, buffers = io.BytesIO(), list[pickle.PickleBuffer]()
    _Pickler(file, protocol=5, buffer_callback=buffers.append).dump(value)
    return file.getvalue(), buffers
