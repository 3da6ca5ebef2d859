"""LeNet-5: LeCun et al., "Gradient-based learning applied to document recognition", 1998.

Deviations
1. ReLU and max-pooling, as in current implementations.
"""

import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.models.base import MODELS, ImageClassifier, ModelInfo, Shape


class LeNet5(ImageClassifier):
    """Two unpadded 5x5 convolutions with 2x2 pooling, then linear layers of width 120 and 84."""

    feature_dim = 84

    def __init__(self, num_classes: int, shape: Shape) -> None:
        super().__init__()
        channels, height, width = shape
        self.conv1 = nn.Conv2d(channels, 6, 5)
        self.conv2 = nn.Conv2d(6, 16, 5)
        # Each stage takes 4 pixels and halves the rest: 32 x 32 pixels become 5 x 5.
        rows, columns = (((side - 4) // 2 - 4) // 2 for side in (height, width))
        self.fc1 = nn.Linear(16 * rows * columns, 120)
        self.fc2 = nn.Linear(120, self.feature_dim)
        self.head = nn.Linear(self.feature_dim, num_classes)

    def features(self, images: Tensor) -> Tensor:
        # ReLU after pooling gives the same values and gradients, at a quarter of the cost.
        hidden = F.relu(F.max_pool2d(self.conv1(images), 2))
        hidden = F.relu(F.max_pool2d(self.conv2(hidden), 2))
        hidden = F.relu(self.fc1(hidden.flatten(1)))
        return F.relu(self.fc2(hidden))


MODELS.add(ModelInfo("lenet5", LeNet5, "LeNet-5 with ReLU and max-pooling", min_image_size=16))
