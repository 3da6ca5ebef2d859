"""Second device of torch, made of host memory: counters, memory limit, device module.

    with second_device.counting() as counts:
        torch.ones(3, device="fln").sum().item()
    counts.launches, counts.scalar_reads  # 2, 1

torch knows this module as `torch.fln`, hence the functions at its end.
"""

import contextlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

free_bytes = 2**34  # what `mem_get_info` reports


@dataclass
class Counts:
    """Work of the device while `counting` was active."""

    launches: int = 0  # operators that start a kernel; views and allocations do not
    uploads: int = 0  # copies from the host to the device
    downloads: int = 0  # copies from the device to the host
    scalar_reads: int = 0  # `.item()` and results whose size depends on values
    operators: Counter[str] = field(default_factory=Counter)  # launches by name

    @property
    def transfers(self) -> int:
        return self.uploads + self.downloads


@contextlib.contextmanager
def counting() -> Iterator[Counts]:
    """Count the operators, transfers and scalar reads of all threads."""
    counts = Counts()
    before, names_before = _totals()
    yield counts
    after, names = _totals()
    changes = (new - old for new, old in zip(after, before, strict=True))
    counts.launches, counts.uploads, counts.downloads, counts.scalar_reads = changes
    counts.operators = names - names_before


@contextlib.contextmanager
def memory_limit(num_bytes: int) -> Iterator[None]:
    """Let allocations fail with torch.OutOfMemoryError above this many bytes in use."""
    torch.ops.second_device.limit_memory(num_bytes)
    try:
        yield
    finally:
        torch.ops.second_device.limit_memory(-1)


def _totals() -> tuple[list[int], Counter[str]]:
    own = torch.ops.second_device
    return own.counters(), Counter(dict(own.operators()))


# Device module: the functions that torch expects of `torch.fln`.


def is_available() -> bool:
    return True


def is_initialized() -> bool:
    return True


def device_count() -> int:
    return 1


def current_device() -> int:
    return 0


def synchronize(device: object = None) -> None:
    pass


def get_amp_supported_dtype() -> list[torch.dtype]:
    return [torch.bfloat16]


def default_generator() -> torch.Generator:
    return torch.ops.second_device.default_generator()


def manual_seed(seed: int) -> None:
    default_generator().manual_seed(seed)


def manual_seed_all(seed: int) -> None:
    manual_seed(seed)


def get_rng_state(device: object = None) -> Tensor:
    return default_generator().get_state()


def set_rng_state(state: Tensor, device: object = None) -> None:
    default_generator().set_state(state)


def _is_in_bad_fork() -> bool:
    return False


def _lazy_init() -> None:
    pass


def get_device_name(device: object = None) -> str:
    return "second device"


def mem_get_info(device: object = None) -> tuple[int, int]:
    return free_bytes, 2**34


def max_memory_allocated(device: object = None) -> int:
    return torch.accelerator.max_memory_allocated()
