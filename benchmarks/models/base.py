"""Base class of the models and the model registry.

A model of another package:

    MODELS.add(ModelInfo("my_model", MyModel, "small CNN", min_image_size=8, params=MyParams))
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from methods.core.params import NoParams
from methods.core.plugins import Registry

Shape = tuple[int, int, int]  # channels, height, width


class ImageClassifier(nn.Module):
    """Classifier in two parts: `features` returns one vector per image, `head` returns logits."""

    feature_dim: int
    head: nn.Linear

    def features(self, images: Tensor) -> Tensor:
        raise NotImplementedError

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features(images))
        return logits


class BatchNorm(nn.BatchNorm2d):
    """Batch normalization that supports training batches with one value per channel.

    A single value has no variance, so the running statistics are used for such a batch.
    """

    def forward(self, images: Tensor) -> Tensor:
        if self.training and images.numel() == images.shape[1]:
            mean, variance = self.running_mean, self.running_var
            return F.batch_norm(images, mean, variance, self.weight, self.bias, eps=self.eps)
        return super().forward(images)


@dataclass(frozen=True)
class ModelInfo:
    """Registry entry of a model. `builder(num_classes, shape, **params)` creates it."""

    name: str
    builder: Callable[..., ImageClassifier]
    summary: str
    min_image_size: int  # smallest height and width
    params: type = NoParams
    extra_check: Callable[[Shape, Any], None] | None = None  # raises UserError


MODELS: Registry[ModelInfo] = Registry("model", group="fln.models", package="benchmarks.models")
