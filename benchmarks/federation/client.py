"""Client-side data access during a client task."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import InitVar, dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from benchmarks.data.images import Images
from benchmarks.data.transforms import ImageTransforms
from benchmarks.federation.internals import hide, internals_of
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


class _Internals(NamedTuple):
    """Parts of a client that methods do not see: indices and file names can reveal classes."""

    indices: Tensor
    split: ImageSplit
    acquire_model: Callable[[], FlatModel]


@dataclass(eq=False)
class LocalClient:
    """A client during one task; implements `methods.core.task.Client`."""

    id: int
    indices: InitVar[Tensor]  # of its samples in the split
    given_labels: Tensor
    labels: Tensor
    state: dict[str, Any]
    split: InitVar[ImageSplit]
    num_classes: int
    acquire_model: InitVar[Callable[[], FlatModel]]
    samples_trained: int = 0
    samples_scored: int = 0  # every call of `images` counts, with or without a gradient

    def __post_init__(
        self, indices: Tensor, split: ImageSplit, acquire_model: Callable[[], FlatModel]
    ) -> None:
        self.num_samples = len(indices)
        hide(self, _Internals(indices, split, acquire_model))

    def load_model(self, vector: Tensor) -> FlatModel:
        model: FlatModel = internals_of(self).acquire_model()
        return model.load(vector)

    def images(
        self, index: Tensor, view: str = "plain", generator: torch.Generator | None = None
    ) -> Tensor:
        self.samples_scored += len(index)
        return _view(self, index, view, generator)

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
        if internals_of(self).split.images.in_memory:
            chunk_size = max(AUGMENT_CHUNK_SIZE // batch_size, 1) * batch_size
        step = 0
        for positions in torch.split(shuffled, chunk_size):
            chunk = (_view(self, positions, view, augment), self.labels[positions], positions)
            for x, y, index in zip(*(torch.split(t, batch_size) for t in chunk), strict=True):
                yield Batch(x, y, index, epoch, step)
                step += 1

    def reply(self, models: Mapping[str, Tensor], **values: Any) -> Reply:
        copies = {name: vector.clone() for name, vector in models.items()}
        return Reply(self.id, self.num_samples, copies, values)


def _view(
    client: LocalClient, positions: Tensor, view: str, generator: torch.Generator | None
) -> Tensor:
    internals: _Internals = internals_of(client)
    return internals.split.view(internals.indices[positions], view, generator)
