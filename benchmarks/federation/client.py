"""Client-side data access during a client task."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from functools import cached_property
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor

from benchmarks.data.images import Images
from benchmarks.data.transforms import DEVICE_VIEWS, CropsAndFlips, ImageTransforms
from benchmarks.federation.internals import hide, internals_of
from benchmarks.federation.transfer import HOST, Border, upload
from methods.core.flat_model import FlatModel
from methods.core.task import Batch, Epoch, Reply, View

# Size of the float32 images that are made at once. A local epoch usually needs less.
CHUNK_BYTES = 64 * 2**20


class ImageSplit(NamedTuple):
    """Images of one split and their transforms. Without labels, so workers have no clean labels."""

    images: Images
    views: ImageTransforms
    on_device: Tensor | None = None  # all uint8 images, where they fit on the device

    def plain(self, index: Tensor, device: torch.device) -> Tensor:
        """Images under the view `plain`; the index is on the host."""
        return self.views(self.gather(index, device), "plain", None)

    def gather(self, index: Tensor, device: torch.device) -> Tensor:
        """uint8 images on a device; the index is on the host."""
        if self.on_device is not None:
            return self.on_device.index_select(0, *upload([index], device))
        return upload([self.images.fetch(index)], device)[0]


class ClientImages:
    """The images of one client, read once per task: first use reads them."""

    def __init__(
        self,
        split: ImageSplit,
        indices: Tensor,
        device: torch.device = HOST,
        read: Callable[[], Tensor] | None = None,  # replaces reading from the split
    ):
        self.views, self.device = split.views, device
        self._split, self._positions, self._read = split, indices, read

    def __len__(self) -> int:
        return len(self._positions)

    @cached_property
    def on_host(self) -> Tensor:
        return self._read() if self._read else self._split.images.fetch(self._positions)

    @cached_property
    def on_device(self) -> Tensor:
        if self._split.on_device is not None:
            return self._split.gather(self._positions, self.device)
        return upload([self.on_host], self.device)[0]

    def draw(self, count: int, generator: Generator) -> CropsAndFlips:
        """Random numbers of the view `train`."""
        pixels = self.on_host if self._split.on_device is None else self.on_device
        return self.views.draw(pixels.shape[2:], count, generator)

    def host_view(self, index: Tensor, view: str, generator: Generator | None) -> Tensor:
        return self.views(self.on_host.index_select(0, index), view, generator)

    def device_view(self, index: Tensor, draws: CropsAndFlips | None) -> Tensor:
        """The view `plain`, or `train` with the given random numbers."""
        images = self.on_device.index_select(0, index)
        if draws is None:
            return self.views(images, "plain", None)
        return self.views.train_view(images, draws)


class _Internals(NamedTuple):
    """Parts of a client that methods do not see: indices and file names can reveal classes."""

    images: ClientImages
    acquire_model: Callable[[], FlatModel]


@dataclass(eq=False)
class LocalClient:
    """A client during one task; implements `methods.core.task.Client`."""

    id: int
    all_images: InitVar[ClientImages]
    given_labels: Tensor
    labels: Tensor
    state: dict[str, Any]
    num_classes: int
    acquire_model: InitVar[Callable[[], FlatModel]]
    samples_trained: int = 0
    samples_scored: int = 0  # images outside the training batches, with or without a gradient
    num_samples: int = field(init=False)
    device: torch.device = field(init=False)

    def __post_init__(
        self, all_images: ClientImages, acquire_model: Callable[[], FlatModel]
    ) -> None:
        self.num_samples, self.device = len(all_images), all_images.device
        hide(self, _Internals(all_images, acquire_model))

    def load_model(self, vector: Tensor) -> FlatModel:
        model: FlatModel = internals_of(self).acquire_model()
        return model.load(vector)

    def upload(self, *tensors: Tensor) -> list[Tensor]:
        return upload(tensors, self.device)

    def images(
        self, index: Tensor, view: str = "plain", generator: Generator | None = None
    ) -> Tensor:
        self.samples_scored += len(index)
        images = _images(self)
        if view == "train" and generator is not None:
            draws = self.upload(*images.draw(len(index), generator))
            return images.device_view(index.to(self.device), draws)
        if view == "plain":
            return images.device_view(index.to(self.device), None)
        return self.upload(images.host_view(index.cpu(), view, generator))[0]

    def epochs(
        self,
        subsets: Sequence[Tensor | None],
        batch_size: int,
        view: str,
        order: Generator,
        augment: Generator,
        second_view: View | None = None,
    ) -> list[Epoch]:
        images, drawn = _images(self), []
        views = [(view, augment)] if second_view is None else [(view, augment), second_view]
        for subset in subsets:
            count = self.num_samples if subset is None else len(subset)
            shuffled = torch.randperm(count, generator=order)
            draws = [images.draw(count, g) if name == "train" else None for name, g in views]
            drawn.append((shuffled if subset is None else subset[shuffled], draws))
        on_device = Border(self.device).to_device(drawn)
        return [
            Epoch(moved[0], self._batches(number, batch_size, host_order, *moved, views))
            for number, ((host_order, _), moved) in enumerate(zip(drawn, on_device, strict=True))
        ]

    def _batches(
        self,
        epoch: int,
        size: int,
        host_order: Tensor,
        order: Tensor,
        draws: Sequence[CropsAndFlips | None],
        views: Sequence[View],
    ) -> Iterator[Batch]:
        count, labels = len(order), self.labels[order]
        self.samples_trained += count
        chunk_size = max(CHUNK_BYTES // (4 * prod(_images(self).views.shape) * size), 1) * size
        for start in range(0, count, chunk_size):
            chunk = slice(start, min(start + chunk_size, count))
            orders = host_order[chunk], order[chunk]
            x, *second = (
                _render(self, *orders, size, view, draw and [values[chunk] for values in draw])
                for view, draw in zip(views, draws, strict=True)
            )
            for first in range(start, chunk.stop, size):
                rows = slice(first, min(first + size, count))
                here = slice(rows.start - start, rows.stop - start)
                batch = Batch(x[here], labels[rows], order[rows], epoch, first // size, rows)
                for images in second:
                    self.samples_scored += rows.stop - rows.start
                    batch.second = images[here]
                yield batch

    def reply(self, models: Mapping[str, Tensor], **values: Any) -> Reply:
        copies = {name: vector.clone() for name, vector in models.items()}
        return Reply(self.id, self.num_samples, copies, values)


def _images(client: LocalClient) -> ClientImages:
    images: ClientImages = internals_of(client).images
    return images


def _render(
    client: LocalClient,
    host_order: Tensor,
    order: Tensor,
    batch_size: int,
    view: View,
    draws: CropsAndFlips | None,
) -> Tensor:
    images, name = _images(client), view[0]
    if name in DEVICE_VIEWS:
        return images.device_view(order, draws)
    # The view `second` is sampled once per batch.
    parts = host_order.split(batch_size) if name == "second" else [host_order]
    return client.upload(torch.cat([images.host_view(part, *view) for part in parts]))[0]
