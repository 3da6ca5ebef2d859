"""Local intrinsic dimensionality of a set of points (Houle, SISAP 2017; as FedCorr uses it: Xu et al., CVPR 2022, eq. 2)."""

import torch
from torch import Tensor

EPSILON = 1e-6
DISTANCES_AT_ONCE = 4_000_000  # 32 MB of float64


def lid(points: Tensor, neighbours: int = 20) -> Tensor:
    """LID of every row with respect to its nearest rows: -k / (sum_j ln(r_j / (r_k + eps)) + eps), float64.

    k is the number of neighbours in use, at most all other rows; with fewer than two the ratio says nothing and the value is 0. A row with an exact
    duplicate has a distance 0, whose logarithm makes its value 0. Predictions of a sure model lie so close together that distances are taken from
    differences in float64; the product form |a|^2 + |b|^2 - 2ab would lose all digits.
    """
    used = min(neighbours, len(points) - 1)
    if used < 2:
        return torch.zeros(len(points), dtype=torch.float64)
    points = points.to(torch.float64)
    values = []
    for rows in points.split(max(DISTANCES_AT_ONCE // len(points), 1)):
        distances = torch.cdist(rows, points, compute_mode="donot_use_mm_for_euclid_dist")
        nearest = distances.topk(used + 1, largest=False).values[
            :, 1:
        ]  # the first is the row itself
        values.append(-used / ((nearest / (nearest[:, -1:] + EPSILON)).log().sum(1) + EPSILON))
    return torch.cat(values)
