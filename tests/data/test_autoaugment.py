"""AutoAugment's CIFAR-10 policy against torchvision, PIL and its own probabilities."""

import math
from collections import Counter, defaultdict

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor

from benchmarks.data.autoaugment import (
    FILL,
    SIGNED_OPERATIONS,
    SUB_POLICIES,
    apply_operation,
    apply_policy,
)
from benchmarks.data.torchvision_import import torchvision

transforms = torchvision.transforms.v2
GRAY = (int(FILL),) * 3


def smooth_images(count: int, side: int = 32, seed: int = 0) -> Tensor:
    coarse = torch.rand((count, 3, 5, 5), generator=torch.Generator().manual_seed(seed)) * 255
    return (
        torch.nn.functional.interpolate(coarse, size=(side, side), mode="bicubic")
        .clamp(0, 255)
        .to(torch.uint8)
    )


def with_pil(image: Tensor, operation: str, magnitude: int, negative: bool) -> np.ndarray:
    """Apply the operation of the AutoAugment paper with PIL."""
    pil_image = Image.fromarray(image.permute(1, 2, 0).numpy())
    sign = -1 if negative else 1
    factor = 1 + sign * 0.9 * magnitude / 9
    shift = sign * int(150 / 331 * 32 * magnitude / 9)
    shear = sign * 0.3 * magnitude / 9

    def affine(*matrix: float) -> Image.Image:
        return pil_image.transform(pil_image.size, Image.Transform.AFFINE, matrix, fillcolor=GRAY)

    result = {
        "ShearY": lambda: affine(1, 0, 0, shear, 1, 0),
        "TranslateX": lambda: affine(1, 0, -shift, 0, 1, 0),
        "TranslateY": lambda: affine(1, 0, 0, 0, 1, -shift),
        "Rotate": lambda: pil_image.rotate(sign * 30 * magnitude / 9, fillcolor=GRAY),
        "Brightness": lambda: ImageEnhance.Brightness(pil_image).enhance(factor),
        "Color": lambda: ImageEnhance.Color(pil_image).enhance(factor),
        "Contrast": lambda: ImageEnhance.Contrast(pil_image).enhance(factor),
        "Sharpness": lambda: ImageEnhance.Sharpness(pil_image).enhance(factor),
        "Posterize": lambda: ImageOps.posterize(pil_image, round(8 - 4 * magnitude / 9)),
        "Solarize": lambda: ImageOps.solarize(pil_image, math.ceil(256 - 256 * magnitude / 9)),
        "AutoContrast": lambda: ImageOps.autocontrast(pil_image),
        "Equalize": lambda: ImageOps.equalize(pil_image),
        "Invert": lambda: ImageOps.invert(pil_image),
    }[operation]()
    return np.asarray(result).transpose(2, 0, 1)


def test_policy_is_that_of_the_paper() -> None:
    assert len(SUB_POLICIES) == 25
    assert SUB_POLICIES[0] == (("Invert", 0.1, None), ("Contrast", 0.2, 6))
    assert SUB_POLICIES[13] == (("Brightness", 0.9, 6), ("Color", 0.2, 8))
    assert SUB_POLICIES[24] == (("TranslateY", 0.7, 9), ("AutoContrast", 0.9, None))


STEPS = sorted(
    {(operation, magnitude or 0) for pair in SUB_POLICIES for operation, _, magnitude in pair}
)


@pytest.mark.parametrize(("operation", "magnitude"), STEPS)
def test_each_operation_equals_pils(operation: str, magnitude: int) -> None:
    """Values differ by rounding. Pixels halfway between two source pixels can take either one."""
    images = smooth_images(4)
    for negative in (False, True) if operation in SIGNED_OPERATIONS else (False,):
        ours = apply_operation(images, operation, magnitude, negative).numpy().astype(int)
        expected = np.stack(
            [with_pil(image, operation, magnitude, negative) for image in images]
        ).astype(int)
        difference = np.abs(ours - expected)
        if operation in ("ShearY", "Rotate"):
            assert (difference <= 1).mean() > 0.97
        else:
            assert difference.max() <= 1


def test_operations_are_independent_of_the_batch() -> None:
    images = smooth_images(5)
    for operation, magnitude in STEPS:
        alone = torch.cat([apply_operation(image[None], operation, magnitude) for image in images])
        assert torch.equal(apply_operation(images, operation, magnitude), alone), operation


def outcome_probabilities(image: Tensor) -> dict[bytes, float]:
    """Probability of every possible result of the policy for one image."""
    outcomes: defaultdict[bytes, float] = defaultdict(float)
    for (first, first_chance, first_level), (second, second_chance, second_level) in SUB_POLICIES:
        for use_first, weight_first in ((True, first_chance), (False, 1 - first_chance)):
            for use_second, weight_second in ((True, second_chance), (False, 1 - second_chance)):
                for signs in range(4):
                    result = image[None]
                    if use_first:
                        result = apply_operation(
                            result,
                            first,
                            first_level,
                            first in SIGNED_OPERATIONS and bool(signs & 1),
                        )
                    if use_second:
                        result = apply_operation(
                            result,
                            second,
                            second_level,
                            second in SIGNED_OPERATIONS and bool(signs & 2),
                        )
                    outcomes[result.numpy().tobytes()] += (
                        weight_first * weight_second / 4 / len(SUB_POLICIES)
                    )
    return dict(outcomes)


def test_results_follow_the_probabilities_of_the_policy() -> None:
    """With 8000 copies, the sampling error is 0.4 sqrt(outcomes / 8000) < 0.06."""
    image = smooth_images(1, side=8)[0]
    expected = outcome_probabilities(image)
    copies = 8000
    results = apply_policy(image.expand(copies, 3, 8, 8), torch.Generator().manual_seed(0))
    seen = Counter(result.numpy().tobytes() for result in results)
    assert set(seen) <= set(expected)
    variation = (
        sum(abs(seen[outcome] / copies - chance) for outcome, chance in expected.items()) / 2
    )
    assert variation < 0.09


def test_every_operation_accepts_gray_images() -> None:
    images = smooth_images(3)[:, :1]
    for operation, magnitude in STEPS:
        assert apply_operation(images, operation, magnitude).shape == images.shape
