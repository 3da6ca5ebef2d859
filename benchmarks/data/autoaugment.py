"""AutoAugment's CIFAR-10 policy on a batch of uint8 images.

Paper: Cubuk et al., "AutoAugment: Learning Augmentation Strategies from Data", CVPR 2019.
The policy is torchvision's. The ranges of the operations are those of the appendix.

One of 25 sub-policies is sampled per image: two operations in sequence, each with a probability and
a magnitude. Signed magnitudes are negated with probability 0.5. Images with the same operation and
magnitude are transformed together.

Deviations
1. Pixels from outside the image are gray (128), as in implementations used by label-noise papers.
2. Cutout is not applied.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Generator, Tensor

from benchmarks.data.torchvision_import import torchvision

functional = torchvision.transforms.v2.functional

FILL = 128.0
MAX_MAGNITUDE = 9


def _translate(images: Tensor, x: float, y: float) -> Any:
    height, width = images.shape[2:]
    offset = [int(150 / 331 * width * x), int(150 / 331 * height * y)]
    return functional.affine(images, 0.0, offset, 1.0, [0.0, 0.0], fill=FILL)


def _shear_y(images: Tensor, strength: float) -> Any:
    degrees = math.degrees(math.atan(0.3 * strength))
    return functional.affine(images, 0.0, [0, 0], 1.0, [0.0, degrees], fill=FILL, center=[0.0, 0.0])


# The strength of a signed operation lies in [-1, 1], that of the others in [0, 1].
SIGNED_OPERATIONS: dict[str, Callable[[Tensor, float], Any]] = {
    "ShearY": _shear_y,
    "TranslateX": lambda images, strength: _translate(images, strength, 0.0),
    "TranslateY": lambda images, strength: _translate(images, 0.0, strength),
    "Rotate": lambda images, strength: functional.rotate(images, 30 * strength, fill=FILL),
    "Brightness": lambda images, strength: functional.adjust_brightness(images, 1 + 0.9 * strength),
    "Color": lambda images, strength: functional.adjust_saturation(images, 1 + 0.9 * strength),
    "Contrast": lambda images, strength: functional.adjust_contrast(images, 1 + 0.9 * strength),
    "Sharpness": lambda images, strength: functional.adjust_sharpness(images, 1 + 0.9 * strength),
}
OPERATIONS = SIGNED_OPERATIONS | {
    "Posterize": lambda images, strength: functional.posterize(images, round(8 - 4 * strength)),
    "Solarize": lambda images, strength: functional.solarize(images, 256 * (1 - strength)),
    "AutoContrast": lambda images, strength: functional.autocontrast(images),
    "Equalize": lambda images, strength: functional.equalize(images),
    "Invert": lambda images, strength: functional.invert(images),
}

_POLICIES = torchvision.transforms.AutoAugmentPolicy
# Operation, probability and magnitude 0..9 (None if it has no effect), two per sub-policy.
SUB_POLICIES = torchvision.transforms.AutoAugment(_POLICIES.CIFAR10).policies

# The code of an (operation, magnitude) pair is twice its index in _STEPS, plus one if negated.
_STEPS = list(dict.fromkeys((name, level) for pair in SUB_POLICIES for name, _, level in pair))
_STEP_OF = torch.tensor([[_STEPS.index((n, level)) for n, _, level in p] for p in SUB_POLICIES])
_PROBABILITY_OF = torch.tensor([[chance for _, chance, _ in pair] for pair in SUB_POLICIES])
_IS_SIGNED = torch.tensor([operation in SIGNED_OPERATIONS for operation, _ in _STEPS])


def apply_policy(images: Tensor, generator: Generator) -> Tensor:
    """Augment uint8 images (n, C, H, W), each with its own sub-policy."""
    count, device = len(images), generator.device
    chosen = torch.randint(len(SUB_POLICIES), (count,), generator=generator, device=device).cpu()
    samples, signs = (torch.rand((count, 2), generator=generator, device=device) for _ in range(2))
    steps = _STEP_OF[chosen]
    codes = 2 * steps + ((signs.cpu() < 0.5) & _IS_SIGNED[steps])
    codes = torch.where(samples.cpu() < _PROBABILITY_OF[chosen], codes, -1)
    images = images.clone()
    for column in codes.unbind(1):
        for code in sorted(set(column.tolist()) - {-1}):
            operation, magnitude = _STEPS[code // 2]
            members = (column == code).nonzero().squeeze(1).to(images.device)
            images[members] = apply_operation(images[members], operation, magnitude, code % 2 == 1)
    return images


def apply_operation(
    images: Tensor, operation: str, magnitude: int | None, negative: bool = False
) -> Tensor:
    """Apply one operation of the policy to uint8 images."""
    strength = (magnitude or 0) / MAX_MAGNITUDE
    result: Tensor = OPERATIONS[operation](images, -strength if negative else strength)
    return result
