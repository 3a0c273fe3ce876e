"""The risk behind a state: the probability of the positive class of two, from sums over all samples.

The sums are over some 16,000 cells of the log-odds, cut at the edges of the bins, so that means and calibration errors
are exact. Otherwise the samples of a cell count as tied: at a probability of 10 % cells are a relative 0.15 % wide.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Unpack

import numpy as np
import torch
from torch import Tensor

from calibrant.checks import check_rates
from calibrant.evidence import Estimate, NetBenefit, Risk
from calibrant.evidence import risk as in_memory
from calibrant.evidence.decisions import Above, lowest_reaching
from calibrant.evidence.estimates import CHUNK, MAX_LEVELS, Draws, Levels, estimate_ranked
from calibrant.evidence.logistic import Outcomes, half_widths_of
from calibrant.metrics import Metric
from calibrant.metrics.states import Cells, Ranked, RankedCells, TopStatistic, effective_number
from calibrant.numerics.binning import bin_index, sums_by
from calibrant.predictions import Predictions, as_risk

_CELLS = RankedCells()
_ROUNDING = 1e-9  # of the mean of a cell


def ranked_at_means(mean: Tensor, right: Tensor, wrong: Tensor, *squares: Tensor | None) -> Ranked:
    """Return samples as tied at their mean confidences, rising, with the squared weights of all and of right ones."""
    return Ranked((mean / (1 - mean).clamp(min=1e-300)).log(), mean, right, wrong, None, None, *squares)


def sums_of_risk(samples: Predictions, n_bins: int) -> dict[str, Tensor]:
    """Return the sums over the cells of the risk, by name."""
    risks = as_risk(samples)
    # Both rise with the risk, so their sum tells a cell that an edge of the bins cuts from its other part.
    place = _CELLS.cell_of(risks.log_odds) + bin_index(risks.confidence, n_bins)
    n, mass = _CELLS.cells + n_bins, risks.mass
    masses = [("total", mass)] if risks.weights is None else [("total", mass), ("squared_weights", mass.square())]
    sums = {"confidence": sums_by(place, mass * risks.confidence, n)}
    for name, numbers in masses:
        sums |= {name: sums_by(place, numbers, n), f"{name}_of_positive": sums_by(place, numbers * risks.correct, n)}
    return sums


def ranked_risks(sums: Mapping[str, Tensor], n_bins: int) -> Ranked:
    """Return the samples of each cell as tied at their mean risk, and in the log-odds at the middle of the cell."""
    seen = sums["total"] > 0
    total, positive, confidence = (sums[name][seen] for name in ("total", "total_of_positive", "confidence"))
    risk = confidence / total
    cell = seen.nonzero()[:, 0] - bin_index(risk, n_bins)
    squared = (sums[name][seen] for name in ("squared_weights", "squared_weights_of_positive") if name in sums)
    return Ranked(Cells.middle(cell, _CELLS.cells), risk, positive, total - positive, confidence, None, *squared)


class _SpreadOfCells:
    """The spread of a regression on cells, by the samples in them, each of which moves it on its own."""

    def __init__(self, squares: Tensor, n: float) -> None:
        self._squares, self._n = squares, n

    def of(self, chosen: Tensor) -> "_SpreadOfCells":
        """Return that of some of the cells."""
        return _SpreadOfCells(self._squares[chosen], self._n)

    def half_widths(self, inputs: Tensor, curvature: Tensor, residual: Tensor, rows: Tensor) -> Tensor:
        """Return half the width of each interval, by the variance that also holds where no line fits."""
        hessian = (inputs * curvature[:, None]).T @ inputs
        changes = torch.linalg.solve(hessian, (residual[:, None] * inputs).T).T
        return half_widths_of(changes, rows, self._n, self._n - inputs.shape[1], self._squares)


def outcomes_of(ranked: Ranked) -> Outcomes:
    """Return the outcomes of cells, each twice: of its samples that are right, or positive, and of the others."""
    counts, squares = torch.cat([ranked.right, ranked.wrong]), torch.cat(_squares(ranked))
    occurred, some = torch.arange(2, dtype=torch.float64).flip(0).repeat_interleave(len(ranked.right)), counts > 0
    counts, squares = counts[some], squares[some]
    spread = _SpreadOfCells(squares / counts.square(), float(ranked.effective_n))
    return Outcomes(ranked.log_odds.double().repeat(2)[some], occurred[some], counts, spread)


def _squares(ranked: Ranked) -> tuple[Tensor, Tensor]:
    """Return the squared weights of the samples that are right, or positive, and of the others."""
    if ranked.squared_weights is None or ranked.squared_right is None:
        return ranked.right, ranked.wrong
    return ranked.squared_right, ranked.squared_weights - ranked.squared_right


def risk_with_cells(
    ranked: Ranked, metrics: Sequence[Metric], *, n_bins: int, **draws: Unpack[Draws]
) -> tuple[Risk, dict[str, Estimate]]:
    """Return the risk of ranked samples with other metrics of it, as :func:`calibrant.evidence.risk.risk_with` does."""
    needed = {metric.name: metric for metric in (*metrics, *in_memory.metrics_of_risk(n_bins))}
    estimates = estimate_risks(ranked, list(needed.values()), **draws)
    predicted, observed = estimates["confidence"].value, estimates["accuracy"].value
    gap, ratio, n = predicted - observed, observed / (predicted or math.nan), float(ranked.effective_n)
    place = in_memory.tenth_of_each(ranked.total)
    squares = ranked.total if ranked.squared_weights is None else ranked.squared_weights
    total, squared, right = (
        sums_by(place, numbers, in_memory.TENTHS) for numbers in (ranked.total, squares, ranked.right)
    )
    sums = (total, sums_by(place, ranked.total * ranked.confidence, in_memory.TENTHS), right)
    risk = Risk(
        predicted=estimates["confidence"],
        observed=estimates["accuracy"],
        difference=in_memory.difference_from(
            in_memory.with_interval(gap, _moved(ranked, ranked.confidence - gap, -1.0), n, n - 1),
            estimates["accuracy"],
            n,
        ),
        ratio=in_memory.with_interval(
            ratio, _moved(ranked, -ratio * ranked.confidence, 1.0) / (predicted**2 or 1), n, n - 1, of_logarithm=True
        ),
        ece=estimates["ece"],
        smece=estimates["smece"],
        auroc=estimates["auroc"],
        tenths=in_memory.groups_of(ranked.confidence, place, *sums, effective_number(total, squared)),
        curve=in_memory.curve_of(outcomes_of(ranked)),
    )
    return risk, {metric.name: estimates[metric.name] for metric in metrics}


def estimate_risks(ranked: Ranked, metrics: Sequence[Metric], *, resamples: int, seed: int) -> dict[str, Estimate]:
    """Estimate metrics of the risk."""
    values = dict[str, float]()
    for metric in metrics:
        assert isinstance(metric.statistic, TopStatistic)
        values[metric.name] = float(metric.value(metric.statistic.of_ranked(ranked)))

    def levels_of(bins: Iterable[int]) -> Levels:
        merged = ranked.merged(ranked.cells(MAX_LEVELS, bins=bins))
        return Levels(merged, _resampled(merged, resamples, seed))

    return estimate_ranked(metrics, values, ranked, levels_of, resamples=resamples, seed=seed)


def _moved(ranked: Ranked, of_each: Tensor, of_positive: float) -> float:
    """Return the sum of squares of how far samples move a mean, by so much each, and so much more if positive."""
    positive, others = _squares(ranked)
    return float(positive @ (of_each + of_positive).square() + others @ of_each.square()) / float(ranked.n) ** 2


def _resampled(ranked: Ranked, resamples: int, seed: int) -> Iterator[Ranked]:
    """Draw samples with replacement, some resamples at a time: their number at a level is about Poisson's."""
    rng, squares = np.random.default_rng([seed, 3]), _squares(ranked)
    masses = (ranked.right, ranked.wrong)
    trials = [(mass.square() / own.clamp(min=1e-300)).numpy() for mass, own in zip(masses, squares, strict=True)]
    weights = [own / mass.clamp(min=1e-300) for mass, own in zip(masses, squares, strict=True)]
    for start in range(0, resamples, CHUNK):
        size = (min(CHUNK, resamples - start), len(ranked.confidence))
        counts = [torch.from_numpy(rng.poisson(number, size)).double() for number in trials]
        right, wrong = (count * weight for count, weight in zip(counts, weights, strict=True))
        squared = None if ranked.squared_weights is None else right * weights[0] + wrong * weights[1]
        yield Ranked(ranked.log_odds, ranked.confidence, right, wrong, squared_weights=squared)


def decisions_of(ranked: Ranked, thresholds: Sequence[float], *, dtype: torch.dtype) -> tuple[NetBenefit, ...]:
    """Return the net benefit of acting on samples above each threshold, with Student's t intervals of a mean.

    They are at least as wide as those of the shares that they are made of, as in memory.
    """
    at = torch.tensor(check_rates(thresholds, "thresholds"), dtype=torch.float64)
    odds, reached = at / (1 - at), lowest_reaching(at, dtype).minimum(at * (1 - _ROUNDING))
    first = torch.searchsorted(ranked.confidence, reached)
    masses, squared = torch.stack([ranked.wrong, ranked.right]), torch.stack(_squares(ranked)[::-1])
    (below, treated), (squares_below, squares) = _divided(masses, first), _divided(squared, first)
    totals, total_squares = (below + treated)[:, :1], (squares_below + squares)[:, :1]
    n, size = float(totals.sum()), float(ranked.effective_n)

    def means(masses: Tensor, squares: Tensor, *values: Tensor | float) -> list[Estimate]:
        """Estimate the mean of these values of some negative and positive samples, (2, m), and 0 of all others."""
        mean = (values[0] * masses[0] + values[1] * masses[1]) / n
        others = (total_squares.sum() - squares.sum(0)).clamp(min=0) * mean**2
        moved = squares[0] * (values[0] - mean) ** 2 + squares[1] * (values[1] - mean) ** 2 + others
        return [
            in_memory.with_interval(*own, size, size - 1)
            for own in zip(mean.tolist(), (moved / n**2).tolist(), strict=True)
        ]

    benefits = (
        means(treated, squares, -odds, 1.0),
        means(totals.expand_as(treated), total_squares.expand_as(squares), -odds, 1.0),
        means(below, squares_below, odds, -1.0),
    )
    above = Above(treated[None], totals[:, 0][None], squares, total_squares[:, 0])
    return tuple(map(NetBenefit, at.tolist(), *above.widened(odds, *benefits), *above.shares()))


def _divided(columns: Tensor, first: Tensor) -> tuple[Tensor, Tensor]:
    """Return the sums of columns before these places, and from them on, (2, m) each."""
    before = torch.cat([columns.new_zeros(2, 1), columns.cumsum(1)], 1)
    after = torch.cat([columns.flip(1).cumsum(1).flip(1), columns.new_zeros(2, 1)], 1)
    return before[:, first], after[:, first]
