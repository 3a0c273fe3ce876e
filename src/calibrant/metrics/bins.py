"""Sums by bin of confidence or probability, and mass on a grid: states of fixed size."""

from dataclasses import dataclass
from typing import Self, final

from torch import Tensor

from calibrant.metrics.ranking import Ranked
from calibrant.metrics.states import Sums
from calibrant.numerics.binning import bin_ends, bin_index, counts_by, sums_between, sums_by
from calibrant.predictions import TopLabel

__all__ = ["BinMoments", "Bins", "ClassBins", "Grid"]


@final
@dataclass(frozen=True, eq=False)
class Bins(Sums):
    """Per-bin sums over equal-width bins of confidence."""

    count: Tensor  # (..., b)
    confidence: Tensor  # (..., b) sum, not mean
    correct: Tensor  # (..., b) sum, not mean

    @classmethod
    def gather(cls, top: TopLabel, n_bins: int) -> Self:
        """From rows in any order."""
        index = bin_index(top.confidence, n_bins)
        count, correct = counts_by(index, top.correct, n_bins)
        return cls(count, sums_by(index, top.confidence, n_bins), correct)

    @classmethod
    def of_ranked(cls, ranked: Ranked, n_bins: int) -> Self:
        """From ranked answers, whose bins lie one after another."""
        ends = bin_ends(ranked.confidence, n_bins)
        columns = (ranked.total, ranked.total * ranked.confidence, ranked.right)
        return cls(*(sums_between(ends, column) for column in columns))


@final
@dataclass(frozen=True, eq=False)
class BinMoments(Sums):
    """As :class:`Bins`, with the second moments inside each bin."""

    count: Tensor  # (..., b)
    confidence: Tensor  # (..., b) sum, not mean
    correct: Tensor  # (..., b) sum, not mean
    confidence_squared: Tensor  # (..., b)
    confidence_correct: Tensor  # (..., b)

    @classmethod
    def gather(cls, top: TopLabel, n_bins: int) -> Self:
        """From rows in any order."""
        bins, index = Bins.gather(top, n_bins), bin_index(top.confidence, n_bins)
        columns = (top.confidence.square(), top.confidence * top.correct)
        return cls(*bins.tensors(), *(sums_by(index, column, n_bins) for column in columns))

    @classmethod
    def of_ranked(cls, ranked: Ranked, n_bins: int) -> Self:
        """From ranked answers, whose bins lie one after another."""
        bins, ends = Bins.of_ranked(ranked, n_bins), bin_ends(ranked.confidence, n_bins)
        columns = (ranked.total * ranked.confidence.square(), ranked.right * ranked.confidence)
        return cls(*bins.tensors(), *(sums_between(ends, column) for column in columns))


@final
@dataclass(frozen=True, eq=False)
class ClassBins(Sums):
    """Per-class, per-bin sums over equal-width bins of probability."""

    count: Tensor  # (..., k, b)
    probability: Tensor  # (..., k, b) sum, not mean
    hits: Tensor  # (..., k, b) rows of that class


@final
@dataclass(frozen=True, eq=False)
class Grid(Sums):
    """Right answers and all answers, spread over evenly spaced nodes of 0..1 (each row over its two neighbours)."""

    total: Tensor  # (..., nodes)
    right: Tensor  # (..., nodes)

    @classmethod
    def gather(cls, confidence: Tensor, right: Tensor, total: Tensor, nodes: int) -> Self:
        """From confidences (m,) with right and all answers at each, (..., m)."""
        position = confidence * (nodes - 1)
        lower = position.long().clamp_(max=nodes - 2)
        share = position - lower
        # Both neighbours get their share: mass and mean confidence of every row are kept exactly.
        return cls(
            *(
                sums_by(lower, mass * (1 - share), nodes) + sums_by(lower + 1, mass * share, nodes)
                for mass in (total, right)
            )
        )
