"""The 9-layer CNN of Co-teaching (Han et al., NeurIPS 2018), also used by FedLSR, RoFL and LSG."""

import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.models.base import MODELS, BatchNorm, ImageClassifier, ModelInfo, Shape
from methods.core.params import parameters

# (output channels, padding) of the three convolutions of each block.
BLOCKS = (((128, 1),) * 3, ((256, 1),) * 3, ((512, 0), (256, 0), (128, 0)))


@parameters
class CNN9Params:
    dropout_in_eval: bool = False  # True: as in the official code of LSG, FedLSR and RoFL


class CNN9(ImageClassifier):
    """Nine 3x3 convolutions with batch normalization and LeakyReLU(0.01) in three blocks.

    Blocks 1 and 2 end with 2x2 max-pooling and channel dropout of 0.25. Block 3 has no padding. The
    feature vector is the spatial mean of its output.

    Deviations
    1. The official implementations call dropout without the training flag, so it stays active in
       evaluation. Here it is inactive, as the papers state, unless `dropout_in_eval` is set.
    """

    feature_dim = 128

    def __init__(self, num_classes: int, shape: Shape, dropout_in_eval: bool) -> None:
        super().__init__()
        self.dropout_in_eval = dropout_in_eval
        self.blocks = nn.ModuleList()
        in_channels = shape[0]
        for block in BLOCKS:
            layers: list[nn.Module] = []
            for channels, padding in block:
                convolution = nn.Conv2d(in_channels, channels, 3, padding=padding)
                layers += [convolution, BatchNorm(channels), nn.LeakyReLU(0.01)]
                in_channels = channels
            self.blocks.append(nn.Sequential(*layers))
        self.head = nn.Linear(self.feature_dim, num_classes)

    def features(self, images: Tensor) -> Tensor:
        use_dropout = self.training or self.dropout_in_eval
        hidden = images
        for block in self.blocks[:-1]:
            hidden = F.dropout2d(F.max_pool2d(block(hidden), 2), 0.25, training=use_dropout)
        features: Tensor = self.blocks[-1](hidden).mean((2, 3))
        return features


MODELS.add(ModelInfo("cnn9", CNN9, "9-layer CNN of Co-teaching and LSG", 28, CNN9Params))
