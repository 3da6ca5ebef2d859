"""Where images come from: one tensor in memory, or files that are decoded when a batch asks for them."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from benchmarks.data.catalogue import Shape
from methods.core.errors import UserError


class Images(Protocol):
    """The images of one split, by position."""

    shape: Shape
    """(C, H, W) of what the network sees."""
    in_memory: bool

    def __len__(self) -> int: ...

    def fetch(self, index: Tensor) -> Tensor:
        """The images at these positions, uint8 (len(index), C, H', W'); files may be decoded larger than `shape`."""
        ...


class MemoryImages:
    """All images in one uint8 tensor (n, C, H, W)."""

    in_memory = True

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        self.shape: Shape = (tensor.shape[1], tensor.shape[2], tensor.shape[3])

    def __len__(self) -> int:
        return len(self.tensor)

    def fetch(self, index: Tensor) -> Tensor:
        return self.tensor.index_select(0, index)


class FileImages:
    """Image files, decoded at each fetch to `side` x `side` and never kept.

    `keep_aspect`: shrink the short side to `side` and cut the centre square; otherwise squeeze the whole image into it.
    """

    in_memory = False

    def __init__(
        self, root: Path, paths: Sequence[str], shape: Shape, side: int, keep_aspect: bool
    ) -> None:
        self.root = root
        # One block of bytes instead of a million strings: worker processes then share its memory.
        self._paths = np.array([os.fsencode(path) for path in paths])
        self.shape = shape
        self.side = side
        self.keep_aspect = keep_aspect

    def __len__(self) -> int:
        return len(self._paths)

    def path(self, position: int) -> Path:
        """The file of one image."""
        return self.root / os.fsdecode(self._paths[position])

    def fetch(self, index: Tensor) -> Tensor:
        paths = [self.path(position) for position in index.tolist()]
        # Decoding releases the interpreter lock; a worker that was given one thread keeps to it.
        num_threads = min(torch.get_num_threads(), len(paths))
        if num_threads > 1:
            with ThreadPoolExecutor(num_threads) as pool:
                decoded = list(pool.map(self._decode, paths))
        else:
            decoded = [self._decode(path) for path in paths]
        batch = np.stack(decoded) if decoded else np.empty((0, self.side, self.side, 3), np.uint8)
        return torch.from_numpy(batch).permute(0, 3, 1, 2).contiguous()

    def _decode(self, path: Path) -> np.ndarray:
        from PIL import Image

        try:
            with Image.open(path) as file:
                image = file.convert("RGB")
        except OSError as error:
            raise UserError(f"{path} cannot be read as an image: {error}") from error
        if not self.keep_aspect:
            return np.asarray(image.resize((self.side, self.side), Image.Resampling.BILINEAR))
        short = min(image.size)
        width, height = (int(self.side * length / short) for length in image.size)
        left, top = round((width - self.side) / 2), round((height - self.side) / 2)
        image = image.resize((width, height), Image.Resampling.BILINEAR)
        return np.asarray(image.crop((left, top, left + self.side, top + self.side)))
