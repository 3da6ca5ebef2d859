"""Models with torchvision's layout equal torchvision's models and load their weight files."""

from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.data.torchvision_import import torchvision
from benchmarks.models import build
from benchmarks.models.resnet import ResNet50Params, ResNetParams

SHAPE = (3, 64, 64)


def torchvision_model(name: str, num_classes: int) -> torch.nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(5)
        return torchvision.models.get_model(name, num_classes=num_classes)


@pytest.mark.parametrize(
    ("name", "params"),
    [("resnet18", ResNetParams(stem="imagenet")), ("resnet50", ResNet50Params())],
)
def test_output_equals_torchvisions(name: str, params: Any) -> None:
    reference = torchvision_model(name, 10)
    model = build(name, 10, SHAPE, params)
    model.load_state_dict(
        {key.replace("fc.", "head."): tensor for key, tensor in reference.state_dict().items()}
    )
    images = torch.randn(2, *SHAPE, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        for training in (True, False):
            torch.testing.assert_close(
                model.train(training)(images), reference.train(training)(images)
            )


def test_initial_standard_deviation_equals_torchvisions() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = build("resnet18", 10, SHAPE, ResNetParams(stem="imagenet"))
    reference = dict(torchvision_model("resnet18", 10).named_parameters())
    for key, tensor in model.named_parameters():
        if tensor.dim() == 4:
            torch.testing.assert_close(tensor.std(), reference[key].std(), rtol=0.03, atol=0)


def test_vgg11_parameter_shapes_equal_torchvisions() -> None:
    with torch.device("meta"):
        ours = [tensor.shape for tensor in build("vgg11", 10, SHAPE).parameters()]
        reference = [
            tensor.shape
            for tensor in torchvision.models.get_model("vgg11", num_classes=10).parameters()
        ]
    assert ours == reference


@pytest.mark.parametrize("source", ["weights_path", "torchvision's cache"])
def test_pretrained_resnet50(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    stored = torchvision_model("resnet50", 1000).state_dict()
    is_given = source == "weights_path"
    if is_given:  # files from before torch 0.4.1 have no batch counters
        for key in [key for key in stored if key.endswith("num_batches_tracked")]:
            del stored[key]
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    path = (
        tmp_path / "mine.pth"
        if is_given
        else tmp_path / "hub" / "checkpoints" / "resnet50-0676ba61.pth"
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(stored, path)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        untrained = build("resnet50", 14, SHAPE)
        torch.manual_seed(0)
        model = build(
            "resnet50",
            14,
            SHAPE,
            ResNet50Params(pretrained=True, weights_path="~/mine.pth" if is_given else None),
        )
    loaded = model.state_dict()
    for key in stored.keys() - {"fc.weight", "fc.bias"}:
        assert torch.equal(loaded[key], stored[key]), key
    assert model.head.weight.shape == (14, 2048)
    assert torch.equal(model.head.weight, untrained.head.weight), (
        "the head is independent of the weights file"
    )
