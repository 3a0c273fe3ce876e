"""How confident the right and the wrong answers are."""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from calibrant.diagrams.smoothing import nodes, smoothed_density, thinned, usual_width
from calibrant.metrics.bins import Grid
from calibrant.metrics.detection import AUROC
from calibrant.metrics.statistics import Gridded
from calibrant.predictions import Predictions, TopLabel

__all__ = ["ConfidenceDensity", "confidence_density"]


@final
@dataclass(frozen=True, eq=False)
class ConfidenceDensity:
    """Densities of confidence on a common grid; each has area 1, or is 0 where there is no such answer."""

    confidence: Tensor  # (m,) evenly spaced over 0..1
    right: Tensor  # (m,)
    wrong: Tensor  # (m,)
    n_right: int
    n_wrong: int
    median_right: float  # NaN without right answers
    median_wrong: float  # NaN without wrong answers
    auroc: float  # how well the two are told apart; NaN without one of them
    width: float  # of the kernel


def confidence_density(predictions: Predictions | TopLabel) -> ConfidenceDensity:
    """Smoothed densities of confidence for right and for wrong answers.

    The further apart the two, the better confidence tells what to trust. Two curves that coincide mean that confidence
    is no help, however well calibrated. The kernel is a Gaussian reflected at 0 and 1 of width 1.06 s n^(-1/5), the
    same for both; s is the standard deviation of all confidences.

    Example:
        >>> density = confidence_density(TopLabel([0.9, 0.8, 0.6], [True, True, False]))
        >>> density.n_right, density.median_wrong, density.auroc
        (2, 0.6, 1.0)
    """
    grid = Gridded()(predictions)
    grid = Grid(grid.total.cpu(), grid.right.cpu())
    width = usual_width(grid)
    masses = torch.stack([grid.right, grid.total - grid.right])
    densities = thinned(smoothed_density(masses / masses.sum(-1, keepdim=True).clamp(min=1), width))
    top = predictions.top
    n_right = int(top.correct.sum())
    return ConfidenceDensity(
        confidence=thinned(nodes(grid.total.shape[-1])),
        right=densities[0],
        wrong=densities[1],
        n_right=n_right,
        n_wrong=len(top) - n_right,
        median_right=_median(top.confidence[top.correct]),
        median_wrong=_median(top.confidence[~top.correct]),
        auroc=AUROC()(predictions),
        width=width,
    )


def _median(values: Tensor) -> float:
    return float(values.median()) if values.numel() else float("nan")
