"""Clothing1M and ImageNet-100, with a few images in the official layouts."""

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from benchmarks.data import Dataset, load
from benchmarks.data.registry import IMAGENET_STATISTICS
from benchmarks.data.torchvision_import import torchvision
from methods.core.errors import UserError

transforms = torchvision.transforms.v2


def save_image(path: Path, width: int, height: int, seed: int, mode: str = "RGB") -> None:
    coarse = np.random.default_rng(seed).integers(0, 256, (6, 8, 3), dtype=np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC).convert(mode).save(
        path, format="JPEG"
    )


def reference(path: Path, *steps: torch.nn.Module) -> torch.Tensor:
    """Decode, transform and normalize a file with torchvision."""
    pipeline = transforms.Compose(
        [
            *steps,
            transforms.ToImage(),
            transforms.ToDtype(torch.float32, scale=True),
            transforms.Normalize(*IMAGENET_STATISTICS),
        ]
    )
    with Image.open(path) as file:
        return pipeline(file.convert("RGB"))


@pytest.fixture
def clothing(tmp_path: Path) -> Path:
    root = tmp_path / "clothing1m"
    train = [f"images/{number}/00/{number},77.jpg" for number in range(5)]
    test = [f"images/9/00/{number},88.jpg" for number in range(3)]
    for seed, key in enumerate(train + test):
        save_image(root / key, 300 + 10 * seed, 260, seed)
    (root / "noisy_train_key_list.txt").write_text("".join(f"{key}\n" for key in train))
    (root / "clean_test_key_list.txt").write_text("".join(f"{key}\n" for key in test))
    # The label files contain more images than the key lists, in another order.
    (root / "noisy_label_kv.txt").write_text(
        "images/0/00/unused.jpg 1\n"
        + "".join(f"{key} {13 - number}\n" for number, key in reversed(list(enumerate(train))))
    )
    (root / "clean_label_kv.txt").write_text(
        "".join(f"{key} {number}\n" for number, key in enumerate(test))
    )
    return tmp_path


def assert_batches_are_valid(dataset: Dataset) -> None:
    batch = dataset.train.fetch(torch.tensor([2, 0, 2]))
    assert batch.dtype == torch.uint8
    assert batch.shape == (3, 3, 256, 256)
    assert torch.equal(batch[0], batch[2])
    assert dataset.train.fetch(torch.tensor([], dtype=torch.int64)).shape == (0, 3, 256, 256)
    generator = torch.Generator().manual_seed(0)
    for view in ("train", "strong", "second"):
        assert dataset.views(batch, view, generator).shape == (3, 3, 224, 224)
    assert not dataset.train.in_memory
    unpickled = pickle.loads(pickle.dumps(dataset.train))
    assert torch.equal(unpickled.fetch(torch.tensor([2, 0, 2])), batch)


def test_clothing1m_reads_the_official_lists(clothing: Path) -> None:
    dataset = load("clothing1m", clothing)
    assert (dataset.num_classes, dataset.shape, dataset.labels_are_clean) == (
        14,
        (3, 224, 224),
        False,
    )
    assert dataset.train_labels.dtype == np.int64
    assert dataset.train_labels.tolist() == [13, 12, 11, 10, 9]
    assert dataset.test_labels.tolist() == [0, 1, 2]
    assert (len(dataset.train), len(dataset.test)) == (5, 3)
    assert_batches_are_valid(dataset)


def test_clothing1m_pixels_equal_torchvisions(clothing: Path) -> None:
    dataset = load("clothing1m", clothing)
    root = clothing / "clothing1m"
    test = dataset.views(dataset.test.fetch(torch.tensor([1])), "plain", None)[0]
    expected = reference(root / "images/9/00/1,88.jpg", transforms.Resize((224, 224)))
    torch.testing.assert_close(test, expected, rtol=0, atol=1e-5)
    train = dataset.train.fetch(torch.tensor([3]))[0]
    with Image.open(root / "images/3/00/3,77.jpg") as file:
        assert torch.equal(
            train, transforms.functional.pil_to_tensor(transforms.Resize((256, 256))(file))
        )
    # The plain view resizes training images a second time, which is close to a single resize.
    plain = dataset.views(train[None], "plain", None)[0]
    resized_once = reference(root / "images/3/00/3,77.jpg", transforms.Resize((224, 224)))
    assert (plain - resized_once).abs().mean() < 0.05


def test_batch_is_independent_of_the_number_of_threads(clothing: Path) -> None:
    dataset = load("clothing1m", clothing)
    batches = []
    for threads in (1, 2):
        dataset.train.num_threads = threads
        batches.append(dataset.train.fetch(torch.arange(5)))
    assert torch.equal(*batches)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        (
            "noisy_label_kv.txt",
            "images/0/00/0,77.jpg 14\n",
            "line 1 is 'images/0/00/0,77.jpg 14', expected '<image> <label 0..13>'",
        ),
        (
            "noisy_label_kv.txt",
            "images/0/00/0,77.jpg 3\n",
            "no label for images/1/00/1,77.jpg, listed in noisy_train_key_list.txt",
        ),
        ("clean_label_kv.txt", "images/9/00/0,88.jpg\n", "line 1 is"),
        ("clean_test_key_list.txt", "", "lists no image"),
    ],
)
def test_invalid_clothing1m_list_is_one_line(
    clothing: Path, file: str, content: str, message: str
) -> None:
    (clothing / "clothing1m" / file).write_text(content)
    with pytest.raises(UserError) as error:
        load("clothing1m", clothing)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_error_for_missing_list_shows_the_layout(clothing: Path) -> None:
    (clothing / "clothing1m/clean_label_kv.txt").unlink()
    with pytest.raises(
        UserError,
        match=r"clean_label_kv.txt does not exist; expected .*/clothing1m/ with images/",
    ):
        load("clothing1m", clothing)


def test_unreadable_image_is_an_error_when_fetched(clothing: Path) -> None:
    dataset = load("clothing1m", clothing)
    (clothing / "clothing1m/images/4/00/4,77.jpg").write_bytes(b"not an image")
    (clothing / "clothing1m/images/3/00/3,77.jpg").unlink()
    for position in (3, 4):
        with pytest.raises(UserError, match=f"cannot read image .*{position},77.jpg"):
            dataset.train.fetch(torch.tensor([position]))


@pytest.fixture(scope="module")
def imagenet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("imagenet")
    for number in range(100):
        for split in ("train", "val"):
            save_image(root / f"imagenet100/{split}/n{number:08d}/first.JPEG", 32, 24, number)
    save_image(root / "imagenet100/train/n00000000/second.JPEG", 400, 300, 1000)
    save_image(root / "imagenet100/train/n00000001/gray.JPEG", 280, 333, 1001, mode="L")
    (root / "imagenet100/train/n00000001/notes.txt").write_text("not an image")
    save_image(root / "imagenet100/val/n00000000/wide.JPEG", 501, 300, 1002)
    return root


def test_imagenet100_reads_class_directories(imagenet: Path) -> None:
    dataset = load("imagenet100", imagenet)
    assert (dataset.num_classes, dataset.shape, dataset.labels_are_clean) == (
        100,
        (3, 224, 224),
        True,
    )
    assert dataset.train_labels.tolist() == [0, 0, 1, 1, *range(2, 100)]
    assert dataset.test_labels.tolist() == [0, 0, *range(1, 100)]
    assert_batches_are_valid(dataset)


def test_imagenet100_plain_view_is_resize_and_center_crop(imagenet: Path) -> None:
    dataset = load("imagenet100", imagenet)
    images = dataset.views(dataset.test.fetch(torch.tensor([1])), "plain", None)[0]
    path = imagenet / "imagenet100/val/n00000000/wide.JPEG"
    expected = reference(path, transforms.Resize(256), transforms.CenterCrop(224))
    torch.testing.assert_close(images, expected, rtol=0, atol=1e-5)


def test_imagenet100_rejects_other_directories(tmp_path: Path) -> None:
    save_image(tmp_path / "imagenet100/train/n1/a.JPEG", 8, 8, 0)
    with pytest.raises(
        UserError,
        match=r"val does not exist; expected .*imagenet100/ with train/<wnid>/\*.JPEG",
    ):
        load("imagenet100", tmp_path)
    save_image(tmp_path / "imagenet100/val/n1/a.JPEG", 8, 8, 0)
    with pytest.raises(UserError, match="train: it has 1 class directories, expected 100"):
        load("imagenet100", tmp_path)
    for number in range(2, 101):
        (tmp_path / f"imagenet100/train/n{number}").mkdir()
    with pytest.raises(UserError, match="val: its class directories differ"):
        load("imagenet100", tmp_path)
    for number in range(2, 101):
        (tmp_path / f"imagenet100/val/n{number}").mkdir()
    with pytest.raises(UserError, match=r"train/n10: it has no .JPEG image"):
        load("imagenet100", tmp_path)
