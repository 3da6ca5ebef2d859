"""Labels from a file: what is read, what is refused, and CIFAR-10N itself where FLN_CIFAR10N names its file."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import noise
from noise import NoiseError
from noise.human import HumanParams

LABELS = np.array([0, 1, 2, 0, 1, 2])
PARTS = [np.array([0, 1, 2]), np.array([3, 4])]


def saved(folder: Path, **arrays: Any) -> str:
    path = folder / "labels.npz"
    np.savez(path, **arrays)
    return str(path)


def test_labels_come_from_the_file(tmp_path: Path) -> None:
    """Two of six labels differ; the sample that belongs to nobody is not in the transition."""
    path = saved(
        tmp_path,
        worse_label=np.array([1, 1, 2, 0, 1, 0], np.uint8),
        clean_label=LABELS.astype(np.uint8),
    )
    record = noise.apply("human", LABELS, PARTS, 3, 0, HumanParams(path))
    assert record.labels.tolist() == [1, 1, 2, 0, 1, 0] and record.labels.dtype == np.int64
    assert record.flipped.tolist() == [True, False, False, False, False, True]
    assert record.client_level == pytest.approx([1 / 3, 1 / 3])
    assert record.client_rate == pytest.approx([1 / 3, 0])
    assert record.transition.tolist() == [[1, 1, 0], [0, 2, 0], [0, 0, 1]]


def test_the_key_chooses_the_array_and_clean_labels_are_optional(tmp_path: Path) -> None:
    path = saved(tmp_path, aggre_label=LABELS, worse_label=(LABELS + 1) % 3)
    assert not noise.apply(
        "human", LABELS, PARTS, 3, 0, HumanParams(path, "aggre_label")
    ).flipped.any()
    assert noise.apply("human", LABELS, PARTS, 3, 0, HumanParams(path, "worse_label")).flipped.all()


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (
            {"other": LABELS, "more": LABELS},
            "noise.key='worse_label': must be one of other, more in",
        ),
        (
            {"worse_label": LABELS[:5]},
            "noise.key='worse_label': must be 6 integer labels; it holds int64(5,)",
        ),
        ({"worse_label": LABELS + 0.5}, "must be 6 integer labels; it holds float64(6,)"),
        (
            {"worse_label": LABELS + 1},
            "noise.key='worse_label': must be labels in [0, 3); it holds 1 to 3",
        ),
        ({"worse_label": LABELS - 1}, "must be labels in [0, 3); it holds -1 to 1"),
        (
            {"worse_label": LABELS, "clean_label": LABELS[::-1]},
            "must be a file whose clean_label equals the labels",
        ),
        (
            {"worse_label": LABELS, "clean_label": LABELS[:5]},
            "must be a file whose clean_label equals the labels",
        ),
        ({"worse_label": np.array(list("abcdef"), object)}, "must be plain integers in"),
    ],
)
def test_a_file_that_does_not_fit_is_refused(
    tmp_path: Path, arrays: dict[str, np.ndarray], message: str
) -> None:
    with pytest.raises(NoiseError) as caught:
        noise.apply("human", LABELS, PARTS, 3, 0, HumanParams(saved(tmp_path, **arrays)))
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [None, b"", b"plain text", b"PK\x03\x04 a broken archive"])
def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "labels.npz"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(
        NoiseError, match=r"noise\.path='.*labels\.npz': must be a readable \.npz file"
    ):
        noise.apply("human", LABELS, PARTS, 3, 0, HumanParams(str(path)))


def test_a_single_array_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "labels.npy", LABELS)
    with pytest.raises(
        NoiseError, match=r"noise\.path=.* must be an \.npz file, not a single array"
    ):
        noise.apply("human", LABELS, PARTS, 3, 0, HumanParams(str(tmp_path / "labels.npy")))


@pytest.mark.parametrize("arguments", [{"path": ""}, {"path": None}, {"path": "a.npz", "key": ""}])
def test_path_and_key_are_needed(arguments: dict[str, Any]) -> None:
    with pytest.raises(NoiseError, match=r"noise\.(path|key)=('')?(None)?: must be"):
        HumanParams(**arguments)


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
    """The wrong rates that the data set's authors report (Wei et al., ICLR 2022)."""
    path = os.environ.get("FLN_CIFAR10N")
    if not path:
        pytest.skip("FLN_CIFAR10N names no .npz file with the labels of CIFAR-10N")
    labels = np.load(path)["clean_label"].astype(np.int64)
    record = noise.apply("human", labels, [np.arange(len(labels))], 10, 0, HumanParams(path, key))
    assert record.flipped.mean() == pytest.approx(rate, abs=5e-5)
    assert record.client_rate[0] == record.client_level[0] == record.flipped.mean()
