"""Image transforms of every view against torchvision."""

import pickle

import pytest
import torch
from torch import Tensor

from benchmarks.data import VIEWS
from benchmarks.data.registry import (
    CIFAR_AUGMENTATION,
    IMAGENET_STATISTICS,
    MNIST_AUGMENTATION,
    MNIST_STATISTICS,
    Augmentation,
)
from benchmarks.data.second_view import JITTER_STRENGTH, color_jitter, second_view
from benchmarks.data.torchvision_import import torchvision
from benchmarks.data.transforms import ImageTransforms

transforms = torchvision.transforms.v2
functional = transforms.functional

CIFAR = ImageTransforms((3, 32, 32), IMAGENET_STATISTICS, CIFAR_AUGMENTATION)
GRAY = ImageTransforms((1, 28, 28), MNIST_STATISTICS, MNIST_AUGMENTATION)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random_images(count: int, channels: int, side: int, seed: int = 0) -> Tensor:
    return torch.randint(
        0, 256, (count, channels, side, side), dtype=torch.uint8, generator=seeded(seed)
    )


def normalize(
    images: Tensor, statistics: tuple[tuple[float, ...], tuple[float, ...]] = IMAGENET_STATISTICS
) -> Tensor:
    return functional.normalize(
        functional.to_dtype(images, torch.float32, scale=True), *map(list, statistics)
    )


def test_plain_view_is_torchvisions_normalization() -> None:
    images = random_images(5, 3, 32)
    torch.testing.assert_close(CIFAR(images, "plain", None), normalize(images), rtol=0, atol=1e-6)
    gray = random_images(5, 1, 28)
    torch.testing.assert_close(
        GRAY(gray, "plain", None), normalize(gray, MNIST_STATISTICS), rtol=0, atol=1e-6
    )


def test_train_view_is_one_of_torchvisions_crops_and_flips() -> None:
    images = random_images(12, 3, 32)
    for image, view in zip(images, CIFAR(images, "train", seeded(1)), strict=True):
        padded = functional.pad(image, [4])
        crops = [
            functional.crop(padded, top, left, 32, 32) for top in range(9) for left in range(9)
        ]
        candidates = normalize(
            torch.stack(crops + [functional.horizontal_flip(crop) for crop in crops])
        )
        distances = (candidates - view).abs().amax(dim=(1, 2, 3))
        assert (distances < 1e-6).sum() == 1


def test_crops_and_flips_are_uniform() -> None:
    """8100 copies and 162 outcomes give 50 +- 7 of each. Pixel values encode their position."""
    rows = torch.arange(32, dtype=torch.uint8).view(32, 1).expand(32, 32)
    columns = torch.arange(32, dtype=torch.uint8).view(1, 32).expand(32, 32)
    image = torch.stack([rows, columns, torch.zeros_like(rows)])
    views = ImageTransforms((3, 32, 32), ((0.0,) * 3, (1.0,) * 3), CIFAR_AUGMENTATION)
    pixels = views(image.expand(8100, 3, 32, 32), "train", seeded(2)).mul(255).round().long()
    top = pixels[:, 0, 10, 16] - 10
    left_to_right = pixels[:, 1, 10, 17] - pixels[:, 1, 10, 16]
    left = torch.where(left_to_right > 0, pixels[:, 1, 10, 16] - 16, pixels[:, 1, 10, 15] - 16)
    outcome = ((top + 4) * 9 + left + 4) * 2 + (left_to_right < 0)
    counts = torch.bincount(outcome, minlength=162)
    assert len(counts) == 162
    assert counts.min() > 20
    assert counts.max() < 90
    assert float((left_to_right < 0).float().mean()) == pytest.approx(0.5, abs=0.02)


def test_border_is_black_before_normalization() -> None:
    white = torch.full((64, 3, 32, 32), 255, dtype=torch.uint8)
    darkest = CIFAR(white, "train", seeded(3)).amin(dim=(0, 2, 3))
    torch.testing.assert_close(
        darkest, -torch.tensor(IMAGENET_STATISTICS[0]) / torch.tensor(IMAGENET_STATISTICS[1])
    )


def test_train_view_of_gray_images_is_the_plain_view() -> None:
    images = random_images(5, 1, 28)
    assert torch.equal(GRAY(images, "train", seeded(0)), GRAY(images, "plain", None))


def test_larger_images_are_cropped_or_resized() -> None:
    images = random_images(6, 3, 40)
    cropping = ImageTransforms((3, 32, 32), IMAGENET_STATISTICS, Augmentation(flip=True))
    center = functional.center_crop(images, [32, 32])
    torch.testing.assert_close(
        cropping(images, "plain", None), normalize(center), rtol=0, atol=1e-6
    )
    resizing = ImageTransforms(
        (3, 32, 32), IMAGENET_STATISTICS, Augmentation(flip=True, resize_mode="resize")
    )
    torch.testing.assert_close(
        resizing(images, "plain", None),
        normalize(functional.resize(images, [32, 32])),
        rtol=0,
        atol=1e-6,
    )
    for image, view in zip(images, cropping(images, "train", seeded(4)), strict=True):
        crops = [functional.crop(image, top, left, 32, 32) for top in range(9) for left in range(9)]
        candidates = normalize(
            torch.stack(crops + [functional.horizontal_flip(crop) for crop in crops])
        )
        assert ((candidates - view).abs().amax(dim=(1, 2, 3)) < 1e-6).any()


def test_second_view_rotates_the_batch_by_one_angle() -> None:
    images = random_images(4, 1, 28)
    angles = []
    for seed in range(50):
        angle = 60 * torch.rand(1, generator=seeded(seed)).item() - 30
        angles.append(angle)
        expected = normalize(functional.rotate(images, angle), MNIST_STATISTICS)
        torch.testing.assert_close(
            GRAY(images, "second", seeded(seed)), expected, rtol=0, atol=1e-5
        )
    assert min(angles) < -20
    assert max(angles) > 20


def test_color_jitter_equals_torchvisions() -> None:
    images = random_images(4, 3, 16).float() / 255
    jitter = transforms.ColorJitter(*JITTER_STRENGTH)
    for order in ([0, 1, 2, 3], [3, 1, 0, 2]):
        params = {
            "fn_idx": torch.tensor(order),
            "brightness_factor": 0.2,
            "contrast_factor": 1.8,
            "saturation_factor": 1.4,
            "hue_factor": -0.1,
        }
        ours = color_jitter(images, [0.0, 1.0, 0.75, 0.25], order)
        torch.testing.assert_close(ours, jitter.transform(images, params), rtol=0, atol=1e-5)


def test_second_view_frequencies() -> None:
    """Over 400 batches, the standard deviation is 0.025 for flips and 0.02 for the others."""
    image = random_images(1, 3, 4).float() / 255
    batch = image.expand(3, 3, 4, 4).clone()
    outcomes = {"flip": 0, "jitter": 0, "gray": 0}
    for seed in range(400):
        result = second_view(batch.clone(), "color", seeded(seed))
        assert torch.equal(result[0], result[2])
        is_gray = torch.equal(result[:, 0], result[:, 1])
        untouched = [
            functional.rgb_to_grayscale(original, 3) if is_gray else original
            for original in (batch, batch.flip(-1))
        ]
        plain, flipped = (torch.allclose(result, original, atol=1e-6) for original in untouched)
        outcomes["gray"] += is_gray
        outcomes["jitter"] += not (plain or flipped)
        outcomes["flip"] += flipped
    assert outcomes["gray"] / 400 == pytest.approx(0.2, abs=0.06)
    assert outcomes["jitter"] / 400 == pytest.approx(0.8, abs=0.06)
    assert outcomes["flip"] / (400 - outcomes["jitter"]) == pytest.approx(0.5, abs=0.2)


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize(("views", "channels", "side"), [(CIFAR, 3, 32), (GRAY, 1, 28)])
def test_views_are_contiguous_and_depend_on_the_generator_only(
    views: ImageTransforms, channels: int, side: int, view: str
) -> None:
    images = random_images(30, channels, side)
    before = images.clone()
    first = views(images, view, seeded(5))
    assert first.dtype == torch.float32
    assert first.shape == images.shape
    assert first.is_contiguous()
    assert torch.equal(images, before)
    torch.manual_seed(99)  # must have no effect
    assert torch.equal(pickle.loads(pickle.dumps(views))(images, view, seeded(5)), first)
    if view in ("strong", "second") or (view == "train" and channels == 3):
        assert not torch.equal(views(images, view, seeded(6)), first)
    assert views(images[:1], view, seeded(5)).shape == (1, channels, side, side)
    assert views(images[:0], view, seeded(5)).shape == (0, channels, side, side)


def test_grayscale_second_view_can_be_modified_in_place() -> None:
    """The three channels of a grayscale image share memory before they are copied."""
    images = random_images(2, 3, 32)
    for seed in range(30):
        CIFAR(images, "second", seeded(seed)).add_(1)


def test_invalid_view_is_an_error() -> None:
    images = random_images(1, 3, 32)
    with pytest.raises(
        ValueError, match="unknown view 'weak': available: plain, train, strong, second"
    ):
        CIFAR(images, "weak", seeded(0))
    with pytest.raises(ValueError, match="'train' is random and requires a generator"):
        CIFAR(images, "train", None)
