"""Images of one split: one tensor in memory, or files that are decoded when a batch needs them."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from methods.core.errors import UserError

Shape = tuple[int, int, int]  # channels, height, width; as in the registry, which imports no torch


class Images(Protocol):
    """The images of one split, by index."""

    shape: Shape  # of the model's input
    stored_shape: Shape  # of the images that `fetch` returns
    in_memory: bool

    def __len__(self) -> int: ...

    def fetch(self, index: Tensor) -> Tensor:
        """Return uint8 images (len(index), *stored_shape). Files can be larger than `shape`."""
        ...


class MemoryImages:
    """All images in one uint8 tensor (n, C, H, W)."""

    in_memory = True

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        self.shape = self.stored_shape = (tensor.shape[1], tensor.shape[2], tensor.shape[3])

    def __len__(self) -> int:
        return len(self.tensor)

    def fetch(self, index: Tensor) -> Tensor:
        return self.tensor.index_select(0, index)


class FileImages:
    """Image files, decoded to `size` x `size` pixels at each call of `fetch`.

    With `keep_aspect`, the shorter side is resized to `size` and the center square is cropped.
    Otherwise, the image is resized without regard to its aspect ratio.
    """

    in_memory = False
    num_threads = 1  # that decode; set by the worker

    def __init__(
        self, root: Path, paths: Sequence[str], shape: Shape, size: int, keep_aspect: bool
    ) -> None:
        self.root, self.shape, self.size, self.keep_aspect = root, shape, size, keep_aspect
        self.stored_shape = (3, size, size)
        # One array of bytes instead of a million strings, so that forked workers share its memory.
        self._paths = np.array([os.fsencode(path) for path in paths])

    def __len__(self) -> int:
        return len(self._paths)

    def path(self, index: int) -> Path:
        return self.root / os.fsdecode(self._paths[index])

    def fetch(self, index: Tensor) -> Tensor:
        paths = [self.path(position) for position in index.tolist()]
        if self.num_threads > 1 and len(paths) > 1:
            with ThreadPoolExecutor(self.num_threads) as pool:  # Decoding releases the GIL.
                decoded = list(pool.map(self._decode, paths))
        else:
            decoded = [self._decode(path) for path in paths]
        batch = np.stack(decoded) if decoded else np.empty((0, self.size, self.size, 3), np.uint8)
        return torch.from_numpy(batch).permute(0, 3, 1, 2).contiguous()

    def _decode(self, path: Path) -> np.ndarray:
        from PIL import Image

        try:
            with Image.open(path) as file:
                image = file.convert("RGB")
        except OSError as error:
            raise UserError(f"cannot read image {path}: {error}") from error
        if not self.keep_aspect:
            return np.asarray(image.resize((self.size, self.size), Image.Resampling.BILINEAR))
        shorter = min(image.size)
        width, height = (int(self.size * length / shorter) for length in image.size)
        left, top = round((width - self.size) / 2), round((height - self.size) / 2)
        image = image.resize((width, height), Image.Resampling.BILINEAR)
        return np.asarray(image.crop((left, top, left + self.size, top + self.size)))
