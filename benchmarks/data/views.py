"""What the network sees of a batch: normalised images, as they are or augmented, for the whole batch at once.

`plain`  normalised only; files that were decoded larger than the network's input are brought to size as the test
         transform does.
`train`  the data set's own training augmentation. CIFAR: crop with a black border of 4, and flip (FedCorr). MNIST,
         Fashion-MNIST, digits: none (FedLSR, LSG). Clothing1M: random 224 x 224 of 256 x 256, and flip (FedCorr).
         ImageNet-100: the same, which is our choice, as LSG's paper only says that images are resized to 224.
`strong` `train`, then AutoAugment's CIFAR-10 policy (used by Fed-CNML), one sub-policy per image.
`second` FedLSR's second view: one draw for the whole batch, rotation for grey images, flip with colour jitter and
         greyscale for colour. The released code augments the already normalised tensor, where the colour operations
         clip most of it away; here it is done on pixels in [0, 1], before normalising.
"""

from typing import Literal

import torch
from torch import Generator, Tensor
from torch.nn import functional

from benchmarks.data.catalogue import VIEWS, Shape, Statistics


class Views:
    """The views of one data set. All randomness comes from the generator of the call."""

    def __init__(
        self,
        shape: Shape,
        statistics: Statistics,
        *,
        pad: int = 0,
        flip: bool = False,
        shrink: Literal["crop", "resize"] = "crop",
        second: Literal["rotation", "colour"] = "colour",
    ) -> None:
        self.shape = shape
        self.pad = pad
        self.flip = flip
        self.shrink = shrink
        self.second = second
        self._mean = torch.tensor(statistics[0]).view(-1, 1, 1)
        self._deviation = torch.tensor(statistics[1]).view(-1, 1, 1)

    def __call__(self, images: Tensor, view: str, generator: Generator | None) -> Tensor:
        """uint8 (n, C, H', W') to float32 (n, C, H, W), contiguous; the images given are left as they are."""
        if view == "plain":
            return self._normalise(_to_unit(self._fit(images)))
        if view not in VIEWS:
            raise ValueError(f"view '{view}' is unknown; legal: {', '.join(VIEWS)}")
        if generator is None:
            raise ValueError(f"view '{view}' is random and needs a generator")
        # The two modules below import torchvision, which takes seconds that other runs need not spend.
        if view == "second":
            from benchmarks.data.second_view import second_view

            return self._normalise(second_view(_to_unit(self._fit(images)), self.second, generator))
        images = self._crop_and_flip(images, generator)
        if view == "strong":
            from benchmarks.data.policy import apply_policy

            images = apply_policy(images, generator)
        return self._normalise(_to_unit(images))

    def _normalise(self, images: Tensor) -> Tensor:
        mean, deviation = self._mean.to(images.device), self._deviation.to(images.device)
        # Greyscale shares one channel's memory between three, so contiguous comes before working in place.
        return images.contiguous().sub_(mean).div_(deviation)

    def _fit(self, images: Tensor) -> Tensor:
        height, width = self.shape[1:]
        if images.shape[2:] == (height, width):
            return images
        if self.shrink == "resize":
            from benchmarks.data.torchvision_import import torchvision

            return torchvision.transforms.v2.functional.resize(images, [height, width])
        top, left = round((images.shape[2] - height) / 2), round((images.shape[3] - width) / 2)
        return images[:, :, top : top + height, left : left + width]

    def _crop_and_flip(self, images: Tensor, generator: Generator) -> Tensor:
        count, device = len(images), images.device
        padded = functional.pad(images, (self.pad,) * 4) if self.pad else images
        height, width = self.shape[1:]
        num_tops, num_lefts = padded.shape[2] - height + 1, padded.shape[3] - width + 1
        if num_tops > 1 or num_lefts > 1:
            tops = torch.randint(
                num_tops, (count,), generator=generator, device=generator.device
            ).to(device)
            lefts = torch.randint(
                num_lefts, (count,), generator=generator, device=generator.device
            ).to(device)
            # A view of every window of every image; picking one per image is the only copy.
            windows = padded.unfold(2, height, 1).unfold(3, width, 1)
            images = windows[torch.arange(count, device=device), :, tops, lefts]
        if self.flip:
            flipped = (
                torch.rand(count, generator=generator, device=generator.device).to(device) < 0.5
            )
            images = torch.where(flipped.view(-1, 1, 1, 1), images.flip(-1), images)
        return images


def _to_unit(images: Tensor) -> Tensor:
    return images.float().div_(255)
