"""Views against torchvision's transforms, image by image."""

import pickle

import pytest
import torch
from torch import Tensor

from benchmarks.data import VIEWS, Views
from benchmarks.data.catalogue import IMAGENET, MNIST
from benchmarks.data.second_view import JITTER_STRENGTH, colour_jitter, second_view
from benchmarks.data.torchvision_import import torchvision

transforms = torchvision.transforms.v2
functional = transforms.functional

CIFAR = Views((3, 32, 32), IMAGENET, pad=4, flip=True)
GREY = Views((1, 28, 28), MNIST, second="rotation")


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random_images(count: int, channels: int, side: int, seed: int = 0) -> Tensor:
    return torch.randint(
        0, 256, (count, channels, side, side), dtype=torch.uint8, generator=seeded(seed)
    )


def normalised(
    images: Tensor, statistics: tuple[tuple[float, ...], tuple[float, ...]] = IMAGENET
) -> Tensor:
    return functional.normalize(
        functional.to_dtype(images, torch.float32, scale=True), *map(list, statistics)
    )


def test_plain_is_torchvisions_normalisation() -> None:
    images = random_images(5, 3, 32)
    torch.testing.assert_close(CIFAR(images, "plain", None), normalised(images), rtol=0, atol=1e-6)
    grey = random_images(5, 1, 28)
    torch.testing.assert_close(
        GREY(grey, "plain", None), normalised(grey, MNIST), rtol=0, atol=1e-6
    )


def test_train_is_one_of_torchvisions_crops_and_flips_for_every_image() -> None:
    images = random_images(12, 3, 32)
    seen = CIFAR(images, "train", seeded(1))
    for image, view in zip(images, seen, strict=True):
        padded = functional.pad(image, [4])
        crops = [
            functional.crop(padded, top, left, 32, 32) for top in range(9) for left in range(9)
        ]
        candidates = normalised(
            torch.stack(crops + [functional.horizontal_flip(crop) for crop in crops])
        )
        distances = (candidates - view).abs().amax(dim=(1, 2, 3))
        assert (distances < 1e-6).sum() == 1


def test_every_crop_and_flip_occurs_equally_often() -> None:
    """8100 copies of an image whose pixels tell where they come from, 162 outcomes: 50 +- 7 of each expected."""
    rows = torch.arange(32, dtype=torch.uint8).view(32, 1).expand(32, 32)
    columns = torch.arange(32, dtype=torch.uint8).view(1, 32).expand(32, 32)
    image = torch.stack([rows, columns, torch.zeros_like(rows)])
    views = Views((3, 32, 32), ((0.0,) * 3, (1.0,) * 3), pad=4, flip=True)
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


def test_the_border_is_black_before_normalising() -> None:
    white = torch.full((64, 3, 32, 32), 255, dtype=torch.uint8)
    darkest = CIFAR(white, "train", seeded(3)).amin(dim=(0, 2, 3))
    torch.testing.assert_close(darkest, -torch.tensor(IMAGENET[0]) / torch.tensor(IMAGENET[1]))


def test_train_leaves_grey_images_alone() -> None:
    images = random_images(5, 1, 28)
    assert torch.equal(GREY(images, "train", seeded(0)), GREY(images, "plain", None))


def test_larger_images_are_cropped_for_training_and_brought_to_size_otherwise() -> None:
    images = random_images(6, 3, 40)
    cropping = Views((3, 32, 32), IMAGENET, flip=True)
    centre = functional.center_crop(images, [32, 32])
    torch.testing.assert_close(
        cropping(images, "plain", None), normalised(centre), rtol=0, atol=1e-6
    )
    resizing = Views((3, 32, 32), IMAGENET, flip=True, shrink="resize")
    torch.testing.assert_close(
        resizing(images, "plain", None),
        normalised(functional.resize(images, [32, 32])),
        rtol=0,
        atol=1e-6,
    )
    for image, view in zip(images, cropping(images, "train", seeded(4)), strict=True):
        crops = [functional.crop(image, top, left, 32, 32) for top in range(9) for left in range(9)]
        candidates = normalised(
            torch.stack(crops + [functional.horizontal_flip(crop) for crop in crops])
        )
        assert ((candidates - view).abs().amax(dim=(1, 2, 3)) < 1e-6).any()


def test_second_rotates_the_whole_batch_by_one_angle() -> None:
    images = random_images(4, 1, 28)
    angles = []
    for seed in range(50):
        angle = 60 * torch.rand(1, generator=seeded(seed)).item() - 30
        angles.append(angle)
        expected = normalised(functional.rotate(images, angle), MNIST)
        torch.testing.assert_close(
            GREY(images, "second", seeded(seed)), expected, rtol=0, atol=1e-5
        )
    assert min(angles) < -20
    assert max(angles) > 20


def test_colour_jitter_equals_torchvisions() -> None:
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
        ours = colour_jitter(images, [0.0, 1.0, 0.75, 0.25], order)
        torch.testing.assert_close(ours, jitter.transform(images, params), rtol=0, atol=1e-5)


def test_second_flips_jitters_and_greys_whole_batches_as_often_as_it_should() -> None:
    """400 batches: one standard deviation is 0.025 of the flips, 0.02 of the other two."""
    image = random_images(1, 3, 4).float() / 255
    batch = image.expand(3, 3, 4, 4).clone()
    outcomes = {"flip": 0, "jitter": 0, "grey": 0}
    for seed in range(400):
        result = second_view(batch.clone(), "colour", seeded(seed))
        assert torch.equal(result[0], result[2])
        is_grey = torch.equal(result[:, 0], result[:, 1])
        untouched = [
            functional.rgb_to_grayscale(original, 3) if is_grey else original
            for original in (batch, batch.flip(-1))
        ]
        plain, flipped = (torch.allclose(result, original, atol=1e-6) for original in untouched)
        outcomes["grey"] += is_grey
        outcomes["jitter"] += not (plain or flipped)
        outcomes["flip"] += flipped
    assert outcomes["grey"] / 400 == pytest.approx(0.2, abs=0.06)
    assert outcomes["jitter"] / 400 == pytest.approx(0.8, abs=0.06)
    assert outcomes["flip"] / (400 - outcomes["jitter"]) == pytest.approx(0.5, abs=0.2)


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize(("views", "channels", "side"), [(CIFAR, 3, 32), (GREY, 1, 28)])
def test_every_view_is_float_contiguous_and_a_function_of_its_generator(
    views: Views, channels: int, side: int, view: str
) -> None:
    images = random_images(30, channels, side)
    before = images.clone()
    first = views(images, view, seeded(5))
    assert first.dtype == torch.float32
    assert first.shape == images.shape
    assert first.is_contiguous()
    assert torch.equal(images, before)
    torch.manual_seed(99)  # the global generator has no say
    assert torch.equal(pickle.loads(pickle.dumps(views))(images, view, seeded(5)), first)
    if view in ("strong", "second") or (view == "train" and channels == 3):
        assert not torch.equal(views(images, view, seeded(6)), first)
    assert views(images[:1], view, seeded(5)).shape == (1, channels, side, side)
    assert views(images[:0], view, seeded(5)).shape == (0, channels, side, side)


def test_grey_second_view_is_contiguous_too() -> None:
    """Greyscale shares one channel between three; whatever the coin says, the result must be usable in place."""
    images = random_images(2, 3, 32)
    for seed in range(30):
        CIFAR(images, "second", seeded(seed)).add_(1)


def test_misuse_is_named() -> None:
    images = random_images(1, 3, 32)
    with pytest.raises(ValueError, match="'weak' is unknown; legal: plain, train, strong, second"):
        CIFAR(images, "weak", seeded(0))
    with pytest.raises(ValueError, match="'train' is random and needs a generator"):
        CIFAR(images, "train", None)
