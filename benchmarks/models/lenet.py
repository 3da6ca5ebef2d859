"""LeNet-5: LeCun et al., "Gradient-based learning applied to document recognition", 1998.

In the form used today: ReLU and max-pooling.
"""

import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.models.base import ImageClassifier, ModelInfo, Shape


class LeNet5(ImageClassifier):
    """Two unpadded 5x5 convolutions, each followed by 2x2 pooling, then fully connected 120, 84, classes."""

    feature_dim = 84

    def __init__(self, num_classes: int, shape: Shape) -> None:
        super().__init__()
        channels, height, width = shape
        self.conv1 = nn.Conv2d(channels, 6, 5)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * side_after_pools(height) * side_after_pools(width), 120)
        self.fc2 = nn.Linear(120, self.feature_dim)
        self.head = nn.Linear(self.feature_dim, num_classes)

    def features(self, images: Tensor) -> Tensor:
        # ReLU after pooling: the same values and gradients, on a quarter of them.
        hidden = F.relu(F.max_pool2d(self.conv1(images), 2))
        hidden = F.relu(F.max_pool2d(self.conv2(hidden), 2))
        hidden = F.relu(self.fc1(hidden.flatten(1)))
        return F.relu(self.fc2(hidden))


def side_after_pools(side: int) -> int:
    """5 pixels for an image of 32, 4 for one of 28."""
    return ((side - 4) // 2 - 4) // 2


LENET5 = ModelInfo(
    "lenet5",
    LeNet5,
    smallest=16,
    summary="LeNet-5, ReLU and max-pooling (FedCorr, LeNet experiments)",
)
