"""Import of torchvision that also works with a CPU build of torch.

The compiled library of the torchvision wheel does not load there, and the import fails because the
operator `torchvision::nms` is unknown. Models, datasets and transforms work if the schemas of the
two missing operators are defined. The detection operators remain unavailable.

Usage: `from benchmarks.data.torchvision_import import torchvision`.
"""

import torch

try:
    import torchvision
except RuntimeError as error:
    if "torchvision::nms" not in str(error):
        raise
    for operator in ("nms", "qnms"):
        torch.library.define(
            f"torchvision::{operator}",
            "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
        )
    import torchvision

import torchvision.transforms.v2.functional

__all__ = ["torchvision"]
