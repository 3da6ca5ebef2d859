"""Random streams by name. The suite never samples from a global generator.

A stream is named by a key such as `(seed, round, "select")`. The key is hashed, so streams are
independent of each other and of the order in which they are created. A run therefore gives the same
numbers when it is repeated, resumed or distributed.
"""

import hashlib

import numpy as np
import torch


def derive_seed(*key: int | str) -> int:
    """Hash a key of integers and strings to a 63-bit seed, the same on every machine."""
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in key)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1


def numpy_generator(*key: int | str) -> np.random.Generator:
    return np.random.default_rng(derive_seed(*key))


def torch_generator(*key: int | str) -> torch.Generator:
    return torch.Generator().manual_seed(derive_seed(*key))
