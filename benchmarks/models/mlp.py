"""Multilayer perceptron on flattened images."""

from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import Annotated

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from benchmarks.models.base import MODELS, ImageClassifier, ModelInfo, Shape
from methods.core.params import Tuple, parameters

Width = Annotated[int, Field(ge=1, le=10**6)]


@parameters
class MLPParams:
    hidden: Tuple[Width] = (512, 512)  # widths of the hidden layers; []: linear classifier


class MLP(ImageClassifier):
    """Fully connected layers of the given widths with ReLU."""

    def __init__(self, num_classes: int, shape: Shape, hidden: Sequence[int]) -> None:
        super().__init__()
        sizes = [prod(shape), *hidden]
        self.layers = nn.ModuleList(nn.Linear(*pair) for pair in pairwise(sizes))
        self.feature_dim = sizes[-1]
        self.head = nn.Linear(self.feature_dim, num_classes)

    def features(self, images: Tensor) -> Tensor:
        vectors = images.flatten(1)
        for layer in self.layers:
            vectors = F.relu(layer(vectors))
        return vectors


MODELS.add(ModelInfo("mlp", MLP, "multilayer perceptron with ReLU", 1, MLPParams))
