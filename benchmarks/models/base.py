"""What every network offers, and the record by which it is known."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

Shape = tuple[int, int, int]  # channels, height, width


class ImageClassifier(nn.Module):
    """A classifier cut in two: `features` gives one vector per image, `head` turns vectors into logits."""

    feature_dim: int
    head: nn.Linear

    def features(self, images: Tensor) -> Tensor:
        raise NotImplementedError

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.features(images))


class BatchNorm(nn.BatchNorm2d):
    """Batch norm that trains on a last batch of one: a single value per channel has no variance, so the running statistics stand in."""

    def forward(self, images: Tensor) -> Tensor:
        if self.training and images.numel() == images.shape[1]:
            return F.batch_norm(
                images,
                self.running_mean,
                self.running_var,
                self.weight,
                self.bias,
                False,
                0.0,
                self.eps,
            )
        return super().forward(images)


@dataclass(frozen=True)
class Parameter:
    """One setting of a model: its default, its legal values in words, and the test of a value."""

    default: Any
    legal: str
    accepts: Callable[[Any], bool]


def flag(default: bool) -> Parameter:
    return Parameter(default, "true, false", lambda value: isinstance(value, bool))


def choice(default: str, *others: str) -> Parameter:
    values = (default, *others)
    return Parameter(
        default, ", ".join(values), lambda value: isinstance(value, str) and value in values
    )


def widths(*default: int) -> Parameter:
    def accepts(value: Any) -> bool:
        return (
            isinstance(value, Sequence)
            and not isinstance(value, str)
            and all(
                isinstance(width, int) and not isinstance(width, bool) and width > 0
                for width in value
            )
        )

    return Parameter(default, "a list of positive integers", accepts)


def optional_path() -> Parameter:
    return Parameter(
        None,
        "null or the path of a file",
        lambda value: value is None or isinstance(value, (str, Path)),
    )


def nothing_more(shape: Shape, params: Mapping[str, Any]) -> None:
    """Most models have no condition beyond image size and parameter values."""


@dataclass(frozen=True)
class ModelInfo:
    """A model's entry in the registry. `network(num_classes, shape, **params)` builds it."""

    name: str
    network: Callable[..., ImageClassifier]
    smallest: int  # legal images have at least this height and width
    summary: str
    params: Mapping[str, Parameter] = field(default_factory=dict)
    check_further: Callable[[Shape, Mapping[str, Any]], None] = nothing_more
