"""Means of a Platt curve over bins of equal mass, for one score or one a class: what scaling-binning fits."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from calibrant.errors import FitError
from calibrant.numerics.certificate import Certificate
from calibrant.numerics.equal_mass import equal_mass_edges
from calibrant.numerics.logistic import LogisticFit, Targets, fit_logistic

__all__ = ["BinnedPlatt", "binned_platt"]


class BinnedPlatt(NamedTuple):
    """Steps of a Platt curve for each line of scores: edges (b - 1,) and probabilities (b,)."""

    lines: list[tuple[Tensor, Tensor]]
    certificate: Certificate


def binned_platt(
    scores: Tensor, labels: Tensor, classes: Sequence[int], parts: Sequence[Tensor], n_bins: int
) -> BinnedPlatt:
    """Fit a Platt curve to each line, cut its scores into bins, and take the mean of the curve in each.

    Args:
        scores: Log-odds, (c, n).
        labels: Shape (n,).
        classes: Which label is a hit for each line.
        parts: Rows for the curves, for the edges and for the means.
        n_bins: The most bins.

    Raises:
        FitError: If a curve has no optimum.
    """
    for_curve, for_edges, for_means = (part.to(scores.device) for part in parts)
    fitted = _platt(scores[:, for_curve], labels[for_curve], torch.tensor(classes, device=scores.device))
    lines = []
    for line, weights in zip(scores, fitted.weights, strict=True):
        # Bins of equal mass of the curve are those of the score: the curve keeps the order or turns it round.
        edges = equal_mass_edges(line[for_edges], n_bins)
        means = _bin_means(edges, line[for_means], weights)
        # A bin that none of the third part falls into has rows of the second.
        spare = _bin_means(edges, line[for_edges], weights)
        lines.append((edges, torch.where(means.isnan(), spare, means)))
    return BinnedPlatt(lines, fitted.certificate())


def _platt(scores: Tensor, labels: Tensor, classes: Tensor) -> LogisticFit:
    """A slope and a shift for each line, (c, 2)."""
    hits = (labels == classes[:, None]).sum(dim=1).double()
    misses = len(labels) - hits
    # Differs from the paper: Platt's own targets, a little off 0 and 1, so that there is an optimum even where every
    # row is right, or a class has none.
    targets = Targets(labels, classes, hit=(hits + 1) / (hits + 2), miss=1 / (misses + 2))
    fitted = fit_logistic(scores, targets, lambda s: torch.stack([s, torch.ones_like(s)], dim=1))
    if not fitted.found.all():
        line = int((~fitted.found).nonzero()[0])
        raise FitError(
            f"the Platt curve of class {int(classes[line])} must have an optimum; none was reached in "
            f"{fitted.steps} steps (gradient {float(fitted.gradient[line]):.2g}). Look for scores of enormous size."
        )
    return fitted


def _bin_means(edges: Tensor, scores: Tensor, weights: Tensor) -> Tensor:
    """Mean of the curve in each bin, (b,); not a number where a bin is empty."""
    scores = scores.double()
    place = torch.searchsorted(edges, scores)
    sums = torch.bincount(place, weights=(weights[0] * scores + weights[1]).sigmoid(), minlength=len(edges) + 1)
    return sums / torch.bincount(place, minlength=len(edges) + 1)
