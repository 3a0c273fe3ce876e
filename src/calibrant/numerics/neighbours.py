"""Nearest neighbours among rows of features, exactly, and how close a row is to them."""

from collections.abc import Iterator
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from calibrant.errors import InputError
from calibrant.numerics.softmax import full_precision, to_working_precision

Closeness: TypeAlias = Literal["exp_mean_distance", "mean_exp_square"]

_BLOCK = 1 << 24  # numbers that a block of samples may need at once


def unit_rows(features: Tensor) -> Tensor:
    """Return rows of length one, (..., d) -> (..., d), in float32 or float64; a row of zeros stays zero."""
    precise = to_working_precision(features)
    # Divided by the largest entry first: squares of very large or small numbers would overflow or underflow.
    largest = precise.abs().amax(dim=-1, keepdim=True)
    return torch.nn.functional.normalize(precise / torch.where(largest > 0, largest, 1.0), dim=-1)


def nearest_distances(points: Tensor, reference: Tensor, neighbours: int, *, skip: Tensor | None = None) -> Tensor:
    """Return Euclidean distances of points (m, d) to the nearest rows of the reference (r, d), rising, (m, neighbours).

    They are ranked by inner products and then measured by differences, which keep their digits however close. ``skip``,
    (m,), is the row of the reference that is the point itself and no neighbour.
    """
    # |a - b|² = |a|² - 2 (a·b - |b|²/2), and |a|² is the same for all b.
    with full_precision(points):
        nearness = torch.addmm(reference.square().sum(dim=1) / -2, points, reference.T)
    if skip is not None:
        nearness = nearness.scatter(1, skip[:, None], -torch.inf)
    nearest = nearness.topk(neighbours, dim=1).indices
    distances = (points.unsqueeze(1) - reference[nearest]).square().sum(dim=2).sqrt()
    return distances.sort(dim=1).values


def proximity(
    features: Tensor,
    reference: Tensor | None = None,
    *,
    neighbours: int = 10,
    closeness: Closeness = "exp_mean_distance",
) -> Tensor:
    """Return how close each row lies to its nearest neighbours, in 0..1, (m,): 1 where they are all the same point.

    The features, (m, d), are divided by their lengths first. Neighbours are searched in the reference, (r, d), by
    default among the features themselves, each row without itself. The closeness is exp(−mean distance), as in the
    paper's text, or the mean of exp(−distance²), as in its public code.

    Example:
        >>> corners = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
        >>> [round(value, 4) for value in proximity(corners, neighbours=1).tolist()]  # the last is √2 from the others
        [1.0, 1.0, 0.2431]
    """
    points = unit_rows(features)
    others = points if reference is None else unit_rows(reference).to(points)
    least = neighbours + (reference is None)
    if len(others) < least:
        raise InputError(
            f"{least} rows or more are needed for {neighbours} neighbours; got {len(others)}. Ask for fewer."
        )
    parts = []
    for rows in blocks_of(len(points), others, neighbours):
        own = torch.arange(len(points), device=points.device)[rows] if reference is None else None
        parts.append(closeness_of(nearest_distances(points[rows], others, neighbours, skip=own), closeness))
    return torch.cat(parts)


def closeness_of(distances: Tensor, closeness: Closeness) -> Tensor:
    """Return one number for the distances to the neighbours, (..., neighbours) -> (...)."""
    if closeness == "exp_mean_distance":
        return (-distances.mean(dim=-1)).exp()
    return (-distances.square()).exp().mean(dim=-1)


def blocks_of(n: int, reference: Tensor, neighbours: int) -> Iterator[slice]:
    """Yield slices of samples to look up at once, so that memory stays bounded."""
    r, d = reference.shape
    step = max(1, _BLOCK // max(r, neighbours * d))
    for start in range(0, n, step):
        yield slice(start, min(start + step, n))
