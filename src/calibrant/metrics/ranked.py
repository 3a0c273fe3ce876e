"""Calibration errors read off the ranking: equal-mass bins, the largest cumulative gap, and the kernel error."""

from dataclasses import dataclass
from typing import ClassVar, Unpack, final

import torch
from torch import Tensor

from calibrant.checks import check_bins, check_positive
from calibrant.metrics.base import Family
from calibrant.metrics.families import RankMetric
from calibrant.metrics.ranking import TopState
from calibrant.paper import Paper
from calibrant.predictions import Arrays, Predictions, TopLabel

__all__ = ["ACE", "KS", "MMCE", "ace", "ks", "mmce"]

_NGUYEN = Paper("Nguyen & O'Connor", 2015, "Posterior Calibration and Exploratory Analysis for Natural Language "
                "Processing Models", "arXiv:1508.05154")  # fmt: skip
_GUPTA = Paper("Gupta et al.", 2021, "Calibration of Neural Networks Using Splines", "arXiv:2006.12800")
_MMCE = Paper("Kumar et al.", 2018, "Trainable Calibration Measures for Neural Networks from Kernel Mean Embeddings",
              "https://proceedings.mlr.press/v80/kumar18a.html")  # fmt: skip


@final
@dataclass(frozen=True)
class ACE(RankMetric):
    """Adaptive calibration error: as ece, with bins that hold equally many rows.

    Formula: Σ_b |B_b|/n · |acc(B_b) − conf(B_b)|, sizes differing by at most one
    Estimator: plug-in; bins cut by rank, each tied row carrying its tie group's mean correctness, so that the order
        of the rows cannot matter.
    Bias: upward, as ece.
    Cost: O(n log n); exact state 8 bytes a row, or ``ranks=RankedCells()`` in bounded memory.
    """

    name: ClassVar[str] = "ace"
    title: ClassVar[str] = "Adaptive calibration error"
    family: ClassVar[Family] = "calibration"
    paper: ClassVar[Paper] = _NGUYEN
    lower_is_better: ClassVar[bool | None] = True
    n_bins: int = 15

    def __post_init__(self) -> None:
        check_bins(self.n_bins)

    def value(self, state: TopState) -> Tensor:
        """Sum of the bins' gaps."""
        ranked = state.ranked
        rank = ranked.total_up_to
        drift = ranked.gap.cumsum(-1, dtype=torch.float64)
        # Inside a tie group the drift grows evenly: that is what exchangeable ties mean.
        steps = torch.arange(self.n_bins + 1, dtype=torch.float64, device=rank.device)
        edges = (ranked.n[..., None] * steps / self.n_bins).floor()
        at_edges = _interpolate(rank, drift, edges)
        return at_edges.diff(dim=-1).abs().sum(-1) / ranked.n


@final
@dataclass(frozen=True)
class KS(RankMetric):
    """Kolmogorov-Smirnov calibration error: the largest cumulative gap over the rows sorted by confidence. No bins.

    Formula: max_j |Σ_{i ≤ j} (a_i − c_i)|/n, i in order of confidence
    Estimator: plug-in; tied rows count together.
    Bias: upward, about 1.25·√(mean c(1 − c)/n) on calibrated data. Gaps that change sign along the confidence cancel.
    Cost: O(n log n); exact state 8 bytes a row, or ``ranks=RankedCells()`` in bounded memory.
    """

    name: ClassVar[str] = "ks"
    title: ClassVar[str] = "Kolmogorov-Smirnov error"
    family: ClassVar[Family] = "calibration"
    paper: ClassVar[Paper] = _GUPTA
    lower_is_better: ClassVar[bool | None] = True

    def value(self, state: TopState) -> Tensor:
        """Largest absolute drift."""
        ranked = state.ranked
        return ranked.gap.cumsum(-1, dtype=torch.float64).abs_().amax(-1) / ranked.n


@final
@dataclass(frozen=True)
class MMCE(RankMetric):
    """Maximum mean calibration error: the largest correlation of the gaps with a smooth function of confidence.

    Formula: √(Σ_ij (a_i − c_i)(a_j − c_j) exp(−|c_i − c_j|/0.4))/n
    Estimator: the V-statistic of the paper, exact in O(n log n): on sorted confidences the kernel factors into
        exp(−c_j/h)·exp(c_i/h), so a running sum replaces the double one.
    Bias: upward, about √(mean c(1 − c)/n) on calibrated data.
    Cost: O(n log n).
    """

    name: ClassVar[str] = "mmce"
    title: ClassVar[str] = "Maximum mean calibration error"
    family: ClassVar[Family] = "calibration"
    paper: ClassVar[Paper] = _MMCE
    lower_is_better: ClassVar[bool | None] = True
    width: float = 0.4

    def __post_init__(self) -> None:
        check_positive(self.width, "width")

    def value(self, state: TopState) -> Tensor:
        """Root of the double sum."""
        ranked = state.ranked
        gap, confidence = ranked.gap.double(), ranked.confidence.double()
        double_sum = gap.square().sum(-1)
        # Σ_{i<j} g_i g_j exp(−(c_j − c_i)/h), piece by piece along the confidence, so that no exponential overflows.
        piece = (confidence / (_REACH * self.width)).floor()
        running, reached = torch.zeros_like(double_sum), confidence[0]
        for rows in torch.unique_consecutive(piece, return_counts=True)[1].tolist():
            here, confidence = confidence[:rows], confidence[rows:]
            part, gap = gap[..., :rows], gap[..., rows:]
            rising = torch.exp((here - here[0]) / self.width)
            running = running * torch.exp((reached - here[0]) / self.width)
            summed = (part * rising).cumsum(-1)
            before = running[..., None] + summed - part * rising
            double_sum = double_sum + 2 * (part / rising * before).sum(-1)
            running, reached = running + summed[..., -1], here[0]
        return double_sum.clamp(min=0).sqrt() / ranked.n


# Kernel widths that one piece of the running sum may span.
_REACH = 300


def _interpolate(x: Tensor, y: Tensor, at: Tensor) -> Tensor:
    """Piecewise linear through (0, 0) and (x, y), (..., m), at (..., b); x may lack the leading dimensions of y."""
    right = torch.searchsorted(x.contiguous(), at.contiguous()).clamp(max=x.shape[-1] - 1)
    left = (right - 1).clamp(min=0)
    first, leading = right == 0, (*y.shape[:-1], -1)
    x0 = torch.where(first, 0.0, x.gather(-1, left))
    y0 = torch.where(first, 0.0, y.gather(-1, left.expand(leading)))
    x1, y1 = x.gather(-1, right), y.gather(-1, right.expand(leading))
    share = (at - x0) / (x1 - x0).clamp(min=1e-12)
    return y0 + share.clamp(0, 1) * (y1 - y0)


def ace(*predictions: Predictions | TopLabel, n_bins: int = 15, **arrays: Unpack[Arrays]) -> float:
    """Calibration error over equal-mass bins (:class:`ACE`).

    Example:
        >>> ace(TopLabel([0.6] * 10, [True] * 5 + [False] * 5), n_bins=5)  # whatever the order of the rows
        0.1
    """
    return ACE(n_bins)(*predictions, **arrays)


def ks(*predictions: Predictions | TopLabel, **arrays: Unpack[Arrays]) -> float:
    """Kolmogorov-Smirnov calibration error (:class:`KS`)."""
    return KS()(*predictions, **arrays)


def mmce(*predictions: Predictions | TopLabel, **arrays: Unpack[Arrays]) -> float:
    """Maximum mean calibration error (:class:`MMCE`)."""
    return MMCE()(*predictions, **arrays)
