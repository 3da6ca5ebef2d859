"""Labels from a file. FLN_CIFAR10N names the file of CIFAR-10N, if it is available."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from methods.core.errors import UserError
from noise import NoiseRecord, apply_noise
from noise.human import HumanParams

LABELS = np.array([0, 1, 2, 0, 1, 2])
CLIENT_INDICES = [np.array([0, 1, 2]), np.array([3, 4])]


def save_labels(directory: Path, **arrays: Any) -> str:
    path = directory / "labels.npz"
    np.savez(path, **arrays)
    return str(path)


def apply_human(path: str, *key: str) -> NoiseRecord:
    return apply_noise("human", LABELS, CLIENT_INDICES, 3, 0, HumanParams(path, *key))


def test_labels_are_read_from_the_file(tmp_path: Path) -> None:
    """Two of six labels differ. The transition excludes the sample that has no client."""
    path = save_labels(
        tmp_path,
        worse_label=np.array([1, 1, 2, 0, 1, 0], np.uint8),
        clean_label=LABELS.astype(np.uint8),
    )
    record = apply_human(path)
    assert record.labels.tolist() == [1, 1, 2, 0, 1, 0] and record.labels.dtype == np.int64
    assert record.flipped.tolist() == [True, False, False, False, False, True]
    assert record.client_level == pytest.approx([1 / 3, 1 / 3])
    assert record.client_rate == pytest.approx([1 / 3, 0])
    assert record.transition.tolist() == [[1, 1, 0], [0, 2, 0], [0, 0, 1]]


def test_key_selects_the_array_and_clean_labels_are_optional(tmp_path: Path) -> None:
    path = save_labels(tmp_path, aggre_label=LABELS, worse_label=(LABELS + 1) % 3)
    assert not apply_human(path, "aggre_label").flipped.any()
    assert apply_human(path, "worse_label").flipped.all()


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"other": LABELS, "more": LABELS}, "unknown noise.key=worse_label in {}: available: "),
        ({"worse_label": LABELS[:5]}, "expected 6 integer labels, not int64(5,)"),
        ({"worse_label": LABELS + 0.5}, "expected 6 integer labels, not float64(6,)"),
        (
            {"worse_label": LABELS + 1},
            "invalid noise.key='worse_label': expected labels from 0 to 2, not 1 to 3",
        ),
        ({"worse_label": LABELS - 1}, "expected labels from 0 to 2, not -1 to 1"),
        (
            {"worse_label": LABELS, "clean_label": LABELS[::-1]},
            "invalid noise.path='{}': expected a file whose clean_label equals the labels of",
        ),
        ({"worse_label": LABELS, "clean_label": LABELS[:5]}, "whose clean_label equals the labels"),
        (
            {"worse_label": np.array(list("abcdef"), object)},
            "cannot read {}: not an .npz file of plain arrays (ValueError: Object arrays cannot be",
        ),
    ],
)
def test_unsuitable_file_is_an_error(
    tmp_path: Path, arrays: dict[str, np.ndarray], message: str
) -> None:
    path = save_labels(tmp_path, **arrays)
    with pytest.raises(UserError) as error:
        apply_human(path)
    assert message.replace("{}", path) in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("content", [None, b"", b"plain text", b"PK\x03\x04 a broken archive"])
def test_unreadable_file_is_an_error(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "labels.npz"
    if content is not None:
        path.write_bytes(content)
    expected = r"^cannot read .*labels\.npz: (No such file|not an \.npz file of plain arrays)"
    with pytest.raises(UserError, match=expected):
        apply_human(str(path))


def test_single_array_is_an_error(tmp_path: Path) -> None:
    np.save(tmp_path / "labels.npy", LABELS)
    with pytest.raises(UserError, match="not an .npz file of plain arrays"):
        apply_human(str(tmp_path / "labels.npy"))


def test_empty_path_is_an_error() -> None:
    with pytest.raises(UserError, match=r"^cannot read \.: Is a directory"):
        apply_human("")


@pytest.mark.parametrize(
    ("key", "rate"),
    [
        ("clean_label", 0.0),
        ("aggre_label", 0.0901),
        ("worse_label", 0.4021),
        ("random_label1", 0.1723),
        ("random_label2", 0.1812),
        ("random_label3", 0.1764),
    ],
)
def test_cifar10n_rates(key: str, rate: float) -> None:
    """The noise rates that the authors of the dataset report (Wei et al., ICLR 2022)."""
    path = os.environ.get("FLN_CIFAR10N")
    if not path:
        pytest.skip("FLN_CIFAR10N does not name an .npz file")
    labels = np.load(path)["clean_label"].astype(np.int64)
    record = apply_noise("human", labels, [np.arange(len(labels))], 10, 0, HumanParams(path, key))
    assert record.flipped.mean() == pytest.approx(rate, abs=5e-5)
    assert record.client_rate[0] == record.client_level[0] == record.flipped.mean()
