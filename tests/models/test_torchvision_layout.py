"""The networks that follow torchvision compute what torchvision's compute, and read its weight files."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from benchmarks.data.torchvision_import import torchvision
from benchmarks.models import build

SHAPE = (3, 64, 64)


def theirs(name: str, num_classes: int) -> torch.nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(5)
        return torchvision.models.get_model(name, num_classes=num_classes)


def body(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {key: tensor for key, tensor in state.items() if not key.startswith(("fc.", "head."))}


@pytest.mark.parametrize(("name", "params"), [("resnet18", {"stem": "imagenet"}), ("resnet50", {})])
def test_same_function_in_training_and_evaluation(name: str, params: Mapping[str, Any]) -> None:
    reference = theirs(name, 10)
    network = build(name, 10, SHAPE, params)
    network.load_state_dict(
        {key.replace("fc.", "head."): tensor for key, tensor in reference.state_dict().items()}
    )
    images = torch.randn(2, *SHAPE, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        for training in (True, False):
            torch.testing.assert_close(
                network.train(training)(images), reference.train(training)(images)
            )


def test_same_initial_spread() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = build("resnet18", 10, SHAPE, {"stem": "imagenet"})
    reference = dict(theirs("resnet18", 10).named_parameters())
    for key, tensor in network.named_parameters():
        if tensor.dim() == 4:
            torch.testing.assert_close(tensor.std(), reference[key].std(), rtol=0.03, atol=0)


def test_vgg11_has_the_same_tensors_in_the_same_order() -> None:
    with torch.device("meta"):
        ours = [tensor.shape for tensor in build("vgg11", 10, SHAPE).parameters()]
        reference = [
            tensor.shape
            for tensor in torchvision.models.get_model("vgg11", num_classes=10).parameters()
        ]
    assert ours == reference


@pytest.mark.parametrize("given", [True, False], ids=["weights_path", "torchvision's cache"])
def test_pretrained_resnet50(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: bool) -> None:
    stored = theirs("resnet50", 1000).state_dict()
    if given:  # files from before torch 0.4.1 have no batch counters
        for key in [key for key in stored if key.endswith("num_batches_tracked")]:
            del stored[key]
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    path = (
        tmp_path / "mine.pth"
        if given
        else tmp_path / "hub" / "checkpoints" / "resnet50-0676ba61.pth"
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(stored, path)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        fresh = build("resnet50", 14, SHAPE)
        torch.manual_seed(0)
        network = build(
            "resnet50",
            14,
            SHAPE,
            {"pretrained": True, "weights_path": str(path) if given else None},
        )
    loaded = network.state_dict()
    for key, tensor in body(stored).items():
        assert torch.equal(loaded[key], tensor), key
    assert network.head.weight.shape == (14, 2048)
    assert torch.equal(network.head.weight, fresh.head.weight), (
        "the head does not depend on the weights file"
    )
