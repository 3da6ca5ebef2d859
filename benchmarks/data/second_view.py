"""FedLSR's second view: one random transform per batch, applied to every image.

Paper: Jiang et al., "Towards Federated Learning against Noisy Labels via Local
Self-Regularization", CIKM 2022. Strengths and probabilities are those of the official code.
"""

from typing import Literal

import torch
from torch import Generator, Tensor

from benchmarks.data.torchvision_import import torchvision

functional = torchvision.transforms.v2.functional

ROTATION_DEGREES = 30.0
FLIP_PROBABILITY = 0.5
JITTER_PROBABILITY = 0.8
GRAYSCALE_PROBABILITY = 0.2
JITTER_STRENGTH = (0.8, 0.8, 0.8, 0.2)  # s: factors in [1 - s, 1 + s], or hue shift in [-s, s]
ADJUSTMENTS = (
    functional.adjust_brightness,
    functional.adjust_contrast,
    functional.adjust_saturation,
    functional.adjust_hue,
)


def second_view(images: Tensor, kind: Literal["rotation", "color"], generator: Generator) -> Tensor:
    """Augment float images with pixels in [0, 1]."""
    device = generator.device
    if kind == "rotation":
        sample = torch.rand(1, generator=generator, device=device).item()
        rotated: Tensor = functional.rotate(images, (2 * sample - 1) * ROTATION_DEGREES)
        return rotated
    # Sample all numbers first, so that later samples do not depend on the branches below.
    flip, jitter, grayscale, *amounts = torch.rand(7, generator=generator, device=device).tolist()
    order = torch.randperm(4, generator=generator, device=device).tolist()
    if flip < FLIP_PROBABILITY:
        images = images.flip(-1)
    if jitter < JITTER_PROBABILITY:
        images = color_jitter(images, amounts, order)
    if grayscale < GRAYSCALE_PROBABILITY:
        images = functional.rgb_to_grayscale(images, num_output_channels=3)
    return images


def color_jitter(images: Tensor, amounts: list[float], order: list[int]) -> Tensor:
    """Apply the ADJUSTMENTS in the given order.

    Amounts lie in [0, 1]. An amount of 0.5 changes nothing.
    """
    for operation in order:
        shift = (2 * amounts[operation] - 1) * JITTER_STRENGTH[operation]
        neutral = 0 if ADJUSTMENTS[operation] is functional.adjust_hue else 1
        images = ADJUSTMENTS[operation](images, neutral + shift)
    return images
