"""Local intrinsic dimensionality (Houle, SISAP 2017), as in FedCorr (Xu et al., CVPR 2022)."""

import torch
from torch import Tensor

EPSILON = 1e-6
MAX_DISTANCES_PER_CHUNK = 4_000_000  # 32 MB of float64


def lid(points: Tensor, num_neighbors: int = 20) -> Tensor:
    """LID of each row, float64: -k / (sum_j ln(r_j / (r_k + eps)) + eps), Eq. 2.

    r_1 to r_k are the distances to its k nearest rows. k is `num_neighbors`, at most the number of
    other rows. The value is 0 for k < 2 and for a row with an exact duplicate. Confident
    predictions lie close together, so distances are computed from float64 differences: the form
    |a|^2 + |b|^2 - 2ab would lose all digits.
    """
    k = min(num_neighbors, len(points) - 1)
    if k < 2:
        return torch.zeros(len(points), dtype=torch.float64)
    points = points.to(torch.float64)
    values = []
    for rows in points.split(max(MAX_DISTANCES_PER_CHUNK // len(points), 1)):
        distances = torch.cdist(rows, points, compute_mode="donot_use_mm_for_euclid_dist")
        nearest = distances.topk(k + 1, largest=False).values[:, 1:]  # without the row itself
        values.append(-k / ((nearest / (nearest[:, -1:] + EPSILON)).log().sum(1) + EPSILON))
    return torch.cat(values)
