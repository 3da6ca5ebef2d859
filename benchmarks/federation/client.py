"""Client-side data access during a client task."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from benchmarks.data.images import Images
from benchmarks.data.transforms import ImageTransforms
from methods.core.flat_model import FlatModel
from methods.core.task import Batch, Reply

# Samples that are augmented at once. One local epoch of a client usually has fewer.
AUGMENT_CHUNK_SIZE = 4096


class ImageSplit(NamedTuple):
    """Images of one split and their transforms. Without labels, so workers have no clean labels."""

    images: Images
    views: ImageTransforms

    def view(self, index: Tensor, view: str, generator: torch.Generator | None) -> Tensor:
        return self.views(self.images.fetch(index), view, generator)


@dataclass
class LocalClient:
    """A client during one task; implements `methods.core.task.Client`."""

    id: int
    _index: Tensor  # of its samples in the split
    given_labels: Tensor
    labels: Tensor
    state: dict[str, Any]
    _split: ImageSplit
    num_classes: int
    _acquire_model: Callable[[], FlatModel]
    samples_trained: int = 0
    samples_scored: int = 0  # every call of `images` counts, with or without a gradient

    def __post_init__(self) -> None:
        self.num_samples = len(self._index)

    def load_model(self, vector: Tensor) -> FlatModel:
        return self._acquire_model().load(vector)

    def images(
        self, index: Tensor, view: str = "plain", generator: torch.Generator | None = None
    ) -> Tensor:
        self.samples_scored += len(index)
        return self._view(index, view, generator)

    def batches(
        self,
        batch_size: int,
        view: str,
        order: torch.Generator,
        augment: torch.Generator,
        epoch: int = 0,
        subset: Tensor | None = None,
    ) -> Iterator[Batch]:
        """One shuffled epoch over all samples, or over the positions in `subset`."""
        num_samples = self.num_samples if subset is None else len(subset)
        shuffled = torch.randperm(num_samples, generator=order)
        if subset is not None:
            shuffled = subset[shuffled]
        self.samples_trained += num_samples
        chunk_size = batch_size
        if self._split.images.in_memory:
            chunk_size = max(AUGMENT_CHUNK_SIZE // batch_size, 1) * batch_size
        step = 0
        for positions in torch.split(shuffled, chunk_size):
            chunk = (self._view(positions, view, augment), self.labels[positions], positions)
            for x, y, index in zip(*(torch.split(t, batch_size) for t in chunk), strict=True):
                yield Batch(x, y, index, epoch, step)
                step += 1

    def reply(self, models: Mapping[str, Tensor], **values: Any) -> Reply:
        copies = {name: vector.clone() for name, vector in models.items()}
        return Reply(self.id, self.num_samples, copies, values)

    def _view(self, positions: Tensor, view: str, generator: torch.Generator | None) -> Tensor:
        return self._split.view(self._index[positions], view, generator)
