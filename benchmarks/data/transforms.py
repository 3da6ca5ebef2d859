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

from typing import Any

import torch
from torch import Generator, Tensor
from torch.nn import functional

from benchmarks.data.registry import VIEWS, Augmentation, Shape, Statistics


class ImageTransforms:
    """The transforms of one dataset. All random numbers come from the generator of the call."""

    def __init__(self, shape: Shape, statistics: Statistics, options: Augmentation) -> None:
        self.shape = shape
        self.options = options
        self._mean = torch.tensor(statistics[0]).view(-1, 1, 1)
        self._std = torch.tensor(statistics[1]).view(-1, 1, 1)

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
        images = self._crop_and_flip(images, generator)
        if view == "strong":
            from benchmarks.data.autoaugment import apply_policy

            images = apply_policy(images, generator)
        return self._normalize(_to_float(images))

    def _normalize(self, images: Tensor) -> Tensor:
        mean, std = self._mean.to(images.device), self._std.to(images.device)
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

    def _crop_and_flip(self, images: Tensor, generator: Generator) -> Tensor:
        count, device = len(images), images.device
        source: dict[str, Any] = {"generator": generator, "device": generator.device}
        padded = functional.pad(images, (self.options.pad,) * 4) if self.options.pad else images
        height, width = self.shape[1:]
        num_tops, num_lefts = padded.shape[2] - height + 1, padded.shape[3] - width + 1
        if num_tops > 1 or num_lefts > 1:
            tops, lefts = (
                torch.randint(limit, (count,), **source).to(device)
                for limit in (num_tops, num_lefts)
            )
            # `windows` is a view of every crop of every image. Indexing makes the only copy.
            windows = padded.unfold(2, height, 1).unfold(3, width, 1)
            images = windows[torch.arange(count, device=device), :, tops, lefts]
        if self.options.flip:
            samples = torch.rand(count, **source).to(device)
            images = torch.where((samples < 0.5).view(-1, 1, 1, 1), images.flip(-1), images)
        return images


def _to_float(images: Tensor) -> Tensor:
    return images.float().div_(255)
