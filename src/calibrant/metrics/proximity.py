"""Calibration error by confidence and proximity: what cancels among rows of one confidence, and should not.

A plain function, and no :class:`~calibrant.metrics.Metric`: it needs a number beside the predictions, each row's
proximity.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from calibrant.checks import as_tensor, check_at_least, check_bins, check_finite, check_known, check_real
from calibrant.errors import InputError
from calibrant.numerics.binning import bin_index
from calibrant.predictions import Predictions, TopLabel

__all__ = ["piece"]

Floats: TypeAlias = NDArray[np.float64]


def piece(
    predictions: Predictions | TopLabel,
    proximity: object,
    *,
    n_bins: int = 15,
    proximity_bins: int = 10,
    bins: Literal["equal_mass", "equal_width"] = "equal_mass",
) -> float:
    """Proximity-informed expected calibration error.

    Rows are put into bins of confidence, and each bin is divided by proximity. Where near rows are trusted too little
    and far ones too much, the two cancel in the calibration error of a bin, and here they do not. Never below the
    error over the same bins of confidence alone (``ace`` for equal mass, ``ece`` for equal width); much of the
    difference is noise with few rows, since there are ``n_bins * proximity_bins`` parts. So compare it between maps on
    the same rows, and do not read it by itself.

    Formula: Σ_b Σ_h |B_bh|/n · |acc(B_bh) − conf(B_bh)|
    Estimator: plug-in; parts cut by rank, so that they differ in size by at most one, and tied rows are exchangeable.
    Bias: upward, more than that of ece: about 0.8 Σ_bh √(|B_bh| acc (1 − acc))/n on calibrated data.
    Cost: O(n log n).

    Reference: Xiong et al. (2023), Proximity-Informed Calibration for Deep Neural Networks, arXiv:2306.04590, eq. 4,
    with the bins of Appendix C.

    Args:
        predictions: The rows.
        proximity: How close each row lies to the calibration rows, larger is closer, (n,): for example
            ``fitted.proximity(features)`` of a fitted :class:`~calibrant.maps.ProximityMap`, or
            :func:`calibrant.numerics.neighbours.proximity`.
        n_bins: Bins of confidence.
        proximity_bins: Parts of each, of equal numbers of rows.
        bins: Kind of confidence bins: of equal mass, as in the paper, or of equal width, as in ``ece``.

    Raises:
        InputError: If the proximity is not one finite number a row.

    Example:
        >>> rows = TopLabel([0.7] * 20, [True] * 5 + [False] * 5 + [True] * 9 + [False])
        >>> far_and_near = [0.2] * 10 + [0.8] * 10  # half of the far rows are right, and nine tenths of the near
        >>> round(piece(rows, far_and_near, n_bins=1, proximity_bins=2), 6), round(piece(rows, [0.5] * 20), 6)
        (0.2, 0.0)
    """
    check_bins(n_bins)
    check_at_least(proximity_bins, 1, "proximity_bins")
    check_known(bins, ("equal_mass", "equal_width"), "bins")
    top = predictions.top
    nearness = check_real(as_tensor(proximity, "proximity"), "proximity")
    if nearness.shape != top.confidence.shape:
        raise InputError(f"proximity must be one number a row, shape ({len(top)},); got shape {tuple(nearness.shape)}.")
    check_finite(nearness, "proximity")
    gap = (top.confidence - top.correct.double()).cpu().numpy()
    near = nearness.double().cpu().numpy()
    if bins == "equal_mass":
        members = _equal_mass(top.log_odds.double().cpu().numpy(), n_bins)
    else:
        members = _by_index(bin_index(top.confidence.clone(), n_bins).cpu().numpy(), n_bins)
    return sum(_divided_gap(near[rows], gap[rows], share, proximity_bins) for rows, share in members) / len(top)


def _equal_mass(scores: Floats, n_bins: int) -> Iterator[tuple[NDArray[np.intp], Floats]]:
    """Rows of each bin, and which share of each: a group of ties that spans an edge is in both bins, in parts."""
    order = np.argsort(scores, kind="stable")
    rising = scores[order]
    first, last = np.searchsorted(rising, rising, side="left"), np.searchsorted(rising, rising, side="right")
    edges = len(scores) * np.arange(n_bins + 1) // n_bins
    for low, high in pairwise(edges):
        if low == high:
            continue
        inside = slice(first[low], last[high - 1])
        overlap = np.minimum(last[inside], high) - np.maximum(first[inside], low)
        yield order[inside], overlap / (last[inside] - first[inside])


def _by_index(index: NDArray[np.integer], n_bins: int) -> Iterator[tuple[NDArray[np.intp], Floats]]:
    """Rows of each bin that has any, in whole."""
    for each in range(n_bins):
        rows = np.flatnonzero(index == each)
        if rows.size:
            yield rows, np.ones(rows.size)


def _divided_gap(proximity: Floats, gap: Floats, share: Floats, parts: int) -> float:
    """Sum of the absolute gaps of parts of equal mass in order of proximity."""
    order = np.argsort(proximity, kind="stable")
    ends = np.flatnonzero(np.diff(proximity[order], append=np.inf) > 0)
    mass = np.cumsum(share[order])[ends]
    drift = np.cumsum((gap * share)[order])[ends]
    # Among ties the drift grows evenly: that is what exchangeable means. Whole rows stay whole.
    edges = mass[-1] * np.arange(parts + 1) / parts
    if (share == 1).all():
        edges = np.floor(edges + 1e-9)
    at_edges = np.interp(edges, np.concatenate([[0.0], mass]), np.concatenate([[0.0], drift]))
    return float(np.abs(np.diff(at_edges)).sum())
