"""Accuracy against confidence: in bins, and as a curve without bins."""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from calibrant.diagrams.bins import ReliabilityBins
from calibrant.diagrams.smoothing import local_accuracy, nodes, smoothed_density, thinned, usual_width
from calibrant.metrics.binned import ECE
from calibrant.metrics.bins import Grid
from calibrant.metrics.smooth import SmECE
from calibrant.predictions import Predictions, TopLabel

__all__ = ["ReliabilityCurve", "ReliabilityDiagram", "reliability"]

# A smoothed accuracy of fewer rows than this says little, and is not shown.
_FEWEST_ROWS = 20


@final
@dataclass(frozen=True, eq=False)
class ReliabilityCurve:
    """Accuracy as a function of confidence, by local linear regression with a Gaussian kernel: no bins.

    A model calibrated but for noise has the diagonal. The kernel's width is the rule of thumb 1.06 s n^(-1/5), as in
    kde_ece. That of the smooth calibration error (Błasiok & Nakkiran 2023) is not used: it grows with the error, so
    that at .14 it hid an accuracy of 41 % behind one of 70 %, and shrinks with it, so that a calibrated model's curve
    was all noise.
    """

    confidence: Tensor  # (m,) evenly spaced over 0..1
    accuracy: Tensor  # (m,) NaN outside the confidences that occur, and where fewer than twenty rows support it
    density: Tensor  # (m,) of confidence; its area is 1
    width: float  # of the kernel


@final
@dataclass(frozen=True, eq=False)
class ReliabilityDiagram:
    """What a reliability diagram shows."""

    bins: ReliabilityBins
    curve: ReliabilityCurve
    n: int
    accuracy: float
    confidence: float
    ece: float
    smece: float


def reliability(predictions: Predictions | TopLabel, *, n_bins: int = 15) -> ReliabilityDiagram:
    """How often the model is right when it is so confident.

    Bars under the diagonal are overconfidence. Judge a bar by its consistency band and its count, not by its gap
    alone: thin bins stray far by chance.

    Args:
        predictions: Either record.
        n_bins: Number of equal-width bins.

    Returns:
        The non-empty bins, the curve without bins, and the numbers for the title.

    Example:
        >>> diagram = reliability(TopLabel([0.9, 0.9, 0.9, 0.9], [True, True, True, False]))
        >>> [round(gap, 6) for gap in diagram.bins.gap.tolist()], diagram.bins.count.tolist()
        ([-0.15], [4.0])
    """
    metric = ECE(n_bins)
    bins = metric.statistic(predictions)
    grid = SmECE().statistic(predictions)
    n = bins.count.sum()
    return ReliabilityDiagram(
        bins=ReliabilityBins.from_sums(bins.count, bins.confidence, bins.correct),
        curve=_curve(Grid(grid.total.cpu(), grid.right.cpu())),
        n=int(n),
        accuracy=float(bins.correct.sum() / n),
        confidence=float(bins.confidence.sum() / n),
        ece=float(metric.value(bins)),
        smece=float(SmECE().value(grid)),
    )


def _curve(grid: Grid) -> ReliabilityCurve:
    width = usual_width(grid)
    accuracy, rows = local_accuracy(grid, width)
    t = nodes(accuracy.shape[-1])
    occurring = t[grid.total > 0]
    shown = (rows >= _FEWEST_ROWS) & (t >= occurring[0]) & (t <= occurring[-1])
    return ReliabilityCurve(
        confidence=thinned(t),
        accuracy=thinned(torch.where(shown, accuracy, torch.nan)),
        density=thinned(smoothed_density(grid.total / grid.total.sum(), width)),
        width=width,
    )
