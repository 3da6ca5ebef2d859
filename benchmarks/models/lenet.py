"""LeNet-5 and a small CNN for scikit-learn's 8 x 8 digits, which trains on a CPU in seconds.

Paper: LeCun et al., "Gradient-based learning applied to document recognition", 1998.

Deviations
1. ReLU and max-pooling, as in current implementations.
"""

from collections.abc import Sequence
from functools import partial
from itertools import pairwise

import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.models.base import MODELS, ImageClassifier, ModelInfo, Shape


class LeNet(ImageClassifier):
    """Two convolutions with 2x2 max-pooling, then linear layers of the given widths."""

    def __init__(
        self,
        channels: tuple[int, int],
        kernel: int,
        padding: int,
        widths: Sequence[int],
        num_classes: int,
        shape: Shape,
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(shape[0], channels[0], kernel, padding=padding)
        self.conv2 = nn.Conv2d(*channels, kernel, padding=padding)
        # Each stage takes pixels and halves the rest: in LeNet-5, 32 x 32 pixels become 5 x 5.
        taken = kernel - 1 - 2 * padding
        rows, columns = (((side - taken) // 2 - taken) // 2 for side in shape[1:])
        sizes = (channels[1] * rows * columns, *widths)
        self.layers = nn.ModuleList(nn.Linear(*pair) for pair in pairwise(sizes))
        self.feature_dim = sizes[-1]
        self.head = nn.Linear(self.feature_dim, num_classes)

    def features(self, images: Tensor) -> Tensor:
        # ReLU after pooling gives the same values and gradients, at a quarter of the cost.
        hidden = F.relu(F.max_pool2d(self.conv1(images), 2))
        hidden = F.relu(F.max_pool2d(self.conv2(hidden), 2)).flatten(1)
        for layer in self.layers:
            hidden = F.relu(layer(hidden))
        return hidden


_LENET5 = partial(LeNet, (6, 16), 5, 0, (120, 84))
_DIGITS_CNN = partial(LeNet, (16, 32), 3, 1, (64,))
MODELS.add(ModelInfo("lenet5", _LENET5, "LeNet-5 with ReLU and max-pooling", min_image_size=16))
MODELS.add(ModelInfo("digits_cnn", _DIGITS_CNN, "small CNN for 8 x 8 digits", min_image_size=8))
