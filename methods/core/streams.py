"""Random streams by name. No draw in the suite comes from a global generator.

A stream is named by a key such as `(seed, "select", round)`; the key is hashed, so streams are independent of each other and of the
order in which they are asked for. That is what makes a run the same when it is repeated, resumed, or spread over processes.
"""

import hashlib

import numpy as np
import torch


def derive_seed(*key: int | str) -> int:
    """A 63-bit seed from a key. Integers and strings only: their text is the same on every machine."""
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in key)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1


def numpy_generator(*key: int | str) -> np.random.Generator:
    return np.random.default_rng(derive_seed(*key))


def torch_generator(*key: int | str) -> torch.Generator:
    return torch.Generator().manual_seed(derive_seed(*key))
