"""Refusals: one line that names the model, the value and the legal ones."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.models import build, check, names
from benchmarks.models.base import Shape
from methods.core.errors import UserError

CIFAR, MNIST, DIGITS = (3, 32, 32), (1, 28, 28), (1, 8, 8)


@pytest.mark.parametrize(
    ("name", "shape", "params", "words"),
    [
        ("lenet", CIFAR, {}, ["'lenet'", "unknown", *names()]),
        ("lenet5", DIGITS, {}, ["lenet5", "1x8x8", "16x16", "digits_cnn, mlp, resnet18, resnet34"]),
        ("lenet5", (3, 32, 15), {}, ["lenet5", "3x32x15", "16x16"]),
        ("cnn9", (3, 27, 27), {}, ["cnn9", "3x27x27", "28x28"]),
        (
            "vgg11",
            MNIST,
            {},
            ["vgg11", "1x28x28", "32x32", "cnn9, digits_cnn, lenet5, mlp, resnet18, resnet34"],
        ),
        ("resnet50", MNIST, {}, ["resnet50", "1x28x28", "32x32"]),
        ("digits_cnn", (1, 7, 7), {}, ["digits_cnn", "1x7x7", "8x8", "mlp"]),
        ("lenet5", CIFAR, {"width": 3}, ["lenet5", "'width'", "none"]),
        ("resnet18", CIFAR, {"pretrained": True}, ["resnet18", "'pretrained'", "stem"]),
        ("resnet18", CIFAR, {"stem": "mnist"}, ["resnet18", "stem='mnist'", "cifar, imagenet"]),
        ("resnet34", CIFAR, {"stem": None}, ["resnet34", "stem=None", "cifar, imagenet"]),
        ("cnn9", CIFAR, {"dropout_in_eval": "no"}, ["cnn9", "dropout_in_eval='no'", "true, false"]),
        ("cnn9", CIFAR, {"dropout_in_eval": 1}, ["cnn9", "dropout_in_eval=1", "true, false"]),
        ("mlp", DIGITS, {"hidden": 64}, ["mlp", "hidden=64", "list of positive integers"]),
        (
            "mlp",
            DIGITS,
            {"hidden": [64, 0]},
            ["mlp", "hidden=[64, 0]", "list of positive integers"],
        ),
        ("mlp", DIGITS, {"hidden": [True]}, ["mlp", "hidden=[True]", "list of positive integers"]),
        ("mlp", DIGITS, {"hidden": "64"}, ["mlp", "hidden='64'", "list of positive integers"]),
        (
            "resnet50",
            CIFAR,
            {"weights_path": 3, "pretrained": True},
            ["weights_path=3", "null or the path"],
        ),
        (
            "resnet50",
            CIFAR,
            {"weights_path": "w.pth"},
            ["resnet50", "weights_path=w.pth", "pretrained=true"],
        ),
        (
            "resnet50",
            (1, 32, 32),
            {"pretrained": True},
            ["resnet50", "pretrained=true", "3 channels", "1"],
        ),
        (
            "resnet50",
            CIFAR,
            {"pretrained": True, "weights_path": "/no/w.pth"},
            ["/no/w.pth", "set weights_path"],
        ),
    ],
)
def test_refusal(name: str, shape: Shape, params: Mapping[str, Any], words: list[str]) -> None:
    for refuse in (lambda: check(name, shape, params), lambda: build(name, 10, shape, params)):
        with pytest.raises(UserError) as caught:
            refuse()
        message = str(caught.value)
        assert "\n" not in message
        for word in words:
            assert word in message


@pytest.mark.parametrize(
    ("name", "shape", "params"),
    [(name, CIFAR, {}) for name in names()]
    + [
        ("lenet5", MNIST, {}),
        ("cnn9", MNIST, {"dropout_in_eval": True}),
        ("resnet18", (3, 224, 224), {"stem": "imagenet"}),
        ("mlp", DIGITS, {"hidden": (32,)}),
        ("digits_cnn", DIGITS, {}),
        ("resnet50", (1, 32, 32), {"pretrained": False, "weights_path": None}),
    ],
)
def test_legal(name: str, shape: Shape, params: Mapping[str, Any]) -> None:
    check(name, shape, params)


def test_missing_download_names_torchvisions_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    with pytest.raises(UserError) as caught:
        check("resnet50", CIFAR, {"pretrained": True})
    assert str(tmp_path / "hub" / "checkpoints" / "resnet50-0676ba61.pth") in str(caught.value)


@pytest.mark.parametrize("content", [{}, {"conv1.weight": torch.zeros(1)}, [1, 2], b"no weights"])
def test_wrong_weights_file_is_one_line(tmp_path: Path, content: object) -> None:
    path = tmp_path / "weights.pth"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        torch.save(content, path)
    with pytest.raises(UserError) as caught:
        build("resnet50", 10, CIFAR, {"pretrained": True, "weights_path": path})
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
