"""Client-side data access during a client task."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor

from benchmarks.data.images import Images
from benchmarks.data.transforms import CropsAndFlips, ImageTransforms
from benchmarks.federation.internals import hide, internals_of
from benchmarks.federation.transfer import HOST, UploadQueue, pin, upload
from methods.core.flat_model import FlatModel
from methods.core.task import Batch, Epoch, Reply, View

Step = Callable[[Batch], None]

# Size of the float32 images that are made at once. A local epoch usually needs less.
CHUNK_BYTES = 64 * 2**20
# Size of a client's uint8 images above which they are read in chunks, again in every epoch.
STREAM_BYTES = 512 * 2**20


class ImageSplit(NamedTuple):
    """Images of one split and their transforms. Without labels, so workers have no clean labels."""

    images: Images
    views: ImageTransforms
    on_device: Tensor | None = None  # all uint8 images, where they fit on the device

    def plain(self, index: Tensor, device: torch.device) -> Tensor:
        """Images under the view `plain`; the index is on the host."""
        if self.on_device is not None:
            images = self.on_device.index_select(0, *upload([index], device))
        else:
            (images,) = upload([self.read(index, device)], device)
        return self.views(images, "plain", None)

    def read(self, index: Tensor, device: torch.device) -> Tensor:
        """uint8 images in host memory from which they can be uploaded."""
        return pin(self.images.fetch(index), device)

    def is_streamed(self, count: int) -> bool:
        """True if this many images of a client are never read at once."""
        return self.on_device is None and count * prod(self.images.stored_shape) > STREAM_BYTES


class ClientImages:
    """The images of one client, read once per task, at first use; in chunks if they are large."""

    def __init__(
        self,
        split: ImageSplit,
        indices: Tensor,
        device: torch.device = HOST,
        read: Callable[[], Tensor] | None = None,  # replaces reading from the split
    ):
        self.views, self.device, self.uploads = split.views, device, UploadQueue(device)
        self.is_streamed = split.is_streamed(len(indices))
        self._split, self._positions, self._read = split, indices, read
        if split.on_device is not None:
            self._number = self.uploads.put(indices)

    def __len__(self) -> int:
        return len(self._positions)

    @cached_property
    def on_host(self) -> Tensor:
        return self._read() if self._read else self._split.read(self._positions, self.device)

    @cached_property
    def on_device(self) -> Tensor:
        if self._split.on_device is not None:
            return self._split.on_device.index_select(0, self.uploads.get(self._number))
        return self.uploads.upload(self.on_host)

    def draw(self, count: int, generator: Generator) -> CropsAndFlips:
        """Random numbers of the view `train`."""
        return self.views.draw(self._split.images.stored_shape[1:], count, generator)

    def stream(self, indices: Sequence[Tensor]) -> Iterator[Tensor | None]:
        """For each index on the host, uint8 images; None if they are not streamed.

        Another thread reads the next images while the caller uses these.
        """
        if not self.is_streamed:
            yield from (None for _ in indices)
            return
        ahead: deque[Future[Tensor]] = deque()
        with ThreadPoolExecutor(1) as reader:
            for index in indices:
                ahead.append(reader.submit(self._split.read, self._positions[index], self.device))
                if len(ahead) > 1:
                    yield ahead.popleft().result()
            yield from (future.result() for future in ahead)

    def render(
        self,
        pixels: Tensor | None,
        host_index: Tensor,
        index: Tensor,
        batch_size: int,
        view: tuple[str, Generator | None],
        draws: CropsAndFlips | None,
    ) -> Tensor:
        """Images under a view. `draws` are on the device; only the view `train` has them.

        Without `pixels` of a stream, the images at the index are used. It can be on any device.
        """
        name = view[0]
        if name == "plain" or draws is not None:
            if pixels is None:
                pixels = self.on_device.index_select(0, index.to(self.device))
            else:
                pixels = self.uploads.upload(pixels)
            if draws is None:
                return self.views(pixels, *view)
            return self.views.train_view(pixels, draws)
        if pixels is None:
            pixels = self.on_host.index_select(0, host_index.cpu())
        # The view `second` is sampled once per batch.
        parts = pixels.split(batch_size) if name == "second" else [pixels]
        return self.uploads.upload(torch.cat([self.views(part, *view) for part in parts]))


@dataclass
class _Internals:
    """Parts of a client that methods do not see: indices and file names can reveal classes."""

    images: ClientImages
    acquire_model: Callable[[], FlatModel]
    prepare_step: Callable[[Step], Step]
    received: int  # number of the upload with given labels, labels and state
    new_labels: Tensor | None = None


class _HiddenIterator:
    """An iterator whose source methods do not see. They see all variables of a generator."""

    def __init__(self, source: Iterator[Tensor | None]):
        hide(self, source)

    def __iter__(self) -> "_HiddenIterator":
        return self

    def __next__(self) -> Tensor | None:
        item: Tensor | None = next(internals_of(self))
        return item


class LocalClient:
    """A client during one task; implements `methods.core.task.Client`.

    Labels and state are uploaded when they are first read, or with the next upload.
    """

    def __init__(
        self,
        id: int,
        all_images: ClientImages,
        given_labels: Tensor,
        labels: Tensor,
        state: dict[str, Any],
        num_classes: int,
        acquire_model: Callable[[], FlatModel],
        prepare_step: Callable[[Step], Step] = lambda step: step,
    ):
        self.id, self.num_classes = id, num_classes
        self.num_samples, self.device = len(all_images), all_images.device
        self.samples_trained = 0
        self.samples_scored = 0  # images outside the training batches, with or without a gradient
        received = all_images.uploads.put((given_labels, labels, state))
        hide(self, _Internals(all_images, acquire_model, prepare_step, received))

    @property
    def given_labels(self) -> Tensor:
        labels: Tensor = _received(self)[0]
        return labels

    @property
    def labels(self) -> Tensor:
        new = internals_of(self).new_labels
        labels: Tensor = _received(self)[1] if new is None else new
        return labels

    @labels.setter
    def labels(self, labels: Tensor) -> None:
        internals_of(self).new_labels = None if labels is _received(self)[1] else labels

    @property
    def state(self) -> dict[str, Any]:
        state: dict[str, Any] = _received(self)[2]
        return state

    def load_model(self, vector: Tensor) -> FlatModel:
        model: FlatModel = internals_of(self).acquire_model()
        return model.load(vector)

    def upload(self, *tensors: Tensor) -> list[Tensor]:
        return _images(self).uploads.upload(list(tensors))

    def upload_later(self, *tensors: Tensor) -> Callable[[], list[Tensor]]:
        return partial(_uploaded, self, _images(self).uploads.put(list(tensors)))

    def images(
        self, index: Tensor, view: str = "plain", generator: Generator | None = None
    ) -> Tensor:
        self.samples_scored += len(index)
        images, draws = _images(self), None
        if view == "train" and generator is not None:
            draws = self.upload(*images.draw(len(index), generator))
        (pixels,) = images.stream([index.cpu() if images.is_streamed else index])
        return images.render(pixels, index, index, len(index), (view, generator), draws)

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
        on_device = images.uploads.upload(drawn)
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
        host_orders = host_order.split(chunk_size)
        for number, pixels in enumerate(_HiddenIterator(_images(self).stream(host_orders))):
            start = number * chunk_size
            chunk = slice(start, min(start + chunk_size, count))
            selected = pixels, host_orders[number], order[chunk], size
            x, *second = (
                _images(self).render(*selected, view, draw and [values[chunk] for values in draw])
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

    def prepare_step(self, step: Step) -> Step:
        prepared: Step = internals_of(self).prepare_step(step)
        return prepared

    def reply(self, models: Mapping[str, Tensor], **values: Any) -> Reply:
        copies = {name: vector.clone() for name, vector in models.items()}
        return Reply(self.id, self.num_samples, copies, values)


def changes_of(client: LocalClient) -> tuple[Tensor | None, dict[str, Any]]:
    """New labels, None if unchanged, and the state. What was not read is still on the host."""
    internals: _Internals = internals_of(client)
    return internals.new_labels, internals.images.uploads.peek(internals.received)[2]


def _images(client: LocalClient) -> ClientImages:
    images: ClientImages = internals_of(client).images
    return images


def _received(client: LocalClient) -> Any:
    return _uploaded(client, internals_of(client).received)


def _uploaded(client: LocalClient, number: int) -> Any:
    return _images(client).uploads.get(number)
