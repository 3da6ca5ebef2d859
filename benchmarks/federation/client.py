"""A client while one of its tasks runs."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from benchmarks.data.images import Images
from benchmarks.data.transforms import ImageTransforms
from methods.core.contract import Batch, Reply
from methods.core.flat_model import FlatModel

EPOCH_CHUNK = (
    4096  # samples whose augmented images are made at once: one client's epoch for the usual sizes
)


class ImageSplit(NamedTuple):
    """The images of one split and how a network sees them. No label: what a worker holds of a data set cannot tell the truth."""

    images: Images
    views: ImageTransforms

    def view(self, index: Tensor, view: str, generator: torch.Generator | None) -> Tensor:
        return self.views(self.images.fetch(index), view, generator)


class LocalClient:
    """A client while one of its tasks runs (see methods.base.Client). Holds no true label."""

    def __init__(
        self,
        client_id: int,
        index: Tensor,
        given_labels: Tensor,
        labels: Tensor,
        state: dict[str, Any],
        pictures: ImageSplit,
        num_classes: int,
        lend: Callable[[], FlatModel],
    ):
        self.id = client_id
        self.num_samples = len(index)
        self.num_classes = num_classes
        self.given_labels = given_labels
        self.labels = labels
        self.state = state
        self.samples_trained = 0
        self.samples_scored = 0
        self._index, self._pictures, self._lend = index, pictures, lend

    def load_model(self, vector: Tensor) -> FlatModel:
        return self._lend().load(vector)

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
        """One shuffled epoch, over all samples or a subset of positions; the last short batch is kept."""
        shuffled = torch.randperm(
            self.num_samples if subset is None else len(subset), generator=order
        )
        if subset is not None:
            shuffled = subset[shuffled]
        self.samples_trained += len(shuffled)
        step = 0
        chunk = (
            max(EPOCH_CHUNK // batch_size, 1) * batch_size
            if self._pictures.images.in_memory
            else batch_size
        )
        for positions in shuffled.split(chunk):
            x, y = self._view(positions, view, augment), self.labels[positions]
            for part in zip(
                x.split(batch_size), y.split(batch_size), positions.split(batch_size), strict=True
            ):
                yield Batch(*part, epoch, step)
                step += 1

    def reply(self, models: Mapping[str, Tensor], **values: Any) -> Reply:
        return Reply(
            self.id,
            self.num_samples,
            {name: vector.clone() for name, vector in models.items()},
            values,
        )

    def _view(self, positions: Tensor, view: str, generator: torch.Generator | None) -> Tensor:
        return self._pictures.view(self._index[positions], view, generator)
