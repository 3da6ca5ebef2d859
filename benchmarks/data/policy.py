"""AutoAugment's CIFAR-10 policy on a batch of uint8 images.

Paper: Cubuk et al., "AutoAugment: Learning Augmentation Strategies from Data", CVPR 2019, appendix: the policy found on
CIFAR-10, and the ranges of the operations.

Each image draws one of 25 sub-policies: two operations in turn, each with its probability and magnitude; signed
magnitudes change sign with probability one half. Images that need the same operation with the same magnitude are
transformed together. What moves into the image is grey (128), as in the implementations that label-noise papers build
on; there is no Cutout.
"""

import math

import torch
from torch import Generator, Tensor

from benchmarks.data.torchvision_import import torchvision

functional = torchvision.transforms.v2.functional

FILL = 128.0
SIGNED = (
    "ShearY",
    "TranslateX",
    "TranslateY",
    "Rotate",
    "Brightness",
    "Color",
    "Contrast",
    "Sharpness",
)

# operation, probability, magnitude 0..9 | the same for the second operation
POLICY_TABLE = """
Invert       0.1 7 | Contrast     0.2 6
Rotate       0.7 2 | TranslateX   0.3 9
Sharpness    0.8 1 | Sharpness    0.9 3
ShearY       0.5 8 | TranslateY   0.7 9
AutoContrast 0.5 8 | Equalize     0.9 2
ShearY       0.2 7 | Posterize    0.3 7
Color        0.4 3 | Brightness   0.6 7
Sharpness    0.3 9 | Brightness   0.7 9
Equalize     0.6 5 | Equalize     0.5 1
Contrast     0.6 7 | Sharpness    0.6 5
Color        0.7 7 | TranslateX   0.5 8
Equalize     0.3 7 | AutoContrast 0.4 8
TranslateY   0.4 3 | Sharpness    0.2 6
Brightness   0.9 6 | Color        0.2 8
Solarize     0.5 2 | Invert       0.0 3
Equalize     0.2 0 | AutoContrast 0.6 0
Equalize     0.2 8 | Equalize     0.6 4
Color        0.9 9 | Equalize     0.6 6
AutoContrast 0.8 4 | Solarize     0.2 8
Brightness   0.1 3 | Color        0.7 0
Solarize     0.4 5 | AutoContrast 0.9 3
TranslateY   0.9 9 | TranslateY   0.7 9
AutoContrast 0.9 2 | Solarize     0.8 3
Equalize     0.8 8 | Invert       0.1 3
TranslateY   0.7 9 | AutoContrast 0.9 1
"""


def _parse(cell: str) -> tuple[str, float, int]:
    operation, probability, magnitude = cell.split()
    return operation, float(probability), int(magnitude)


SUB_POLICIES = [
    tuple(_parse(cell) for cell in line.split("|")) for line in POLICY_TABLE.strip().splitlines()
]

# Each distinct (operation, signed magnitude) has a number: twice its position here, plus one for the negative sign.
_STEPS = sorted(
    {(operation, magnitude) for pair in SUB_POLICIES for operation, _, magnitude in pair}
)
_STEP_OF = torch.tensor(
    [
        [_STEPS.index((operation, magnitude)) for operation, _, magnitude in pair]
        for pair in SUB_POLICIES
    ]
)
_PROBABILITY_OF = torch.tensor(
    [[probability for _, probability, _ in pair] for pair in SUB_POLICIES]
)
_IS_SIGNED = torch.tensor([operation in SIGNED for operation, _ in _STEPS])


def apply_policy(images: Tensor, generator: Generator) -> Tensor:
    """Augment uint8 images (n, C, H, W), each by a sub-policy of its own."""
    count, device = len(images), generator.device
    chosen = torch.randint(len(SUB_POLICIES), (count,), generator=generator, device=device).cpu()
    applied = (
        torch.rand((count, 2), generator=generator, device=device).cpu() < _PROBABILITY_OF[chosen]
    )
    negative = torch.rand((count, 2), generator=generator, device=device).cpu() < 0.5
    steps = _STEP_OF[chosen]
    codes = torch.where(applied, 2 * steps + (negative & _IS_SIGNED[steps]), -1)
    images = images.clone()
    for column in codes.unbind(1):
        for code in column.unique().tolist():
            if code >= 0:
                operation, magnitude = _STEPS[code // 2]
                members = (column == code).nonzero().squeeze(1).to(images.device)
                images[members] = apply_operation(
                    images[members], operation, magnitude, negative=code % 2 == 1
                )
    return images


def apply_operation(
    images: Tensor, operation: str, magnitude: int, negative: bool = False
) -> Tensor:
    """One operation of the policy on uint8 images; a magnitude of 9 is the end of the operation's range."""
    strength = magnitude / 9
    signed = -strength if negative else strength
    height, width = images.shape[2:]
    match operation:
        case "ShearY":
            degrees = math.degrees(math.atan(0.3 * signed))
            return functional.affine(
                images, 0.0, [0, 0], 1.0, [0.0, degrees], fill=FILL, center=[0.0, 0.0]
            )
        case "TranslateX":
            return functional.affine(
                images, 0.0, [int(150 / 331 * width * signed), 0], 1.0, [0.0, 0.0], fill=FILL
            )
        case "TranslateY":
            return functional.affine(
                images, 0.0, [0, int(150 / 331 * height * signed)], 1.0, [0.0, 0.0], fill=FILL
            )
        case "Rotate":
            return functional.rotate(images, 30 * signed, fill=FILL)
        case "Brightness":
            return functional.adjust_brightness(images, 1 + 0.9 * signed)
        case "Color":
            return functional.adjust_saturation(images, 1 + 0.9 * signed)
        case "Contrast":
            return functional.adjust_contrast(images, 1 + 0.9 * signed)
        case "Sharpness":
            return functional.adjust_sharpness(images, 1 + 0.9 * signed)
        case "Posterize":
            return functional.posterize(images, round(8 - 4 * strength))
        case "Solarize":
            return functional.solarize(images, 256 * (1 - strength))
        case "AutoContrast":
            return functional.autocontrast(images)
        case "Equalize":
            return functional.equalize(images)
        case "Invert":
            return functional.invert(images)
    raise ValueError(f"operation '{operation}' is unknown")
