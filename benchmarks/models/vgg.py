"""VGG-11 without batch normalization.

Paper: Simonyan and Zisserman, "Very deep convolutional networks", ICLR 2015.
"""

import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.models.base import MODELS, ImageClassifier, ModelInfo, Shape

# Configuration A of the paper: channels of the 3x3 convolutions before each max-pooling.
STAGES = ((64,), (128,), (256, 256), (512, 512), (512, 512))


class VGG11(ImageClassifier):
    """Five convolution stages, average pooling to 7x7, two layers of width 4096.

    Layout and initialization are those of torchvision.

    Deviations
    1. FedCorr's official code has 1000 outputs. Here the head has one output per class.
    """

    feature_dim = 4096

    def __init__(self, num_classes: int, shape: Shape) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        in_channels = shape[0]
        for stage in STAGES:
            for channels in stage:
                layers += [nn.Conv2d(in_channels, channels, 3, padding=1), nn.ReLU()]
                in_channels = channels
            layers.append(nn.MaxPool2d(2))
        self.convolutions = nn.Sequential(*layers)
        self.fc1 = nn.Linear(512 * 7 * 7, 4096)
        self.fc2 = nn.Linear(4096, self.feature_dim)
        self.head = nn.Linear(self.feature_dim, num_classes)
        for parameter in self.parameters():
            if parameter.dim() == 4:
                nn.init.kaiming_normal_(parameter, mode="fan_out", nonlinearity="relu")
            elif parameter.dim() == 2:
                nn.init.normal_(parameter, 0, 0.01)
            else:
                nn.init.zeros_(parameter)

    def features(self, images: Tensor) -> Tensor:
        hidden = pool_to_7x7(self.convolutions(images)).flatten(1)
        hidden = F.dropout(F.relu(self.fc1(hidden)), 0.5, self.training)
        return F.dropout(F.relu(self.fc2(hidden)), 0.5, self.training)


def pool_to_7x7(maps: Tensor) -> Tensor:
    """Average pooling. Its gradient is not deterministic on CUDA, so usual sizes do without it."""
    if maps.shape[2:] == (1, 1):  # of 32x32 images
        return maps.expand(-1, -1, 7, 7)
    return maps if maps.shape[2:] == (7, 7) else F.adaptive_avg_pool2d(maps, 7)


MODELS.add(ModelInfo("vgg11", VGG11, "VGG-11 without batch normalization", min_image_size=32))
