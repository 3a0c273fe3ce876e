"""The choice of a calibrator by cross-validation."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, Self, TypeAlias, final

import torch
from torch import Tensor

from calibrant.calibrators.affine import (
    StructuredMatrixScaling,
    StructuredVectorScaling,
    TemperatureScaling,
    Uncalibrated,
)
from calibrant.calibrators.base import Calibrator, fold_positions, try_fit
from calibrant.calibrators.ensembles import LogOpinionPool
from calibrant.calibrators.odir import DirichletODIR
from calibrant.calibrators.order_preserving import OrderInvariant, OrderPreserving
from calibrant.checks import check_at_least
from calibrant.errors import FitError
from calibrant.evidence import side_of
from calibrant.metrics import NLL, Brier
from calibrant.numerics.binning import bin_index, sums_by
from calibrant.numerics.softmax import Wanted
from calibrant.predictions import Predictions

Score: TypeAlias = Literal["nll", "brier"]

_METRICS = {"nll": NLL(), "brier": Brier()}
# Two-sided 95 %.
_Z = 1.959963984540054
# Standard errors by which another candidate must lead the default: of ten candidates, the largest lead that is noise
# seldom exceeds three.
_LEAD = 3.0


@final
@dataclass(frozen=True)
class CrossValidatedDifference:
    """A mean difference over samples with its 95 % interval; NaN where there is none.

    The maps of different folds share most of their samples, which makes the intervals a little too narrow.

    ``noise`` is a standard error that one-sided outliers do not enlarge: it comes from the smaller of the two
    semideviations, upwards and downwards. So a method that is far worse on a single sample does not pass for as good as
    the best because that sample makes the standard error large.
    """

    value: float = math.nan
    low: float = math.nan
    high: float = math.nan
    noise: float = math.nan

    @classmethod
    def between(
        cls, first: Tensor, second: Tensor, counts: Tensor | None = None, clusters: Tensor | None = None
    ) -> Self:
        """Return first minus second, sample by sample, (n,) each; ``counts`` weigh the samples."""
        change = first - second
        counts = torch.ones_like(change) if counts is None else counts
        share = counts / counts.sum()
        mean = float(share @ change)
        parts = torch.stack([share * (change - mean), share * change])  # of the samples, or of their clusters
        if clusters is not None:
            codes = clusters.unique(return_inverse=True)[1]
            parts = sums_by(codes, parts, int(codes.max()) + 1)
        n = parts.shape[1]
        half = _Z * math.sqrt(float(parts[0].square().sum()) * n / max(n - 1, 1))
        squares = (float(side.square().sum()) for side in (parts[1].clamp(min=0), parts[1].clamp(max=0)))
        return cls(mean, mean - half, mean + half, math.sqrt(2 * min(squares)))

    @property
    def standard_error(self) -> float:
        """Standard error of the mean difference."""
        return (self.high - self.low) / (2 * _Z)

    def __str__(self) -> str:
        return f"{self.value:+.4f} ({self.low:+.4f} to {self.high:+.4f})"


_UNKNOWN = CrossValidatedDifference()


@final
@dataclass(frozen=True)
class CandidateResult:
    """One candidate: its score on samples it was not fitted on, NaN if it could not be fitted.

    A candidate that was dropped after some folds has the score of the best plus its difference in those folds.
    Differences from the best and from the default candidate include half a pseudo-sample (see :func:`rank`).
    """

    name: str
    calibrator: Calibrator
    index: int  # among the candidates as they were given
    score: float = math.nan
    to_best: CrossValidatedDifference = _UNKNOWN  # its score minus the best
    to_uncalibrated: CrossValidatedDifference = _UNKNOWN  # its score minus that without calibration: below 0 it helps
    to_temperature: CrossValidatedDifference = _UNKNOWN  # its score minus that of temperature scaling
    to_default: CrossValidatedDifference = _UNKNOWN  # its score minus that of the default candidate
    other_to_uncalibrated: CrossValidatedDifference = _UNKNOWN  # in the other proper score: brier for nll
    ece: float = math.nan
    to_lowest_ece: CrossValidatedDifference = _UNKNOWN
    folds: int = 0  # in which it was tried
    eligible: bool = True  # whether it may be chosen
    failure: str | None = None


@final
@dataclass(frozen=True)
class Ranking:
    """The candidates, lowest score first, those that could not be fitted last."""

    score: Score
    folds: int
    n: int
    results: tuple[CandidateResult, ...]
    default_index: int | None = None  # of the default candidate; None if there is none or it could not be fitted

    @property
    def fitted(self) -> tuple[CandidateResult, ...]:
        """The candidates that have a score."""
        return tuple(result for result in self.results if result.failure is None)

    @property
    def finalists(self) -> tuple[CandidateResult, ...]:
        """The candidates that were tried in all folds."""
        return tuple(result for result in self.fitted if result.folds == self.folds)

    @property
    def best(self) -> CandidateResult:
        """The finalist with the lowest score."""
        return self.finalists[0]

    @property
    def default(self) -> CandidateResult | None:
        """The default candidate: chosen unless another is clearly better."""
        return next((result for result in self.results if result.index == self.default_index), None)

    @property
    def chosen(self) -> CandidateResult:
        """The candidate to take.

        The default candidate, unless another is lower by more than three standard errors: among many the lowest score
        is partly luck. If there is a mean of the default candidate and its partners, it is taken in place of any.
        Without a default, the simplest candidate that is no more than one standard error above the best.

        Standard errors are those of the paired differences, which are far smaller than that of either score. Above the
        best, a candidate's own outliers do not count as noise (:class:`CrossValidatedDifference`).
        """
        eligible = tuple(result for result in self.finalists if result.eligible) or self.finalists
        default = self.default
        if default is None or default not in eligible:
            near_best = [result for result in eligible if result.to_best.value <= result.to_best.noise]
            return min(near_best or eligible[:1], key=lambda result: result.index)
        leading = [result for result in eligible if result.to_default.value < -_LEAD * result.to_default.standard_error]
        lowest = min((default, *leading), key=lambda result: result.to_default.value)
        for result in eligible:
            if isinstance(result.calibrator, LogOpinionPool) and lowest.calibrator in result.calibrator.members:
                return result
        return lowest

    @property
    def temperature_is_enough(self) -> bool:
        """Whether temperature scaling helps, and the chosen candidate, another one, is not better than it.

        Better by the rule of :func:`~calibrant.comparison.compare`, :func:`~calibrant.evidence.side_of`: beyond
        noise and by enough to matter.
        """
        taken = self.chosen
        temperature = next(
            (result for result in self.finalists if isinstance(result.calibrator, TemperatureScaling)), None
        )
        if temperature is None or isinstance(taken.calibrator, Uncalibrated | TemperatureScaling):
            return False
        return self._is_better(temperature, temperature.to_uncalibrated) and not self._is_better(
            taken, taken.to_temperature
        )

    def _is_better(self, result: CandidateResult, change: CrossValidatedDifference) -> bool:
        error = change.standard_error
        p = math.erfc(abs(change.value) / (error * math.sqrt(2))) if error > 0 else math.nan  # two-sided
        numbers = {"value": change.value, "low": change.low, "high": change.high, "p": p}
        return side_of(_METRICS[self.score], baseline=result.score - change.value, **numbers) == "better"

    @property
    def other_score(self) -> Score:
        """The proper score that does not decide."""
        return "brier" if self.score == "nll" else "nll"

    @property
    def scores_disagree(self) -> bool:
        """Whether the chosen candidate is worse than no calibration by the other proper score, beyond noise."""
        return self.chosen.to_uncalibrated.value < 0 < self.chosen.other_to_uncalibrated.low

    @property
    def lowest_ece(self) -> CandidateResult:
        """The candidate that the expected calibration error would choose."""
        return min(self.finalists, key=lambda result: result.ece)

    @property
    def ece_misleads(self) -> bool:
        """Whether the ECE picks, beyond noise, a candidate that is worse by the proper score, beyond noise."""
        return self.chosen.to_lowest_ece.low > 0 and self.lowest_ece.to_best.low > 0


_BINS = 15  # of the calibration error
# Pseudo-samples that are added to every candidate's log-loss, labelled with the runner-up class. (Jeffreys' prior adds
# half a failure.) No error among n samples does not rule out one later. It matters with a hundred samples or fewer.
_PSEUDO_SAMPLES = 0.5
# The default candidate and its partners have weights e^(-loss / 4), with the total loss of held-out samples in nats:
# far apart if the samples decide, and about equal if they cannot. Below the second number times the largest: left out.
_WEIGHT_TEMPERATURE, _MIN_WEIGHT = 4.0, 0.02
# With more samples methods that differ by less than matters could be distinguished; the method taken is fitted on all.
_MOST = 100_000
# The first, a costly method, is tried only if the second, which learns a part of the same, leads the third (None: the
# default candidate).
_PREREQUISITES: tuple[tuple[type[Calibrator], type[Calibrator], type[Calibrator] | None], ...] = (
    (OrderPreserving, OrderInvariant, None),
    (DirichletODIR, StructuredMatrixScaling, StructuredVectorScaling),
)


def rank(
    predictions: Predictions,
    candidates: Sequence[Calibrator],
    *,
    score: Score = "nll",
    folds: int = 5,
    seed: int = 0,
    default: Calibrator | None = None,
    partners: Sequence[Calibrator] = (),
) -> Ranking:
    """Cross-validate the candidates and rank them by a proper score; the uncalibrated model is always among them.

    All candidates have the same folds, so that differences are paired sample by sample. In a fold in which it cannot be
    fitted, a candidate leaves the predictions unchanged; one that cannot be fitted in most folds is left out. The
    uncalibrated model is never chosen if probabilities are exactly 0: its log-loss is infinite as soon as one of those
    is the label's, which no number of samples rules out. For the same reason half a pseudo-sample, labelled with the
    runner-up class, is added to the log-loss by which candidates are compared.

    With a default candidate, those given after it are dropped after the first fold in which they do not lead it: what
    is behind on a fifth of the samples seldom ends far ahead on all. Of more than 100,000 samples, as many are drawn.
    The default candidate's partners are tried in all folds, unless they are far behind; then the mean of all of these,
    weighted by their scores, is ranked as well. Without a default, the first near the best is chosen of candidates
    from simple to complex. There must be two samples a fold, and as many clusters as folds, if any.

    Example:
        >>> logits = torch.randn(100, 3, generator=torch.Generator().manual_seed(0))
        >>> rank(Predictions(logits, logits.argmax(1)), [Uncalibrated()]).chosen.name
        'uncalibrated'
    """
    check_at_least(folds, 2, "folds")
    if len(predictions) < 2 * folds:
        raise FitError(
            f"choosing a method needs at least two samples a fold; got {len(predictions)} samples for {folds} folds. "
            "Use fewer folds, or gather more samples."
        )
    if not any(isinstance(candidate, Uncalibrated) for candidate in candidates):
        candidates = (Uncalibrated(), *candidates)
    if len(predictions) > _MOST:
        drawn = torch.randperm(len(predictions), generator=torch.Generator().manual_seed(seed))[:_MOST]
        predictions = predictions[drawn.to(predictions.labels.device)]
    predictions = predictions.with_positive_weights()
    folds = min(folds, predictions.n_clusters or folds)
    averaged = (default, *partners, Uncalibrated()) if partners else ()
    tried = [_OutOfFold(method, predictions, score, is_averaged=method in averaged) for method in candidates]
    uncalibrated = next(candidate for candidate in tried if isinstance(candidate.calibrator, Uncalibrated))
    uncalibrated.eligible = predictions.zero_cells is None or not predictions.zero_cells.cells
    first = None if default is None else tried[list(candidates).index(default)]
    for others, held_out in fold_positions(predictions.labels, folds, seed, predictions.clusters):
        parts = predictions.part(others), predictions[held_out], held_out
        uncalibrated.try_fold(*parts, uncalibrated)
        for candidate in tried:
            if candidate is uncalibrated or candidate.dropped:
                continue
            if reason := _why_not_tried(candidate, tried, first):
                candidate.failures.append(reason)
                candidate.dropped = True
                continue
            candidate.try_fold(*parts, uncalibrated)
            candidate.dropped = _is_behind(candidate, tried, first, partners)
    first = _with_pool(tried, first, partners, predictions)
    return _ranked(tried, first, uncalibrated, folds)


class _OutOfFold:
    """The scores of one candidate on the held-out samples of the folds so far.

    ``is_averaged``: its log-probabilities are kept, because they may be averaged with another candidate's.
    """

    def __init__(
        self, calibrator: Calibrator, predictions: Predictions, score: Score, *, is_averaged: bool = False
    ) -> None:
        self.calibrator, self.name, self.score = calibrator, calibrator.expression, score
        n, zeros = len(predictions), partial(predictions.logits.new_zeros, dtype=torch.float64)
        self.log_probs = zeros(predictions.logits.shape if is_averaged else (0, 0))
        # Per sample: the score, the score with the pseudo-sample, the other score, confidence and correctness.
        self.columns = zeros((5, n))
        self.scores, self.smoothed_scores, self.other_scores, self.confidence, self.correct = self.columns
        self.seen = torch.zeros(n, dtype=torch.bool, device=predictions.logits.device)
        counts, self.size, self.clusters = predictions.sample_counts, predictions.effective_size, predictions.clusters
        self.counts = torch.ones_like(self.scores) if counts is None else counts
        self.folds, self.dropped, self.eligible = 0, False, True
        self.failures: list[str] = []

    @property
    def failure(self) -> str | None:
        """Why it has no score."""
        return self.failures[0] if 2 * len(self.failures) > self.folds else None

    def try_fold(
        self, fit_part: Predictions, held_out: Predictions, positions: Tensor, uncalibrated: "_OutOfFold"
    ) -> None:
        """Fit on the samples outside a fold, and score those inside it; without a map they are left unchanged."""
        self.folds += 1
        self.seen[positions] = True
        # Warnings of a fold are dropped: the fit on all samples warns again if there is still a reason.
        trial = try_fit(self.calibrator.fit_without_scores, fit_part, held_out)
        failure = trial.failure
        if trial.transformed is not None:
            self.take(trial.transformed, positions)
            if not math.isfinite(float(self.scores[positions].sum())):
                failure = f"its {self.score} was not finite on samples held out."
        if failure is not None:
            self.failures.append(failure)
            self.columns[:, positions] = uncalibrated.columns[:, positions]
            if len(self.log_probs):
                self.log_probs[positions] = uncalibrated.log_probs[positions]

    def take(self, mapped: Predictions, positions: Tensor | slice) -> None:
        """Keep the scores of held-out samples."""
        self.seen[positions] = True
        rows = mapped.softmax_rows(Wanted(squares=True))
        nll, brier = rows.nll().double(), rows.brier().double()
        scores, self.other_scores[positions] = (nll, brier) if self.score == "nll" else (brier, nll)
        self.scores[positions] = self.smoothed_scores[positions] = scores
        if self.score == "nll":
            runner_up = mapped.log_probs.double().topk(2).values[:, 1]
            self.smoothed_scores[positions] -= _PSEUDO_SAMPLES / self.size * runner_up
        self.confidence[positions], self.correct[positions] = mapped.confidence, mapped.correct.double()
        if len(self.log_probs):
            self.log_probs[positions] = mapped.log_probs.double()

    def leads(self, other: "_OutOfFold") -> bool:
        """Whether its mean score is lower on the samples it has seen."""
        return self.loss_to(other) < 0

    def has_negligible_weight(self, other: "_OutOfFold") -> bool:
        """Whether it would have next to no weight in a mean with the other."""
        return self.loss_to(other) > -_WEIGHT_TEMPERATURE * math.log(_MIN_WEIGHT)

    def loss_to(self, other: "_OutOfFold") -> float:
        """Return by how much its summed score is higher, on the samples that both have seen."""
        seen = self.seen & other.seen
        return float((self.smoothed_scores - other.smoothed_scores)[seen] @ self.counts[seen])

    def mean(self, column: Tensor) -> float:
        """Return the mean of a column over the samples seen."""
        counts = self.counts[self.seen]
        return float(column[self.seen] @ counts / counts.sum())

    def calibration_gaps(self) -> Tensor:
        """Numbers whose mean is the ECE: correctness minus confidence, with the sign of the sample's bin, (n,)."""
        index = bin_index(self.confidence[self.seen], _BINS).long()
        gap = (self.correct - self.confidence)[self.seen]
        return gap * sums_by(index, gap * self.counts[self.seen], _BINS).sign()[index]


def _why_not_tried(candidate: _OutOfFold, tried: Sequence[_OutOfFold], default: _OutOfFold | None) -> str | None:
    """Return a reason if a cheaper method has shown that an untried candidate will not help."""
    for costly, cheaper, than in _PREREQUISITES:
        simpler = _first(tried, cheaper)
        baseline = default if than is None else _first(tried, than)
        if candidate.folds or not isinstance(candidate.calibrator, costly) or simpler is None or baseline is None:
            continue
        if default is not None and simpler.folds and not simpler.leads(baseline):
            return f"not tried, since {simpler.name}, a simpler kind of it, does not lead {baseline.name}."
    return None


def _is_behind(
    candidate: _OutOfFold, tried: Sequence[_OutOfFold], default: _OutOfFold | None, partners: Sequence[Calibrator]
) -> bool:
    """Whether the folds so far are reason enough not to try a candidate in the others."""
    if default is None or tried.index(candidate) <= tried.index(default):
        return False
    if candidate.calibrator in partners:
        return candidate.has_negligible_weight(default)
    return not candidate.leads(default)


def _with_pool(
    tried: list[_OutOfFold], first: _OutOfFold | None, partners: Sequence[Calibrator], predictions: Predictions
) -> _OutOfFold | None:
    """Add the mean of the default candidate and its partners, and return the new default candidate.

    Those that would have next to no weight are left out; if one is left, there is no mean, and it is the default.
    """
    if first is None or first.failure:
        return first
    averaged = [candidate for candidate in tried if candidate is first or candidate.calibrator in partners]
    able = [
        candidate for candidate in averaged if candidate.eligible and not candidate.dropped and not candidate.failure
    ]
    best = min(able, key=lambda candidate: candidate.loss_to(first))
    members = [candidate for candidate in able if not candidate.has_negligible_weight(best)]
    if len(members) > 1:
        losses = torch.tensor([candidate.loss_to(best) for candidate in members], dtype=torch.float64)
        weights = (-losses / _WEIGHT_TEMPERATURE).softmax(dim=0)
        mean = torch.stack([candidate.log_probs for candidate in members], dim=-1) @ weights.to(first.log_probs)
        pool = LogOpinionPool(tuple(candidate.calibrator for candidate in members), tuple(weights.tolist()))
        pooled = _OutOfFold(pool, predictions, first.score)
        pooled.take(predictions.with_logits(mean.log_softmax(dim=1), normalised=True), slice(None))
        pooled.folds = first.folds
        tried.append(pooled)
    return first if first in members else best


def _first(tried: Sequence[_OutOfFold], kind: type[Calibrator]) -> _OutOfFold | None:
    return next((candidate for candidate in tried if isinstance(candidate.calibrator, kind)), None)


def _ranked(tried: Sequence[_OutOfFold], default: _OutOfFold | None, uncalibrated: _OutOfFold, folds: int) -> Ranking:
    finalists = [candidate for candidate in tried if candidate.failure is None and candidate.folds == folds]
    best = min(finalists, key=lambda candidate: candidate.mean(candidate.smoothed_scores))
    counts = best.counts
    lowest = min((candidate.calibration_gaps() for candidate in finalists), key=lambda gaps: float(gaps @ counts))
    default = default if default in finalists else None
    temperature = _first(finalists, TemperatureScaling)

    def result_of(index: int, candidate: _OutOfFold) -> CandidateResult:
        if candidate.failure is not None:
            return CandidateResult(candidate.name, candidate.calibrator, index, failure=candidate.failure)
        seen, gaps = candidate.seen, candidate.calibration_gaps()
        clusters = None if candidate.clusters is None else candidate.clusters[seen]
        between = partial(CrossValidatedDifference.between, counts=counts[seen], clusters=clusters)
        scores, smoothed = candidate.scores[seen], candidate.smoothed_scores[seen]
        return CandidateResult(
            candidate.name,
            candidate.calibrator,
            index,
            score=best.mean(best.scores) + candidate.mean(candidate.scores - best.scores),
            to_best=between(smoothed, best.smoothed_scores[seen]),
            to_uncalibrated=between(scores, uncalibrated.scores[seen]),
            to_temperature=_UNKNOWN if temperature is None else between(scores, temperature.scores[seen]),
            to_default=_UNKNOWN if default is None else between(smoothed, default.smoothed_scores[seen]),
            other_to_uncalibrated=between(candidate.other_scores[seen], uncalibrated.other_scores[seen]),
            ece=float(gaps @ counts[seen] / counts[seen].sum()),
            to_lowest_ece=between(gaps, lowest) if candidate.folds == folds else _UNKNOWN,
            folds=candidate.folds,
            eligible=candidate.eligible,
        )

    results = [result_of(index, candidate) for index, candidate in enumerate(tried)]
    results.sort(key=lambda result: (math.isnan(result.score), result.to_best.value))
    default_index = None if default is None else tried.index(default)
    return Ranking(uncalibrated.score, folds, len(uncalibrated.seen), tuple(results), default_index)
