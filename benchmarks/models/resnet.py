"""Residual networks: He et al., "Deep residual learning for image recognition", CVPR 2016."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.models.base import (
    BatchNorm,
    ImageClassifier,
    ModelInfo,
    Shape,
    choice,
    flag,
    optional_path,
)
from methods.core.errors import UserError

# torchvision's file of the IMAGENET1K_V1 weights, the ones FedCorr starts from
PRETRAINED_FILE = "resnet50-0676ba61.pth"


def convolution(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)


def shortcut(inputs: int, outputs: int, stride: int) -> nn.Module:
    """The identity where the block keeps the shape, else a 1x1 projection."""
    if stride == 1 and inputs == outputs:
        return nn.Identity()
    return nn.Sequential(convolution(inputs, outputs, 1, stride), BatchNorm(outputs))


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and the shortcut."""

    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = convolution(inputs, width, 3, stride)
        self.bn1 = BatchNorm(width)
        self.conv2 = convolution(width, width, 3)
        self.bn2 = BatchNorm(width)
        self.downsample = shortcut(inputs, width, stride)

    def forward(self, maps: Tensor) -> Tensor:
        hidden = F.relu(self.bn1(self.conv1(maps)))
        return F.relu(self.bn2(self.conv2(hidden)) + self.downsample(maps))


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions and the shortcut; the stride sits on the 3x3, as in torchvision."""

    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = width * self.expansion
        self.conv1 = convolution(inputs, width, 1)
        self.bn1 = BatchNorm(width)
        self.conv2 = convolution(width, width, 3, stride)
        self.bn2 = BatchNorm(width)
        self.conv3 = convolution(width, outputs, 1)
        self.bn3 = BatchNorm(outputs)
        self.downsample = shortcut(inputs, outputs, stride)

    def forward(self, maps: Tensor) -> Tensor:
        hidden = F.relu(self.bn1(self.conv1(maps)))
        hidden = F.relu(self.bn2(self.conv2(hidden)))
        return F.relu(self.bn3(self.conv3(hidden)) + self.downsample(maps))


class ResNet(ImageClassifier):
    """Four stages of residual blocks of width 64, 128, 256 and 512, then the mean over the map.

    stem=cifar: a 3x3 convolution of stride 1 and no pooling, torch's default initialisation (FedCorr, CIFAR).
    stem=imagenet: torchvision's 7x7 convolution of stride 2, max-pooling, Kaiming initialisation (LSG, ImageNet-100).
    Parameters carry torchvision's names, so that its weight files fit.
    """

    def __init__(
        self,
        block: type[BasicBlock] | type[Bottleneck],
        depths: tuple[int, ...],
        num_classes: int,
        shape: Shape,
        stem: str,
    ) -> None:
        super().__init__()
        self.imagenet_stem = stem == "imagenet"
        self.conv1 = (
            convolution(shape[0], 64, 7, 2) if self.imagenet_stem else convolution(shape[0], 64, 3)
        )
        self.bn1 = BatchNorm(64)
        inputs = 64
        stages = []
        for width, stride, depth in zip((64, 128, 256, 512), (1, 2, 2, 2), depths, strict=True):
            blocks = []
            for position in range(depth):
                blocks.append(block(inputs, width, stride if position == 0 else 1))
                inputs = width * block.expansion
            stages.append(nn.Sequential(*blocks))
        self.layer1, self.layer2, self.layer3, self.layer4 = stages
        self.feature_dim = inputs
        self.head = nn.Linear(inputs, num_classes)
        if self.imagenet_stem:
            for module in self.modules():
                if isinstance(module, nn.Conv2d):
                    nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def features(self, images: Tensor) -> Tensor:
        maps = F.relu(self.bn1(self.conv1(images)))
        if self.imagenet_stem:
            maps = F.max_pool2d(maps, 3, stride=2, padding=1)
        return self.layer4(self.layer3(self.layer2(self.layer1(maps)))).mean((2, 3))


def resnet50(
    num_classes: int, shape: Shape, pretrained: bool, weights_path: str | Path | None
) -> ResNet:
    network = ResNet(Bottleneck, (3, 4, 6, 3), num_classes, shape, stem="imagenet")
    if pretrained:
        load_all_but_head(network, pretrained_path(weights_path))
    return network


def pretrained_path(weights_path: str | Path | None) -> Path:
    """The file asked for, or the place where torchvision keeps its downloads."""
    return (
        Path(weights_path)
        if weights_path
        else Path(torch.hub.get_dir()) / "checkpoints" / PRETRAINED_FILE
    )


def load_all_but_head(network: ResNet, path: Path) -> None:
    """Read a torchvision state dictionary; its `fc` belongs to ImageNet's classes, so the head stays fresh."""
    try:
        stored = torch.load(path, map_location="cpu", weights_only=True)
        body = {name: tensor for name, tensor in stored.items() if not name.startswith("fc.")}
        fresh_head = {f"head.{name}": tensor for name, tensor in network.head.state_dict().items()}
        network.load_state_dict(body | fresh_head)
    except Exception as error:
        reason = " ".join(str(error).split())[:200]  # torch lists every key on a line of its own
        raise UserError(
            f"model resnet50: {path} does not hold torchvision's ResNet-50 weights ({reason})"
        ) from error


def check_pretrained(shape: Shape, params: Mapping[str, Any]) -> None:
    if not params["pretrained"]:
        if params["weights_path"]:
            raise UserError(
                f"model resnet50: weights_path={params['weights_path']} is not read with pretrained=false;"
                " set pretrained=true"
            )
        return
    if shape[0] != 3:
        raise UserError(
            f"model resnet50: pretrained=true needs 3 channels, the images have {shape[0]}; legal: pretrained=false"
        )
    path = pretrained_path(params["weights_path"])
    if not path.is_file():
        raise UserError(
            f"model resnet50: pretrained=true, but {path} is not a file; put the weights there or set weights_path"
        )


STEM = {"stem": choice("cifar", "imagenet")}
RESNET18 = ModelInfo(
    "resnet18",
    partial(ResNet, BasicBlock, (2, 2, 2, 2)),
    smallest=8,
    params=STEM,
    summary="ResNet-18 (FedCorr, CIFAR-10)",
)
RESNET34 = ModelInfo(
    "resnet34",
    partial(ResNet, BasicBlock, (3, 4, 6, 3)),
    smallest=8,
    params=STEM,
    summary="ResNet-34 (FedCorr, CIFAR-100)",
)
RESNET50 = ModelInfo(
    "resnet50",
    resnet50,
    smallest=32,
    params={"pretrained": flag(False), "weights_path": optional_path()},
    summary="ResNet-50, torchvision layout (FedCorr, Clothing1M)",
    check_further=check_pretrained,
)
