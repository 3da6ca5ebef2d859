"""The CIFAR-10 policy: its table against torchvision's, operations against PIL, draws against their probabilities."""

import math
from collections import Counter, defaultdict

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor

from benchmarks.data.policy import FILL, SIGNED, SUB_POLICIES, apply_operation, apply_policy
from benchmarks.data.torchvision_import import torchvision

transforms = torchvision.transforms.v2
GREY = (int(FILL),) * 3


def smooth_images(count: int, side: int = 32, seed: int = 0) -> Tensor:
    coarse = torch.rand((count, 3, 5, 5), generator=torch.Generator().manual_seed(seed)) * 255
    return (
        torch.nn.functional.interpolate(coarse, size=(side, side), mode="bicubic")
        .clamp(0, 255)
        .to(torch.uint8)
    )


def with_pil(image: Tensor, operation: str, magnitude: int, negative: bool) -> np.ndarray:
    """The operation as the AutoAugment paper defines it, by PIL."""
    picture = Image.fromarray(image.permute(1, 2, 0).numpy())
    sign = -1 if negative else 1
    factor = 1 + sign * 0.9 * magnitude / 9
    shift = sign * int(150 / 331 * 32 * magnitude / 9)
    shear = sign * 0.3 * magnitude / 9

    def affine(*matrix: float) -> Image.Image:
        return picture.transform(picture.size, Image.Transform.AFFINE, matrix, fillcolor=GREY)

    result = {
        "ShearY": lambda: affine(1, 0, 0, shear, 1, 0),
        "TranslateX": lambda: affine(1, 0, -shift, 0, 1, 0),
        "TranslateY": lambda: affine(1, 0, 0, 0, 1, -shift),
        "Rotate": lambda: picture.rotate(sign * 30 * magnitude / 9, fillcolor=GREY),
        "Brightness": lambda: ImageEnhance.Brightness(picture).enhance(factor),
        "Color": lambda: ImageEnhance.Color(picture).enhance(factor),
        "Contrast": lambda: ImageEnhance.Contrast(picture).enhance(factor),
        "Sharpness": lambda: ImageEnhance.Sharpness(picture).enhance(factor),
        "Posterize": lambda: ImageOps.posterize(picture, round(8 - 4 * magnitude / 9)),
        "Solarize": lambda: ImageOps.solarize(picture, math.ceil(256 - 256 * magnitude / 9)),
        "AutoContrast": lambda: ImageOps.autocontrast(picture),
        "Equalize": lambda: ImageOps.equalize(picture),
        "Invert": lambda: ImageOps.invert(picture),
    }[operation]()
    return np.asarray(result).transpose(2, 0, 1)


def test_the_table_is_torchvisions() -> None:
    theirs = transforms.AutoAugment(transforms.AutoAugmentPolicy.CIFAR10)._policies
    assert len(SUB_POLICIES) == 25
    for ours, reference in zip(SUB_POLICIES, theirs, strict=True):
        for (operation, probability, magnitude), (name, chance, level) in zip(
            ours, reference, strict=True
        ):
            assert (operation, probability) == (name, chance)
            # torchvision leaves out the magnitude of operations that ignore it.
            assert level is None or magnitude == level


STEPS = sorted(
    {(operation, magnitude) for pair in SUB_POLICIES for operation, _, magnitude in pair}
)


@pytest.mark.parametrize(("operation", "magnitude"), STEPS)
def test_each_operation_is_pils(operation: str, magnitude: int) -> None:
    """Values may differ by rounding; where pixels move, a few lie exactly between two and may go either way."""
    images = smooth_images(4)
    for negative in (False, True) if operation in SIGNED else (False,):
        ours = apply_operation(images, operation, magnitude, negative).numpy().astype(int)
        theirs = np.stack(
            [with_pil(image, operation, magnitude, negative) for image in images]
        ).astype(int)
        difference = np.abs(ours - theirs)
        if operation in ("ShearY", "Rotate"):
            assert (difference <= 1).mean() > 0.97
        else:
            assert difference.max() <= 1


def test_operations_treat_each_image_of_a_batch_by_itself() -> None:
    images = smooth_images(5)
    for operation, magnitude in STEPS:
        alone = torch.cat([apply_operation(image[None], operation, magnitude) for image in images])
        assert torch.equal(apply_operation(images, operation, magnitude), alone), operation


def outcome_probabilities(image: Tensor) -> dict[bytes, float]:
    """Every possible result of the policy on one image, with its probability."""
    outcomes: defaultdict[bytes, float] = defaultdict(float)
    for (first, first_chance, first_level), (second, second_chance, second_level) in SUB_POLICIES:
        for use_first, weight_first in ((True, first_chance), (False, 1 - first_chance)):
            for use_second, weight_second in ((True, second_chance), (False, 1 - second_chance)):
                for signs in range(4):
                    result = image[None]
                    if use_first:
                        result = apply_operation(
                            result, first, first_level, first in SIGNED and bool(signs & 1)
                        )
                    if use_second:
                        result = apply_operation(
                            result, second, second_level, second in SIGNED and bool(signs & 2)
                        )
                    outcomes[result.numpy().tobytes()] += (
                        weight_first * weight_second / 4 / len(SUB_POLICIES)
                    )
    return dict(outcomes)


def test_results_occur_with_the_policys_probabilities() -> None:
    """8000 copies of one image: sampling alone makes a total variation of 0.4 sqrt(outcomes / copies), below 0.06."""
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


def test_grey_images_pass_through_every_operation() -> None:
    images = smooth_images(3)[:, :1]
    for operation, magnitude in STEPS:
        assert apply_operation(images, operation, magnitude).shape == images.shape


def test_an_unknown_operation_is_named() -> None:
    with pytest.raises(ValueError, match="'Cutout' is unknown"):
        apply_operation(smooth_images(1), "Cutout", 3)
