"""Small CNN for scikit-learn's 8 x 8 digits. Trains on a CPU in seconds."""

import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.models.base import MODELS, ImageClassifier, ModelInfo, Shape


class DigitsCNN(ImageClassifier):
    """Two padded 3x3 convolutions with 2x2 max-pooling and one hidden layer."""

    feature_dim = 64

    def __init__(self, num_classes: int, shape: Shape) -> None:
        super().__init__()
        channels, height, width = shape
        self.conv1 = nn.Conv2d(channels, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.fc = nn.Linear(32 * (height // 4) * (width // 4), self.feature_dim)
        self.head = nn.Linear(self.feature_dim, num_classes)

    def features(self, images: Tensor) -> Tensor:
        # ReLU after pooling gives the same values and gradients, at a quarter of the cost.
        hidden = F.relu(F.max_pool2d(self.conv1(images), 2))
        hidden = F.relu(F.max_pool2d(self.conv2(hidden), 2))
        return F.relu(self.fc(hidden.flatten(1)))


MODELS.add(ModelInfo("digits_cnn", DigitsCNN, "small CNN for 8 x 8 digits", min_image_size=8))
