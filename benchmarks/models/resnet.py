"""Residual networks: He et al., "Deep residual learning for image recognition", CVPR 2016."""

from functools import partial
from pathlib import Path
from typing import Literal, Self

import torch
import torch.nn.functional as F
from pydantic import model_validator
from torch import Tensor, nn

from benchmarks.models.base import MODELS, BatchNorm, ImageClassifier, ModelInfo, Shape
from methods.core.errors import UserError, invalid
from methods.core.params import DataFile, parameters

PRETRAINED_FILE = "resnet50-0676ba61.pth"  # torchvision's IMAGENET1K_V1 weights, used by FedCorr


@parameters
class ResNetParams:
    stem: Literal["cifar", "imagenet"] = "cifar"


@parameters
class ResNet50Params:
    pretrained: bool = False
    weights_path: DataFile | None = None  # None: torchvision's download directory

    @model_validator(mode="after")
    def _require_pretrained(self) -> Self:
        if self.weights_path and not self.pretrained:
            raise invalid("model.weights_path", self.weights_path, "null, or model.pretrained=true")
        return self


def convolution(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    """Convolution without bias that keeps the image size, divided by the stride."""
    return nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)


def shortcut(inputs: int, outputs: int, stride: int) -> nn.Module:
    """The identity if the block keeps the shape, otherwise a 1x1 projection."""
    if stride == 1 and inputs == outputs:
        return nn.Identity()
    return nn.Sequential(convolution(inputs, outputs, 1, stride), BatchNorm(outputs))


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut."""

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
    """1x1, 3x3 and 1x1 convolutions and a shortcut. The 3x3 convolution has the stride."""

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
    """Four stages of residual blocks of width 64, 128, 256 and 512, then the spatial mean.

    stem=cifar: 3x3 convolution of stride 1, torch's default initialization (FedCorr, CIFAR).
    stem=imagenet: 7x7 convolution of stride 2, max-pooling, Kaiming initialization, as torchvision
    (LSG, ImageNet-100). Parameter names are those of torchvision's weight files.
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
        self.conv1 = convolution(shape[0], 64, *((7, 2) if self.imagenet_stem else (3, 1)))
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
        features: Tensor = self.layer4(self.layer3(self.layer2(self.layer1(maps)))).mean((2, 3))
        return features


def resnet50(num_classes: int, shape: Shape, pretrained: bool, weights_path: str | None) -> ResNet:
    """ResNet-50 in torchvision's layout, optionally with pretrained weights."""
    model = ResNet(Bottleneck, (3, 4, 6, 3), num_classes, shape, stem="imagenet")
    if pretrained:
        load_backbone(model, pretrained_path(weights_path))
    return model


def pretrained_path(weights_path: str | None) -> Path:
    """The given file, or the file in torchvision's download directory."""
    if weights_path:
        return Path(weights_path).expanduser()
    return Path(torch.hub.get_dir()) / "checkpoints" / PRETRAINED_FILE


def load_backbone(model: ResNet, path: Path) -> None:
    """Load a torchvision state dictionary except its head, which is for the classes of ImageNet."""
    try:
        stored = torch.load(path, map_location="cpu", weights_only=True)
        backbone = {name: tensor for name, tensor in stored.items() if not name.startswith("fc.")}
        head = {f"head.{name}": tensor for name, tensor in model.head.state_dict().items()}
        model.load_state_dict(backbone | head)
    except Exception as error:
        reason = " ".join(str(error).split())[:200]  # torch lists every key on its own line
        message = f"cannot read {path}: not torchvision's ResNet-50 weights ({reason})"
        raise UserError(message) from error


def check_pretrained(shape: Shape, params: ResNet50Params) -> None:
    """Raise UserError if pretrained weights do not match the images or do not exist."""
    if not params.pretrained:
        return
    if shape[0] != 3:
        raise invalid("model.pretrained", True, f"false for images with {shape[0]} channels")
    path = pretrained_path(params.weights_path)
    if not path.is_file():
        fix = "set model.weights_path=FILE"
        raise UserError(f"cannot read pretrained weights: {path} does not exist; {fix}")


_RESNETS = (("resnet18", (2, 2, 2, 2), "ResNet-18"), ("resnet34", (3, 4, 6, 3), "ResNet-34"))
for _name, _depths, _summary in _RESNETS:
    MODELS.add(ModelInfo(_name, partial(ResNet, BasicBlock, _depths), _summary, 8, ResNetParams))
_SUMMARY = "ResNet-50 in torchvision's layout"
MODELS.add(ModelInfo("resnet50", resnet50, _SUMMARY, 32, ResNet50Params, check_pretrained))
