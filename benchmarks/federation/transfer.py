"""Copies of values between host and device: all tensors of a value in one transfer."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

ALIGNMENT = 16  # bytes; a view of the buffer needs an offset that its type divides
HOST = torch.device("cpu")
T = TypeVar("T")


def pin(tensor: Tensor, device: torch.device) -> Tensor:
    """A host tensor in pinned memory, which `upload` copies without another copy on the host."""
    return tensor if device.type in ("cpu", "mps") else tensor.pin_memory()


def upload(tensors: Sequence[Tensor], device: torch.device) -> list[Tensor]:
    """Copies of host tensors on a device, in one transfer. On the CPU, the tensors themselves."""
    if device.type == "cpu" or not tensors:
        return list(tensors)
    starts, end = [], 0
    for tensor in tensors:
        starts.append(end)
        end += -(-tensor.nbytes // ALIGNMENT) * ALIGNMENT
    if len(tensors) == 1 and tensors[0].is_pinned():
        return [tensors[0].to(device, non_blocking=True)]
    # A copy from pinned memory does not wait for the device.
    buffer = torch.empty(end, dtype=torch.uint8, pin_memory=device.type != "mps")
    for tensor, start in zip(tensors, starts, strict=True):
        if tensor.nbytes:  # An empty tensor can have strides that `view` refuses.
            flat = tensor.detach().contiguous().view(-1).view(torch.uint8)
            buffer[start : start + tensor.nbytes] = flat
    moved = buffer.to(device, non_blocking=True)
    return [
        moved[start : start + tensor.nbytes].view(tensor.dtype).view(tensor.shape)
        for tensor, start in zip(tensors, starts, strict=True)
    ]


class DeviceTransfer:
    """Moves tasks to a device and results back. A tensor that several tasks share is copied once.

    A tensor that was copied to the device and comes back is the host tensor again.
    """

    def __init__(self, device: torch.device):
        self.device = device
        self._pairs: dict[int, tuple[Tensor, Tensor]] = {}  # by the identity of the first tensor

    def to_device(self, value: T, shared: bool = False) -> T:
        """A value with its tensors on the device. With `shared`, they are kept for later tasks."""
        if self.device.type == "cpu":
            return value
        host: dict[int, Tensor] = {}
        map_tensors(value, lambda tensor: host.setdefault(id(tensor), tensor))
        new = [tensor for key, tensor in host.items() if key not in self._pairs]
        pairs = {id(a): (a, b) for a, b in zip(new, upload(new, self.device), strict=True)}
        if shared:
            self._pairs |= pairs | {id(b): (b, a) for a, b in pairs.values()}
        return map_tensors(value, lambda tensor: (self._pairs | pairs)[id(tensor)][1])

    def to_host(self, value: T) -> T:
        """A value with its tensors in host memory."""
        if self.device.type == "cpu":
            return value
        return map_tensors(value, self._download)

    def _download(self, tensor: Tensor) -> Tensor:
        if tensor.device.type == "cpu":
            return tensor
        known = self._pairs.get(id(tensor))
        return tensor.cpu() if known is None else known[1]


class UploadQueue:
    """Values for a device. Those that wait are copied with the next upload, in one transfer."""

    def __init__(self, device: torch.device):
        self.device = device
        self._queued: list[Any] = []
        self._num_uploaded = 0

    def put(self, value: Any) -> int:
        """Let a value wait. Returns its number."""
        self._queued.append(value)
        return len(self._queued) - 1

    def get(self, number: int) -> Any:
        """The value with its tensors on the device. Uploads it if it still waits."""
        if number >= self._num_uploaded:
            self.upload(None)
        return self._queued[number]

    def peek(self, number: int) -> Any:
        """The value wherever its tensors are."""
        return self._queued[number]

    def upload(self, value: T) -> T:
        """A value with its tensors on the device. It is not kept."""
        waiting = self._queued[self._num_uploaded :]
        moved: T
        *uploaded, moved = DeviceTransfer(self.device).to_device([*waiting, value])
        self._queued[self._num_uploaded :] = uploaded
        self._num_uploaded = len(self._queued)
        return moved


def map_tensors(value: T, function: Callable[[Tensor], Tensor]) -> T:
    """Apply a function to each tensor of nested mappings, sequences and dataclasses."""
    result: Any = value
    if isinstance(value, Tensor):
        result = function(value)
    elif isinstance(value, Mapping):
        result = {key: map_tensors(entry, function) for key, entry in value.items()}
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        result = type(value)(*(map_tensors(entry, function) for entry in value))
    elif isinstance(value, (list, tuple)):
        result = type(value)(map_tensors(entry, function) for entry in value)
    elif is_dataclass(value) and not isinstance(value, type):
        changes = {f.name: map_tensors(getattr(value, f.name), function) for f in fields(value)}
        result = replace(value, **changes)
    return result  # type: ignore[no-any-return]
