"""The one place that imports torchvision, so that it also works beside a CPU build of torch.

The native library of the torchvision wheel does not load there, and the import stops because `torchvision::nms` is
unknown. Defining the schemas of the two missing operators is enough for models, data sets and transforms; the detection
operators stay unavailable.

Use `from benchmarks.torchvision_import import torchvision`.
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
