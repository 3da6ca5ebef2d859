"""Image transforms of a batch, one per view.

`plain`   Normalization. Images larger than the model's input are first reduced to its size.
`train`   The dataset's training augmentation.
          CIFAR: random crop with a black border of 4 pixels, and flip (FedCorr).
          MNIST, Fashion-MNIST, digits: none (FedLSR, LSG).
          Clothing1M: random crop of 224 x 224 from 256 x 256, and flip (FedCorr).
          ImageNet-100: as Clothing1M. LSG's paper only states that images are resized to 224.
`strong`  `train`, then AutoAugment's CIFAR-10 policy with one sub-policy per image (Fed-CNML).
`second`  FedLSR's second view, sampled once per batch. Gray images: rotation. Color images: flip,
          color jitter and grayscale.

Deviations
1. FedLSR's official code applies the second view to normalized images, where the color operations
   clip most values. Here it is applied to pixels in [0, 1], before normalization.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Generator, Tensor
from torch.nn import functional

from benchmarks.data.registry import VIEWS, Augmentation, Shape, Statistics

CropsAndFlips = list[Tensor]  # rows and columns of the crops, and flips; each only if random


class ImageTransforms:
    """The transforms of one dataset. All random numbers come from the generator of the call."""

    def __init__(self, shape: Shape, statistics: Statistics, options: Augmentation) -> None:
        self.shape = shape
        self.options = options
        mean, std = (torch.tensor(values).view(-1, 1, 1) for values in statistics)
        self._statistics = {torch.device("cpu"): (mean, std)}

    def __call__(self, images: Tensor, view: str, generator: Generator | None) -> Tensor:
        """Transform uint8 (n, C, H', W') to a new contiguous float32 tensor (n, C, H, W)."""
        if view == "plain":
            return self._normalize(_to_float(self._resize_or_crop(images)))
        if view not in VIEWS:
            raise ValueError(f"unknown view {view!r}: available: {', '.join(VIEWS)}")
        if generator is None:
            raise ValueError(f"view {view!r} is random and requires a generator")
        # The two modules below import torchvision, which takes seconds.
        if view == "second":
            from benchmarks.data.second_view import second_view

            pixels = _to_float(self._resize_or_crop(images))
            return self._normalize(second_view(pixels, self.options.second_view, generator))
        images = self._crop_and_flip(images, self.draw(images.shape[2:], len(images), generator))
        if view == "strong":
            from benchmarks.data.autoaugment import apply_policy

            images = apply_policy(images, generator)
        return self._normalize(_to_float(images))

    def draw(self, size: Sequence[int], count: int, generator: Generator) -> CropsAndFlips:
        """Random numbers of the view `train` for images of a size (H', W')."""
        source: dict[str, Any] = {"generator": generator, "device": generator.device}
        limits = self._crop_limits(size)
        corners = [torch.randint(n, (count,), **source) for n in limits if max(limits) > 1]
        flips = [torch.rand(count, **source) < 0.5] if self.options.flip else []
        return [*corners, *flips]

    def train_view(self, images: Tensor, draws: CropsAndFlips) -> Tensor:
        """The view `train` with random numbers that are on the device of the images."""
        return self._normalize(_to_float(self._crop_and_flip(images, draws)))

    def _crop_limits(self, size: Sequence[int]) -> list[int]:
        """Number of rows and columns at which a crop can start."""
        return [
            side + 2 * self.options.pad - wanted + 1
            for side, wanted in zip(size, self.shape[1:], strict=True)
        ]

    def _normalize(self, images: Tensor) -> Tensor:
        if images.device not in self._statistics:
            mean, std = self._statistics[torch.device("cpu")]
            self._statistics[images.device] = mean.to(images.device), std.to(images.device)
        mean, std = self._statistics[images.device]
        # The three channels of a grayscale result share memory. In-place operations need a copy.
        return images.contiguous().sub_(mean).div_(std)

    def _resize_or_crop(self, images: Tensor) -> Tensor:
        height, width = self.shape[1:]
        if images.shape[2:] == (height, width):
            return images
        if self.options.resize_mode == "resize":
            from benchmarks.data.torchvision_import import torchvision

            resized: Tensor = torchvision.transforms.v2.functional.resize(images, [height, width])
            return resized
        top, left = round((images.shape[2] - height) / 2), round((images.shape[3] - width) / 2)
        return images[:, :, top : top + height, left : left + width]

    def _crop_and_flip(self, images: Tensor, draws: CropsAndFlips) -> Tensor:
        corners = draws[:-1] if self.options.flip else draws
        if corners:
            pad, (height, width) = self.options.pad, self.shape[1:]
            padded = functional.pad(images, (pad,) * 4) if pad else images
            # `windows` is a view of every crop of every image. Indexing makes the only copy.
            windows = padded.unfold(2, height, 1).unfold(3, width, 1)
            tops, lefts = corners
            images = windows[torch.arange(len(images), device=images.device), :, tops, lefts]
        if self.options.flip:
            images = torch.where(draws[-1].view(-1, 1, 1, 1), images.flip(-1), images)
        return images


def _to_float(images: Tensor) -> Tensor:
    return images.float().div_(255)
