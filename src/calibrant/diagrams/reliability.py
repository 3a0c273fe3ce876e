"""Accuracy against confidence: in bins, and as a curve without bins."""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from calibrant.diagrams.bins import ReliabilityBins
from calibrant.diagrams.smoothing import nodes, rows_under_kernel, smoothed
from calibrant.metrics.binned import ECE
from calibrant.metrics.smooth import SmECE
from calibrant.metrics.states import Grid
from calibrant.predictions import Predictions, TopLabel

__all__ = ["ReliabilityCurve", "ReliabilityDiagram", "reliability"]

# A smoothed accuracy of fewer rows than this says little, and is not shown.
_FEWEST_ROWS = 10
# Every fourth node: half the narrowest kernel that the smooth calibration error can choose.
_EVERY = 4


@final
@dataclass(frozen=True, eq=False)
class ReliabilityCurve:
    """Accuracy as a function of confidence, smoothed at the width of the smooth calibration error (smece).

    Reference: Błasiok & Nakkiran (2023), Smooth ECE, arXiv:2309.12236, Section 3.
    """

    confidence: Tensor  # (m,) evenly spaced over 0..1
    accuracy: Tensor  # (m,) NaN where fewer than ten rows support it
    density: Tensor  # (m,) of confidence; its area is 1
    width: float  # of the kernel, which is also the smece


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
        >>> diagram.bins.gap.tolist(), diagram.bins.count.tolist()
        ([-0.15000000000000002], [4.0])
    """
    metric = ECE(n_bins)
    bins = metric.statistic(predictions)
    n = bins.count.sum()
    return ReliabilityDiagram(
        bins=ReliabilityBins.from_sums(bins.count, bins.confidence, bins.correct),
        curve=_curve(SmECE().statistic(predictions)),
        n=int(n),
        accuracy=float(bins.correct.sum() / n),
        confidence=float(bins.confidence.sum() / n),
        ece=float(metric.value(bins)),
    )


def _curve(grid: Grid) -> ReliabilityCurve:
    width = float(SmECE().value(grid))
    rows, right = smoothed(torch.stack([grid.total, grid.right]).cpu(), width)
    supported = rows_under_kernel(rows, width) >= _FEWEST_ROWS
    accuracy = torch.where(supported, right / rows.clamp(min=1e-300), torch.nan).clamp(0, 1)
    return ReliabilityCurve(
        confidence=nodes(rows.shape[-1])[::_EVERY],
        accuracy=accuracy[::_EVERY],
        density=(rows / grid.total.sum().cpu())[::_EVERY],
        width=width,
    )
