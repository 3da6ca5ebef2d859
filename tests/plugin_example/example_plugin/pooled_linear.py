"""Linear classifier on row and column means: an external model."""

import torch
from torch import Tensor, nn

from benchmarks.models.base import MODELS, ImageClassifier, ModelInfo, Shape
from methods.core.params import PositiveInt, parameters


@parameters
class PooledLinearParams:
    width: PositiveInt = 16


class PooledLinear(ImageClassifier):
    def __init__(self, num_classes: int, shape: Shape, width: int) -> None:
        super().__init__()
        channels, height, image_width = shape
        self.hidden = nn.Linear(channels * (height + image_width), width)
        self.feature_dim = width
        self.head = nn.Linear(width, num_classes)

    def features(self, images: Tensor) -> Tensor:
        means = torch.cat([images.mean(2), images.mean(3)], dim=2)
        features: Tensor = self.hidden(means.flatten(1)).relu()
        return features


MODELS.add(
    ModelInfo(
        "pooled_linear",
        PooledLinear,
        "linear layers on row and column means",
        min_image_size=1,
        params=PooledLinearParams,
    )
)
