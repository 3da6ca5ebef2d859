"""FedLSR's second view of a batch: every image gets the same transform, drawn once per batch.

Paper: Jiang et al., "Towards Federated Learning against Noisy Labels via Local Self-Regularization", CIKM 2022.
Rotation, or flip, colour jitter and greyscale, with the strengths of the released code.
"""

from typing import Literal

import torch
from torch import Generator, Tensor

from benchmarks.data.torchvision_import import torchvision

functional = torchvision.transforms.v2.functional

ROTATION_DEGREES = 30.0
FLIP_PROBABILITY = 0.5
JITTER_PROBABILITY = 0.8
JITTER_STRENGTH = (0.8, 0.8, 0.8, 0.2)
"""Of brightness, contrast, saturation (factors 1 - s .. 1 + s) and hue (shift -s .. s)."""
GREYSCALE_PROBABILITY = 0.2


def second_view(
    images: Tensor, kind: Literal["rotation", "colour"], generator: Generator
) -> Tensor:
    """Augment float images in [0, 1]."""
    if kind == "rotation":
        (draw,) = torch.rand(1, generator=generator, device=generator.device).tolist()
        return functional.rotate(images, (2 * draw - 1) * ROTATION_DEGREES)
    # Everything is drawn, used or not: the draws that follow do not depend on the outcome of a coin.
    flip, jitter, greyscale, *amounts = torch.rand(
        7, generator=generator, device=generator.device
    ).tolist()
    order = torch.randperm(4, generator=generator, device=generator.device).tolist()
    if flip < FLIP_PROBABILITY:
        images = images.flip(-1)
    if jitter < JITTER_PROBABILITY:
        images = colour_jitter(images, amounts, order)
    if greyscale < GREYSCALE_PROBABILITY:
        images = functional.rgb_to_grayscale(images, num_output_channels=3)
    return images


def colour_jitter(images: Tensor, amounts: list[float], order: list[int]) -> Tensor:
    """Brightness, contrast, saturation and hue (0..3) in the given order.

    Amounts 0, 0.5 and 1 are the lowest, the neutral and the highest setting.
    """
    for operation in order:
        shift = (2 * amounts[operation] - 1) * JITTER_STRENGTH[operation]
        if operation == 0:
            images = functional.adjust_brightness(images, 1 + shift)
        elif operation == 1:
            images = functional.adjust_contrast(images, 1 + shift)
        elif operation == 2:
            images = functional.adjust_saturation(images, 1 + shift)
        else:
            images = functional.adjust_hue(images, shift)
    return images
