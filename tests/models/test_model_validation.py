"""Invalid models and parameters: one line that names the key, the value and what is expected."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.models import MODELS, build, validate_model
from benchmarks.models.base import Shape
from benchmarks.models.resnet import ResNet50Params
from methods.core.errors import UserError
from methods.core.params import build_params

CIFAR, MNIST, DIGITS = (3, 32, 32), (1, 28, 28), (1, 8, 8)


def make_params(name: str, values: Mapping[str, Any]) -> Any:
    return build_params(MODELS.get(name).params, values, "model")


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("lenet5", {"width": 3}, "unknown key model.width: available: none"),
        ("resnet18", {"pretrained": True}, "unknown key model.pretrained: available: stem"),
        ("resnet18", {"stem": "mnist"}, "invalid model.stem='mnist': expected cifar or imagenet"),
        ("resnet34", {"stem": None}, "invalid model.stem=null: expected cifar or imagenet"),
        (
            "cnn9",
            {"dropout_in_eval": "no"},
            "invalid model.dropout_in_eval='no': expected true or false",
        ),
        ("cnn9", {"dropout_in_eval": 1}, "invalid model.dropout_in_eval=1: expected true or false"),
        ("mlp", {"hidden": 64}, "invalid model.hidden=64: expected a list, each entry an integer"),
        ("mlp", {"hidden": [64, 0]}, "invalid model.hidden=[64, 0]: expected a list, each entry"),
        ("mlp", {"hidden": [True]}, "invalid model.hidden=[True]: expected a list, each entry"),
        ("mlp", {"hidden": "64"}, "invalid model.hidden='64': expected a list, each entry"),
        (
            "resnet50",
            {"weights_path": 3, "pretrained": True},
            "invalid model.weights_path=3: expected a string or null",
        ),
        (
            "resnet50",
            {"weights_path": "w.pth"},
            "invalid model.weights_path='w.pth': expected null, or model.pretrained=true",
        ),
    ],
)
def test_invalid_parameter(name: str, values: Mapping[str, Any], message: str) -> None:
    with pytest.raises(UserError) as caught:
        make_params(name, values)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "shape", "values", "message"),
    [
        (
            "lenet",
            CIFAR,
            {},
            "unknown model lenet: did you mean lenet5? available: cnn9, digits_cnn",
        ),
        (
            "lenet5",
            DIGITS,
            {},
            "invalid model='lenet5': expected a model for 1x8x8 images (digits_cnn, mlp, "
            "pooled_linear, resnet18, resnet34); lenet5 requires at least 16x16",
        ),
        ("lenet5", (3, 32, 15), {}, "expected a model for 3x32x15 images"),
        ("cnn9", (3, 27, 27), {}, "cnn9 requires at least 28x28"),
        ("vgg11", MNIST, {}, "vgg11 requires at least 32x32"),
        ("resnet50", MNIST, {}, "resnet50 requires at least 32x32"),
        ("digits_cnn", (1, 7, 7), {}, "expected a model for 1x7x7 images (mlp, pooled_linear)"),
        (
            "resnet50",
            (1, 32, 32),
            {"pretrained": True},
            "invalid model.pretrained=true: expected false for images with 1 channels",
        ),
        (
            "resnet50",
            CIFAR,
            {"pretrained": True, "weights_path": "/no/w.pth"},
            "/no/w.pth does not exist; set model.weights_path=FILE",
        ),
    ],
)
def test_unsupported_images(
    name: str, shape: Shape, values: Mapping[str, Any], message: str
) -> None:
    params = make_params(name, values) if values else None
    for call in (
        lambda: validate_model(name, shape, params),
        lambda: build(name, 9, shape, params),
    ):
        with pytest.raises(UserError) as caught:
            call()
        assert message in str(caught.value)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "shape", "values"),
    [(name, CIFAR, {}) for name in MODELS.names()]
    + [
        ("lenet5", MNIST, {}),
        ("cnn9", MNIST, {"dropout_in_eval": True}),
        ("resnet18", (3, 224, 224), {"stem": "imagenet"}),
        ("mlp", DIGITS, {"hidden": [32]}),
        ("digits_cnn", DIGITS, {}),
        ("resnet50", (1, 32, 32), {"pretrained": False, "weights_path": None}),
    ],
)
def test_valid_model(name: str, shape: Shape, values: Mapping[str, Any]) -> None:
    validate_model(name, shape, make_params(name, values))


def test_error_for_missing_download_names_torchvisions_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    with pytest.raises(UserError) as caught:
        validate_model("resnet50", CIFAR, ResNet50Params(pretrained=True))
    assert str(tmp_path / "hub" / "checkpoints" / "resnet50-0676ba61.pth") in str(caught.value)


@pytest.mark.parametrize("content", [{}, {"conv1.weight": torch.zeros(1)}, [1, 2], b"no weights"])
def test_invalid_weights_file_is_one_line(tmp_path: Path, content: object) -> None:
    path = tmp_path / "weights.pth"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        torch.save(content, path)
    with pytest.raises(UserError) as caught:
        build("resnet50", 10, CIFAR, ResNet50Params(pretrained=True, weights_path=str(path)))
    assert f"cannot read {path}" in str(caught.value)
    assert "\n" not in str(caught.value)
