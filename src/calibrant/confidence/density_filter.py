"""Which rows of a class lie where it is dense: its outliers, and labels gone wrong, are left out."""

import torch
from torch import Tensor

from calibrant.confidence.nearest_rows import nearest_row_distances

__all__ = ["dense_rows"]


def dense_rows(points: Tensor, *, neighbours: int, alpha: float) -> Tensor:
    """Mark all but the share ``alpha`` of the rows that are farthest from their neighbours.

    A row's own place is not among its neighbours; one that is there twice is its own neighbour's neighbour, at distance
    0. Rows as dense as the last one kept are kept too, so that the order of rows plays no part, and at least one row
    always stays. With fewer rows than neighbours, as many as there are count.

    Args:
        points: Of one class, (n, d), float64, n >= 1.
        neighbours: The density is that of the distance to this one.
        alpha: At least 0 and below 1.

    Returns:
        Shape (n,), bool.

    Example:
        >>> points = torch.tensor([[0.0], [0.1], [0.2], [9.0]], dtype=torch.float64)
        >>> dense_rows(points, neighbours=1, alpha=0.25).tolist()
        [True, True, True, False]

    Reference:
        Jiang et al. (2018), Algorithm 1.
    """
    n = len(points)
    dropped = int(alpha * n + 1e-9)  # 0.3 times 10 is less than 3 in binary
    if dropped == 0:
        return torch.ones(n, dtype=torch.bool, device=points.device)
    # Differs from the public code: it counts a row as the first of its own neighbours.
    radius = nearest_row_distances(points, points, min(neighbours, n - 1) + 1)[:, -1]
    return radius <= radius.sort().values[n - dropped - 1]
