"""Exact distances to the nearest rows of a class, by whichever exact search is the faster one.

Among many rows in few dimensions that is SciPy's tree. In many dimensions a tree looks at nearly every row, one pair at
a time; the search by matrix products that proximities use is several times faster, and runs on a GPU. For 1,000 rows
among 40,000 of ten classes, on two cores: 0.04 s by tree and 0.3 s by products in 4 dimensions, 0.5 s and 0.3 s in 16,
some 10 s and 1.5 s in 512, where scikit-learn's own search by products takes as long as this one.

Products find the nearest row, and differences then measure how far it is. Where rows lie apart by more than 1e7 times
the distance to their nearest, products round that away, and another row that is about as near may be taken.
"""

import torch
from torch import Tensor

from calibrant.numerics.neighbours import blocks_of, nearest_distances

__all__ = ["nearest_row_distances"]

_FEW_DIMENSIONS = 8
_MANY_PAIRS = 1 << 20  # for fewer it does not pay to plant a tree


def nearest_row_distances(points: Tensor, reference: Tensor, neighbours: int) -> Tensor:
    """Euclidean distances to the nearest rows of the reference, rising, (m, neighbours), float64.

    A point that is itself a row of the reference has that row for its nearest, at distance 0.

    Args:
        points: Shape (m, d), float64, finite.
        reference: Shape (r, d), float64, finite, with r >= neighbours.
        neighbours: How many.

    Example:
        >>> line = torch.tensor([[0.0], [1.0], [3.0]], dtype=torch.float64)
        >>> nearest_row_distances(line, line, 2).tolist()
        [[0.0, 1.0], [0.0, 1.0], [0.0, 2.0]]
    """
    is_flat = points.shape[1] <= _FEW_DIMENSIONS and points.device.type == "cpu"
    if is_flat and len(points) * len(reference) >= _MANY_PAIRS:
        from scipy.spatial import KDTree

        distances, _ = KDTree(reference.numpy()).query(points.numpy(), k=range(1, neighbours + 1), workers=-1)
        return torch.from_numpy(distances)
    # Products lose the digits of what lies far from 0; distances do not depend on where that is.
    centre = reference.mean(dim=0)
    points, reference = points - centre, reference - centre
    blocks = blocks_of(len(points), reference, neighbours)
    return torch.cat([nearest_distances(points[rows], reference, neighbours) for rows in blocks])
