"""CORP: the accuracy at each confidence by isotonic regression, and the exact split of proper scores it gives.

A reliability diagram without bins or bandwidth. Isotonic regression of correctness on confidence has no free parameter;
its fit is what the confidence would have to be, were it calibrated without changing its order. Recalibrating to that
fit lowers every proper score by its miscalibration, and what separates the fit from the overall accuracy is its
discrimination: ``score = miscalibration − discrimination + uncertainty``.

Reference: Dimitriadis, Gneiting & Jordan (2021), Stable Reliability Diagrams for Probabilistic Classifiers, PNAS.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, Unpack, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from calibrant.checks import check_at_least
from calibrant.evidence.clusters import Clusters
from calibrant.evidence.intervals import draw_right, p_value
from calibrant.metrics.states import EXACT, Ranked
from calibrant.predictions import LABEL_FLOOR, Arrays, Predictions, TopLabel, as_predictions, counted_samples

# Distinct confidences that outcomes are redrawn at: with more, neighbours in rank are joined.
_CELLS = 16384
# The band is evaluated at about twice as many confidences: half even in rank, half even in confidence.
_NODES = 101
_TOGETHER = 25  # redraws
_Array = NDArray[np.float64]


class CorpSplit(NamedTuple):
    """A proper score of the top label: ``score = miscalibration − discrimination + uncertainty``, to rounding."""

    score: float
    miscalibration: float  # never negative; above zero by chance even for a calibrated model
    discrimination: float  # never negative; zero if the confidence is unrelated to correctness
    uncertainty: float  # score of the overall accuracy given as the confidence of every sample
    floor: float  # mean miscalibration of a calibrated model with these confidences
    p: float  # share of such models with at least this miscalibration


@final
@dataclass(frozen=True, eq=False)
class Corp:
    """The isotonic reliability curve with its consistency band, and the split of Brier score and log-loss.

    Blocks are ranges of confidence with one fitted accuracy; lines between them complete the curve. The band is where
    95 of 100 calibrated models with the same confidences would have their curve, pointwise.
    """

    low: Tensor  # (b,) lowest confidence of each block, rising
    high: Tensor  # (b,) highest
    count: Tensor  # (b,) samples, of weighted ones their effective number
    accuracy: Tensor  # (b,) rising
    confidence: Tensor  # (m,) where the band is evaluated, rising
    band_low: Tensor  # (m,)
    band_high: Tensor  # (m,)
    brier: CorpSplit  # (confidence − correct)², averaged over the samples
    nll: CorpSplit  # log-loss of correctness

    @property
    def points(self) -> tuple[Tensor, Tensor]:
        """The curve's corners, (2b,) each: confidence and accuracy at both ends of every block."""
        return torch.stack([self.low, self.high], 1).flatten(), self.accuracy.repeat_interleave(2)


def corp(*predictions: Predictions | TopLabel, redraws: int = 200, seed: int = 0, **arrays: Unpack[Arrays]) -> Corp:
    """Fit the accuracy as a non-decreasing function of confidence, and split Brier score and log-loss by it.

    The miscalibration is what no bins hide; but isotonic regression follows noise, so read it against its ``floor``.
    For one class instead of the top label, pass ``TopLabel(probability of the class, is of the class)``.

    Args:
        predictions: Logits and labels, or confidence and correctness.
        redraws: Redrawn outcomes behind band, floors and p-values.
        seed: Random seed of the redraws.
        arrays: The predictions as arrays by keyword.

    Example:
        >>> confidence = torch.linspace(0.5, 1, 1000, dtype=torch.float64)
        >>> correct = torch.rand(1000, generator=torch.Generator().manual_seed(0)) < confidence**3
        >>> split = corp(TopLabel(confidence, correct)).brier
        >>> round(split.score, 3), round(split.miscalibration - split.discrimination + split.uncertainty, 3)
        (0.272, 0.272)
        >>> split.miscalibration > 5 * split.floor
        True
    """
    check_at_least(redraws, 20, "redraws")
    samples = counted_samples(as_predictions(predictions, "corp", arrays))
    floored = isinstance(samples, TopLabel) or samples.given_as_probs
    clusters = Clusters.of(samples.top)
    return corp_of_ranked(EXACT(samples).ranked, floored=floored, redraws=redraws, seed=seed, clusters=clusters)


def corp_of_ranked(
    ranked: Ranked, *, floored: bool, redraws: int = 200, seed: int = 0, clusters: Clusters | None = None
) -> Corp:
    """Return :func:`corp` of ranked samples; ``floored`` if their log-loss has the floor of given probabilities."""
    cells = _Outcomes.of(ranked, floored=floored)
    starts, count, hits = _fit(cells.total, cells.right)
    ends = np.append(starts[1:], len(cells.total)) - 1
    # Redrawn outcomes are compared with those observed in the same cells: joining neighbours lowers both.
    cell, rng = ranked.cells(_CELLS), np.random.default_rng([seed, 4])
    coarse = _Outcomes.of(ranked.merged(cell), floored=floored)
    in_cells = coarse.scores(coarse.right, *_fit(coarse.total, coarse.right)[1:])
    draws: Iterable[_Array] = coarse.redraw(redraws, rng)
    if clusters is not None:
        place = cell[torch.searchsorted(ranked.log_odds, EXACT(clusters.top).log_odds)]
        draws = clusters.draw_right(place, len(coarse.total), redraws, rng).cpu().numpy()
    nodes, curves, redrawn = _redraw(coarse, redraws, draws)
    low, high = np.quantile(curves, [0.025, 0.975], axis=0)
    columns = {
        "low": cells.confidence[starts], "high": cells.confidence[ends], "count": count, "accuracy": hits / count,
        "confidence": nodes, "band_low": low, "band_high": high,
    }  # fmt: skip
    n, scores = count.sum(keepdims=True), cells.scores(cells.right, count, hits)
    uncertain = (of(n, hits.sum(keepdims=True)) / float(n[0]) for of in (_variance, _entropy))
    brier, nll = map(_split, scores, uncertain, in_cells, torch.from_numpy(redrawn).T)
    return Corp(brier=brier, nll=nll, **{name: torch.from_numpy(column) for name, column in columns.items()})


def _fit(total: _Array, right: _Array) -> tuple[NDArray[np.intp], _Array, _Array]:
    """Return where the blocks of the isotonic fit start, their samples and the right ones among them, (b,) each."""
    from scipy.optimize import isotonic_regression

    starts = isotonic_regression(right / total, weights=total).blocks[:-1]
    return starts, np.add.reduceat(total, starts), np.add.reduceat(right, starts)


class _Scores(NamedTuple):
    given: float  # of the confidences
    recalibrated: float  # of the isotonic fit

    @property
    def miscalibration(self) -> float:
        return max(0.0, self.given - self.recalibrated)  # below zero by rounding only


@dataclass(frozen=True)
class _Outcomes:
    """Distinct confidences, rising, with the samples at each and what a right and a wrong one cost there, (m,) each."""

    confidence: _Array
    total: _Array
    right: _Array
    cost_right: _Array  # log-loss
    cost_wrong: _Array
    squared_weights: _Array | None = None  # sum, where samples have weights; more if heavy ones have larger gaps

    @classmethod
    def of(cls, ranked: Ranked, *, floored: bool) -> "_Outcomes":
        log_odds = ranked.log_odds.double().cpu().numpy()
        costs = (np.logaddexp(0, -log_odds), np.logaddexp(0, log_odds))
        if floored:  # as the log-loss of given probabilities counts them
            costs = tuple(cost.clip(max=-math.log(LABEL_FLOOR)) for cost in costs)
        confidence, total, right = (
            column.double().cpu().numpy() for column in (ranked.confidence, ranked.total, ranked.right)
        )
        squares = None if ranked.squared_weights is None else ranked.squared_weights * ranked.excess_of_heavy
        return cls(confidence.clip(0, 1), total, right, *costs, None if squares is None else squares.cpu().numpy())

    def scores(self, right: _Array, count: _Array, hits: _Array) -> tuple[_Scores, _Scores]:
        """Return Brier score and log-loss for the numbers of right samples (m,), in blocks with these counts (b,)."""
        n, wrong = float(self.total.sum()), (self.total - right).clip(min=0)
        # Not by `@`: its threads would wait for each other, hundreds of times, where other programs are at work.
        brier = float((right * (1 - self.confidence) ** 2 + wrong * self.confidence**2).sum())
        nll = float((right * self.cost_right + wrong * self.cost_wrong).sum())
        return _Scores(brier / n, _variance(count, hits) / n), _Scores(nll / n, _entropy(count, hits) / n)

    def redraw(self, times: int, rng: np.random.Generator) -> Iterator[_Array]:
        """Draw how many samples at each confidence are right, were the confidences calibrated, (m,) each time."""
        single = self.total == 1
        chance, few = self.confidence[single].astype(np.float32), self.total[~single].astype(np.int64)[:, None]
        for start in range(0, times, _TOGETHER):
            size = min(_TOGETHER, times - start)
            if self.squared_weights is not None:
                yield from draw_right(self.total, self.squared_weights, self.confidence, rng, size)
                continue
            right = np.empty((size, len(single)))
            # Several times faster than binomials, whose setup in numpy serves all draws of one entry.
            right[:, single] = rng.random((size, len(chance)), dtype=np.float32) < chance
            right[:, ~single] = rng.binomial(few, self.confidence[~single][:, None], size=(len(few), size)).T
            yield from right


def _redraw(cells: _Outcomes, times: int, draws: Iterable[_Array]) -> tuple[_Array, _Array, _Array]:
    """Return nodes of confidence (m,), curves there (times, m), and the redrawn miscalibrations (times, 2)."""
    last = len(cells.confidence) - 1
    by_rank = np.searchsorted(cells.total.cumsum(), np.linspace(0, cells.total.sum(), _NODES)).clip(0, last)
    spaced = np.linspace(cells.confidence[0], cells.confidence[-1], _NODES)
    nodes = np.unique(np.concatenate([by_rank, np.searchsorted(cells.confidence, spaced).clip(0, last)]))
    curves, parts = np.empty((times, len(nodes))), np.empty((times, 2))
    for draw, right in enumerate(draws):
        starts, count, hits = _fit(cells.total, right)
        curves[draw] = (hits / count)[np.searchsorted(starts, nodes, side="right") - 1]
        parts[draw] = [scores.miscalibration for scores in cells.scores(right, count, hits)]
    return cells.confidence[nodes], curves, parts


def _split(scores: _Scores, uncertainty: float, in_cells: _Scores, redrawn: Tensor) -> CorpSplit:
    discrimination = max(0.0, uncertainty - scores.recalibrated)
    p = p_value(in_cells.miscalibration, redrawn)
    return CorpSplit(scores.given, scores.miscalibration, discrimination, uncertainty, float(redrawn.mean()), p)


def _variance(count: _Array, hits: _Array) -> float:
    """Return the summed Brier score of samples whose confidence is the share of hits in their block."""
    return float((hits * (count - hits) / count).sum())


def _entropy(count: _Array, hits: _Array) -> float:
    """Return their summed log-loss."""
    from scipy.special import xlogy

    return float(-(xlogy(hits, hits / count) + xlogy(count - hits, 1 - hits / count)).sum())
