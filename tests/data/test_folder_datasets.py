"""Clothing1M and ImageNet-100 on small trees of the official layouts."""

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from benchmarks.data import Dataset, load
from benchmarks.data.catalogue import IMAGENET
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
    """What torchvision makes of the file: decode, transform, normalise."""
    pipeline = transforms.Compose(
        [
            *steps,
            transforms.ToImage(),
            transforms.ToDtype(torch.float32, scale=True),
            transforms.Normalize(*IMAGENET),
        ]
    )
    with Image.open(path) as file:
        return pipeline(file.convert("RGB"))


@pytest.fixture
def clothing(tmp_path: Path) -> Path:
    folder = tmp_path / "clothing1m"
    train = [f"images/{number}/00/{number},77.jpg" for number in range(5)]
    test = [f"images/9/00/{number},88.jpg" for number in range(3)]
    for seed, key in enumerate(train + test):
        save_image(folder / key, 300 + 10 * seed, 260, seed)
    (folder / "noisy_train_key_list.txt").write_text("".join(f"{key}\n" for key in train))
    (folder / "clean_test_key_list.txt").write_text("".join(f"{key}\n" for key in test))
    # The label files list more images than the key lists, in another order.
    (folder / "noisy_label_kv.txt").write_text(
        "images/0/00/unused.jpg 1\n"
        + "".join(f"{key} {13 - number}\n" for number, key in reversed(list(enumerate(train))))
    )
    (folder / "clean_label_kv.txt").write_text(
        "".join(f"{key} {number}\n" for number, key in enumerate(test))
    )
    return tmp_path


def check_batches(dataset: Dataset) -> None:
    batch = dataset.train.fetch(torch.tensor([2, 0, 2]))
    assert batch.dtype == torch.uint8
    assert batch.shape == (3, 3, 256, 256)
    assert torch.equal(batch[0], batch[2])
    assert dataset.train.fetch(torch.tensor([], dtype=torch.int64)).shape == (0, 3, 256, 256)
    generator = torch.Generator().manual_seed(0)
    for view in ("train", "strong", "second"):
        assert dataset.views(batch, view, generator).shape == (3, 3, 224, 224)
    assert not dataset.train.in_memory
    again = pickle.loads(pickle.dumps(dataset.train))
    assert torch.equal(again.fetch(torch.tensor([2, 0, 2])), batch)


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
    check_batches(dataset)


def test_clothing1m_pixels_are_torchvisions(clothing: Path) -> None:
    dataset = load("clothing1m", clothing)
    folder = clothing / "clothing1m"
    test = dataset.views(dataset.test.fetch(torch.tensor([1])), "plain", None)[0]
    expected = reference(folder / "images/9/00/1,88.jpg", transforms.Resize((224, 224)))
    torch.testing.assert_close(test, expected, rtol=0, atol=1e-5)
    train = dataset.train.fetch(torch.tensor([3]))[0]
    with Image.open(folder / "images/3/00/3,77.jpg") as file:
        assert torch.equal(
            train, transforms.functional.pil_to_tensor(transforms.Resize((256, 256))(file))
        )
    # Training images are resized once more for the plain view: close to, not equal to, resizing at once.
    plain = dataset.views(train[None], "plain", None)[0]
    once = reference(folder / "images/3/00/3,77.jpg", transforms.Resize((224, 224)))
    assert (plain - once).abs().mean() < 0.05


def test_threads_do_not_change_the_batch(clothing: Path) -> None:
    dataset = load("clothing1m", clothing)
    before = torch.get_num_threads()
    batches = []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            batches.append(dataset.train.fetch(torch.arange(5)))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*batches)


@pytest.mark.parametrize(
    ("file", "content", "complaint"),
    [
        ("noisy_label_kv.txt", "images/0/00/0,77.jpg 14\n", "7.jpg 14', expected '<image> <label 0..13>'"),
        ("noisy_label_kv.txt", "images/0/00/0,77.jpg 3\n", "has no label for 'images/1/00/1,77.jpg'"),
        ("clean_label_kv.txt", "images/9/00/0,88.jpg\n", "line 1 is"),
        ("clean_test_key_list.txt", "", "lists no image"),
    ],
)  # fmt: skip
def test_clothing1m_names_what_is_wrong(
    clothing: Path, file: str, content: str, complaint: str
) -> None:
    (clothing / "clothing1m" / file).write_text(content)
    with pytest.raises(UserError) as error:
        load("clothing1m", clothing)
    assert complaint in str(error.value)
    assert "\n" not in str(error.value)


def test_a_missing_list_is_answered_with_the_layout(clothing: Path) -> None:
    (clothing / "clothing1m/clean_label_kv.txt").unlink()
    with pytest.raises(
        UserError,
        match=r"clean_label_kv.txt is missing; put the data set at .*/clothing1m/ with images/",
    ):
        load("clothing1m", clothing)


def test_a_broken_image_is_named_when_it_is_fetched(clothing: Path) -> None:
    dataset = load("clothing1m", clothing)
    (clothing / "clothing1m/images/4/00/4,77.jpg").write_bytes(b"not a picture")
    (clothing / "clothing1m/images/3/00/3,77.jpg").unlink()
    for position in (3, 4):
        with pytest.raises(UserError, match=f"{position},77.jpg cannot be read as an image"):
            dataset.train.fetch(torch.tensor([position]))


@pytest.fixture(scope="module")
def imagenet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("imagenet")
    for number in range(100):
        for part in ("train", "val"):
            save_image(root / f"imagenet100/{part}/n{number:08d}/first.JPEG", 32, 24, number)
    save_image(root / "imagenet100/train/n00000000/second.JPEG", 400, 300, 1000)
    save_image(root / "imagenet100/train/n00000001/grey.JPEG", 280, 333, 1001, mode="L")
    (root / "imagenet100/train/n00000001/notes.txt").write_text("not an image")
    save_image(root / "imagenet100/val/n00000000/wide.JPEG", 501, 300, 1002)
    return root


def test_imagenet100_reads_class_folders(imagenet: Path) -> None:
    dataset = load("imagenet100", imagenet)
    assert (dataset.num_classes, dataset.shape, dataset.labels_are_clean) == (
        100,
        (3, 224, 224),
        True,
    )
    assert dataset.train_labels.tolist() == [0, 0, 1, 1, *range(2, 100)]
    assert dataset.test_labels.tolist() == [0, 0, *range(1, 100)]
    check_batches(dataset)


def test_imagenet100_plain_is_resize_and_centre_crop(imagenet: Path) -> None:
    dataset = load("imagenet100", imagenet)
    seen = dataset.views(dataset.test.fetch(torch.tensor([1])), "plain", None)[0]
    path = imagenet / "imagenet100/val/n00000000/wide.JPEG"
    expected = reference(path, transforms.Resize(256), transforms.CenterCrop(224))
    torch.testing.assert_close(seen, expected, rtol=0, atol=1e-5)


def test_imagenet100_refuses_other_folders(tmp_path: Path) -> None:
    save_image(tmp_path / "imagenet100/train/n1/a.JPEG", 8, 8, 0)
    with pytest.raises(
        UserError,
        match=r"val is missing; put the data set at .*imagenet100/ with train/<wnid>/\*.JPEG",
    ):
        load("imagenet100", tmp_path)
    save_image(tmp_path / "imagenet100/val/n1/a.JPEG", 8, 8, 0)
    with pytest.raises(UserError, match="train has 1 class folders, expected 100"):
        load("imagenet100", tmp_path)
    for number in range(2, 101):
        (tmp_path / f"imagenet100/train/n{number}").mkdir()
    with pytest.raises(UserError, match="val must have the same class folders"):
        load("imagenet100", tmp_path)
    for number in range(2, 101):
        (tmp_path / f"imagenet100/val/n{number}").mkdir()
    with pytest.raises(UserError, match=r"train/n10 has no .JPEG image"):
        load("imagenet100", tmp_path)
