"""Combinations of calibrators: chains, weighted means, and a ranking by cross-validation."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Literal, Self, TypeAlias, final

import torch
from torch import Tensor

from calibrant.calibrators.affine import (
    StructuredMatrixScaling,
    StructuredVectorScaling,
    TemperatureScaling,
    Uncalibrated,
)
from calibrant.calibrators.base import Calibrator, Fitted, assign_folds, check_calibrators, try_fit
from calibrant.calibrators.binning import ZHANG
from calibrant.calibrators.odir import DirichletODIR
from calibrant.calibrators.order_preserving import OrderInvariant, OrderPreserving
from calibrant.checks import check_at_least
from calibrant.errors import FitError, InputError
from calibrant.evidence import side_of
from calibrant.maps import ChainMap, LogMixture
from calibrant.metrics import NLL, Brier
from calibrant.numerics.binning import bin_index, sums_by
from calibrant.numerics.softmax import Wanted
from calibrant.paper import Paper
from calibrant.predictions import Predictions


@final
@dataclass(frozen=True)
class Chain(Calibrator):
    """Fit the first method, apply it, fit the next on the result, and so on.

    Temperature scaling before an isotonic or binning method gives the latter a better scale to work on (the
    composition of Mix-n-Match). All are fitted on the same samples, so a long chain of flexible methods overfits. On
    the command line a chain is written ``temperature+isotonic``.

    Formula: q = (m_r ∘ … ∘ m_1)(z)
    Samples: as many as the most demanding of its methods needs.

    Args:
        steps: The methods, in order.
    """

    name = "chain"
    title = "Methods one after the other"
    family = "composition"
    paper = ZHANG

    steps: tuple[Calibrator, ...] = (Uncalibrated(),)

    def __post_init__(self) -> None:
        check_calibrators(self.steps, "steps")
        if not self.steps:
            raise InputError("a chain must have at least one step; got none.")

    def _fit(self, predictions: Predictions) -> Fitted:
        maps = []
        for step in self.steps:
            maps.append(step.fit_without_scores(predictions))
            predictions = maps[-1].transform(predictions)
        return Fitted(ChainMap(maps, n_classes=predictions.n_classes))


@final
@dataclass(frozen=True)
class Pool(Calibrator):
    """Fit several methods and average their log-probabilities, with weights above 0 that sum to one."""

    name = "pool"
    title = "Mean of several methods"
    family = "composition"
    paper = Paper(
        "Genest & Zidek",
        1986,
        "Combining Probability Distributions: A Critique and an Annotated Bibliography",
        "doi:10.1214/ss/1177013825",
        "the logarithmic opinion pool",
    )

    members: tuple[Calibrator, ...]
    weights: tuple[float, ...]

    def _fit(self, predictions: Predictions) -> Fitted:
        maps = [member.fit_without_scores(predictions) for member in self.members]
        weights = torch.tensor(self.weights, dtype=torch.float64, device=predictions.logits.device)
        return Fitted(LogMixture(weights, maps, n_classes=predictions.n_classes))


def label(calibrator: Calibrator) -> str:
    """Its name with the options that differ from the defaults, as the command line accepts it.

    Example:
        >>> label(Chain((Uncalibrated(), Uncalibrated())))
        'uncalibrated+uncalibrated'
    """
    if isinstance(calibrator, Chain):
        return "+".join(label(step) for step in calibrator.steps)
    if isinstance(calibrator, Pool):
        return " & ".join(label(member) for member in calibrator.members)
    unusual = [
        f"{option.name}={_option(getattr(calibrator, option.name))}"
        for option in fields(calibrator)  # type: ignore[arg-type]  # concrete calibrators are dataclasses
        if getattr(calibrator, option.name) != option.default
    ]
    return f"{calibrator.name}({','.join(unusual)})" if unusual else calibrator.name


def _option(value: object) -> str:
    if isinstance(value, Calibrator):
        return label(value)
    return f"[{','.join(_option(item) for item in value)}]" if isinstance(value, tuple) else str(value)


Score: TypeAlias = Literal["nll", "brier"]

_METRICS = {"nll": NLL(), "brier": Brier()}
# Two-sided 95 %.
_Z = 1.959963984540054
# Standard errors by which another candidate must lead the default: of ten candidates, the largest lead that is noise
# seldom exceeds three.
_LEAD = 3.0


@final
@dataclass(frozen=True)
class PairedDifference:
    """A mean difference over samples with its 95 % interval; NaN where there is none.

    Samples count as independent. The maps of different folds share most of their samples, which makes the intervals a
    little too narrow.

    ``noise`` is a standard error that one-sided outliers do not enlarge: it comes from the smaller of the two
    half-deviations, upwards and downwards. A method that is a little better on most samples and far worse on one has a
    large standard error, which would excuse its mean; its noise is small.
    """

    value: float = math.nan
    low: float = math.nan
    high: float = math.nan
    noise: float = math.nan

    @classmethod
    def between(cls, first: Tensor, second: Tensor) -> Self:
        """First minus second, sample by sample, (n,) each."""
        change = first - second
        mean, half = float(change.mean()), _Z * float(change.std()) / math.sqrt(len(change))
        squares = (float(side.square().sum()) for side in (change.clamp(min=0), change.clamp(max=0)))
        return cls(mean, mean - half, mean + half, math.sqrt(2 * min(squares)) / len(change))

    @property
    def standard_error(self) -> float:
        """Standard error of the mean difference."""
        return (self.high - self.low) / (2 * _Z)

    @property
    def p(self) -> float:
        """Two-sided p-value of no difference; NaN where the samples have no spread."""
        error = self.standard_error
        return math.erfc(abs(self.value) / (error * math.sqrt(2))) if error > 0 else math.nan

    def __str__(self) -> str:
        return f"{self.value:+.4f} ({self.low:+.4f} to {self.high:+.4f})"


@final
@dataclass(frozen=True)
class Standing:
    """One candidate: its score on samples it was not fitted on, NaN if it could not be fitted.

    A candidate that was dropped after some folds has the score of the best plus its difference in those folds.
    Differences from the best and from the steady candidate count half an unseen error (see :func:`rank`).
    """

    name: str
    calibrator: Calibrator
    place: int  # among the candidates as they were given
    score: float
    to_best: PairedDifference  # its score minus the best
    to_uncalibrated: PairedDifference  # its score minus that without calibration: below 0 it helps
    to_temperature: PairedDifference = PairedDifference()  # its score minus that of temperature scaling
    to_steady: PairedDifference = PairedDifference()  # its score minus that of the steady candidate
    other: float = math.nan  # the other proper score: brier for nll, nll for brier
    other_to_uncalibrated: PairedDifference = PairedDifference()
    ece: float = math.nan
    to_lowest_ece: PairedDifference = PairedDifference()
    folds: int = 0  # in which it was tried
    eligible: bool = True  # whether it may be chosen
    seconds: float = 0.0  # of all its fits
    failure: str | None = None


@final
@dataclass(frozen=True)
class Ranking:
    """The candidates, lowest score first, those that could not be fitted last."""

    score: Score
    folds: int
    n: int
    standings: tuple[Standing, ...]
    steady: int | None = None  # place of the candidate that is taken when in doubt

    @property
    def best(self) -> Standing:
        """The lowest score among those that were tried in all folds."""
        return self.finalists[0]

    @property
    def fitted(self) -> tuple[Standing, ...]:
        """The candidates that have a score."""
        return tuple(standing for standing in self.standings if standing.failure is None)

    @property
    def finalists(self) -> tuple[Standing, ...]:
        """The candidates that were tried in all folds."""
        return tuple(standing for standing in self.fitted if standing.folds == self.folds)

    @property
    def chosen(self) -> Standing:
        """The candidate to take.

        With a steady candidate, that one, unless another is lower by more than three standard errors: among many the
        lowest score is partly luck. Where there is a mean of it and its partner, that mean is taken instead of either.
        Without a steady one, the simplest candidate that is no more than one standard error above the best.

        Standard errors are those of the paired differences, which are far smaller than that of either score. Above the
        best, a candidate's own outliers do not count as noise (:class:`PairedDifference`).
        """
        eligible = tuple(standing for standing in self.finalists if standing.eligible) or self.finalists
        steady = next((standing for standing in eligible if standing.place == self.steady), None)
        if steady is None:
            alike = [standing for standing in eligible if standing.to_best.value <= standing.to_best.noise]
            return min(alike or eligible[:1], key=lambda standing: standing.place)
        ahead = (
            standing for standing in eligible if standing.to_steady.value < -_LEAD * standing.to_steady.standard_error
        )
        lowest = min((steady, *ahead), key=lambda standing: standing.to_steady.value)
        pools = (
            standing
            for standing in eligible
            if isinstance(standing.calibrator, Pool) and lowest.calibrator in standing.calibrator.members
        )
        return next(pools, lowest)

    @property
    def temperature_is_enough(self) -> bool:
        """Whether temperature scaling helps, and the candidate to take, another one, is not better than it.

        Better by the rule of :func:`~calibrant.comparison.compare`, :func:`~calibrant.evidence.side_of`: beyond
        noise and by enough to matter.
        """
        taken = self.chosen
        temperature = next((one for one in self.finalists if isinstance(one.calibrator, TemperatureScaling)), None)
        if temperature is None or isinstance(taken.calibrator, Uncalibrated | TemperatureScaling):
            return False
        return self._is_better(temperature, temperature.to_uncalibrated) and not self._is_better(
            taken, taken.to_temperature
        )

    def _is_better(self, standing: Standing, change: PairedDifference) -> bool:
        baseline = standing.score - change.value
        metric, interval = _METRICS[self.score], {"low": change.low, "high": change.high}
        return side_of(metric, baseline=baseline, value=change.value, p=change.p, **interval) == "better"

    @property
    def other_score(self) -> Score:
        """The proper score that does not decide."""
        return "brier" if self.score == "nll" else "nll"

    @property
    def scores_disagree(self) -> bool:
        """Whether the candidate to take is worse than no calibration by the other proper score, beyond noise."""
        return self.chosen.to_uncalibrated.value < 0 < self.chosen.other_to_uncalibrated.low

    @property
    def lowest_ece(self) -> Standing:
        """The candidate that the expected calibration error would choose."""
        return min(self.finalists, key=lambda standing: standing.ece)

    @property
    def ece_misleads(self) -> bool:
        """Whether the ECE picks, beyond noise, a candidate that is worse by the proper score, beyond noise."""
        return self.chosen.to_lowest_ece.low > 0 and self.lowest_ece.to_best.low > 0


_BINS = 15  # of the calibration error
# Samples that are added to every candidate's log-loss, labelled with the runner-up. As Jeffreys' prior adds half a
# failure: no error among n samples does not rule out one later. It matters with a hundred samples or fewer.
_UNSEEN = 0.5
# The steady candidate and its partner have weights e^(-loss / 4), with the total loss of the held-out samples in nats:
# sharp where the samples decide, and even where they cannot. One with less than the second number is left out.
_EVEN, _LIGHT = 4.0, 0.02
# With more samples methods that differ by less than matters could be distinguished; the method taken is fitted on all.
_MOST = 100_000
# A costly method is tried only where a cheaper one, which learns a part of the same, leads a third (None: the steady
# one) by so many standard errors.
_HINTS: tuple[tuple[type[Calibrator], type[Calibrator], type[Calibrator] | None, float], ...] = (
    (OrderPreserving, OrderInvariant, None, 0.0),
    (DirichletODIR, StructuredMatrixScaling, StructuredVectorScaling, 0.0),
)


def rank(
    predictions: Predictions,
    candidates: Sequence[Calibrator],
    *,
    score: Score = "nll",
    folds: int = 5,
    seed: int = 0,
    steady: Calibrator | None = None,
    partner: Calibrator | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Ranking:
    """Cross-validate the candidates and rank them by a proper score; the uncalibrated model is always among them.

    Every sample is scored by maps that were fitted on the other folds, the same folds for every candidate, so that
    differences are paired sample by sample. In a fold in which it cannot be fitted, a candidate leaves the predictions
    unchanged; one that cannot be fitted in most folds is left out, with the reason in its standing. The uncalibrated
    model is never chosen where probabilities are exactly 0: its log-loss is infinite as soon as one of those is the
    label's, which no number of samples rules out. For the same reason, half a sample more counts in the comparison by
    log-loss, one whose label is the runner-up.

    With a steady candidate, those given after it are dropped after the first fold in which they do not lead it: what is
    behind on a fifth of the samples seldom ends far ahead on all. Of more than 100,000 samples, as many are drawn. The
    steady candidate's partner is tried in all folds, unless it is far behind; then the mean of the two, weighted by
    their scores, is ranked as well.

    Args:
        predictions: The calibration samples, at least two per fold.
        candidates: From simple to complex: among those that are as good as the best, the first is chosen.
        score: "nll", the log-loss, or "brier", which weighs confident errors less.
        folds: Number of folds (:func:`~calibrant.calibrators.base.assign_folds`).
        seed: Random seed of the fold assignment.
        steady: The candidate that is chosen when in doubt (:attr:`Ranking.chosen`); None for the simplest.
        partner: The candidate that the steady one may be averaged with.
        progress: Called with the name of each fit as it begins.

    Raises:
        FitError: If there are fewer than two samples per fold.

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
    fold = assign_folds(len(predictions), folds, seed, predictions.labels.device)
    averaged = () if partner is None else (steady, partner)
    tried = [
        _Tried(method, predictions, keeps=bool(averaged) and (method in averaged or isinstance(method, Uncalibrated)))
        for method in candidates
    ]
    uncalibrated = next(candidate for candidate in tried if isinstance(candidate.calibrator, Uncalibrated))
    uncalibrated.eligible = predictions.zero_cells is None or not predictions.zero_cells.cells
    place = None if steady is None else list(candidates).index(steady)
    for number in range(folds):
        held_out = (fold == number).nonzero().flatten()
        parts = predictions[(fold != number).nonzero().flatten()], predictions[held_out]
        uncalibrated.try_fold(*parts, held_out, score, uncalibrated)
        for candidate in tried:
            if candidate is uncalibrated or candidate.dropped or _hopeless(candidate, tried, place):
                continue
            progress(f"fold {number + 1} of {folds}: {candidate.name}")
            candidate.try_fold(*parts, held_out, score, uncalibrated)
            if place is not None:
                if candidate.calibrator == partner:
                    candidate.dropped = _light(candidate, tried[place])
                else:
                    candidate.dropped = tried.index(candidate) > place and not candidate.leads(tried[place])
    if place is not None and partner is not None:
        place = _with_pool(tried, place, partner, predictions, score)
    return _ranked(tried, score, folds, len(predictions), place)


def _with_pool(tried: list["_Tried"], place: int, partner: Calibrator, predictions: Predictions, score: Score) -> int:
    """Add the mean of the steady candidate and its partner; return the place of the one that is steady then.

    Where one of them has next to no weight, there is no mean, and the other is steady.
    """
    first = tried[place]
    second = next((candidate for candidate in tried if candidate.calibrator == partner), None)
    if second is None or second.dropped or first.failure or second.failure:
        return place
    if _light(first, second):
        return tried.index(second)
    if not _light(second, first):
        lead = float((second.penalised - first.penalised).sum()) / _EVEN
        weights = 1 / (1 + math.exp(-lead)), 1 / (1 + math.exp(lead))
        pooled = _Tried(Pool((first.calibrator, second.calibrator), weights), predictions, keeps=False)
        mean = weights[0] * first.log_probs + weights[1] * second.log_probs
        pooled.take(predictions.with_logits(mean.log_softmax(dim=1), normalised=True), slice(None), score)
        pooled.folds = first.folds
        tried.append(pooled)
    return place


def _light(candidate: "_Tried", other: "_Tried") -> bool:
    """Whether it would have next to no weight in a mean with the other."""
    loss = float((candidate.penalised - other.penalised)[candidate.seen & other.seen].sum())
    return loss > -_EVEN * math.log(_LIGHT)


class _Tried:
    """The results of one candidate in the folds so far."""

    def __init__(self, calibrator: Calibrator, predictions: Predictions, *, keeps: bool) -> None:
        self.calibrator, self.name = calibrator, label(calibrator)
        n, device = len(predictions), predictions.logits.device
        # Kept for held-out samples if they may be averaged with another candidate's.
        self.log_probs = torch.zeros(predictions.logits.shape if keeps else (0, 0), dtype=torch.float64, device=device)
        # Per sample: the score, the score with half an unseen error, the other score, confidence and correctness.
        self.scores, self.penalised, self.others, self.confidence, self.correct = torch.zeros(
            5, n, dtype=torch.float64, device=device
        )
        self.seen = torch.zeros(n, dtype=torch.bool, device=device)
        self.folds, self.seconds = 0, 0.0
        self.dropped, self.eligible = False, True
        self.failures: list[str] = []

    @property
    def failure(self) -> str | None:
        """Why it has no score."""
        return self.failures[0] if 2 * len(self.failures) > self.folds else None

    def try_fold(
        self, others: Predictions, held_out: Predictions, places: Tensor, score: Score, uncalibrated: "_Tried"
    ) -> None:
        """Fit on the samples outside a fold, and score those inside it."""
        self.folds += 1
        self.seen[places] = True
        # Warnings of a fold are dropped: the fit on all samples warns again if there is still a reason.
        trial = try_fit(self.calibrator.fit_without_scores, others, held_out)
        if (mapped := trial.transformed) is None:
            self._leave_unchanged(trial.failure or "", places, uncalibrated)
            return
        self.seconds += trial.seconds
        self.take(mapped, places, score)
        if not math.isfinite(float(self.scores[places].sum())):
            self._leave_unchanged(f"its {score} was not finite on samples held out.", places, uncalibrated)

    def take(self, mapped: Predictions, places: Tensor | slice, score: Score) -> None:
        """Keep the scores of held-out samples."""
        self.seen[places] = True
        rows = mapped.softmax_rows(Wanted(squares=True))
        nll, brier = rows.nll().double(), rows.brier().double()
        self.scores[places], self.others[places] = (nll, brier) if score == "nll" else (brier, nll)
        self.penalised[places] = self.scores[places]
        if score == "nll":
            self.penalised[places] -= _UNSEEN / len(self.seen) * mapped.log_probs.double().topk(2).values[:, 1]
        self.confidence[places], self.correct[places] = mapped.confidence, mapped.correct.double()
        if len(self.log_probs):
            self.log_probs[places] = mapped.log_probs.double()

    def _leave_unchanged(self, reason: str, places: Tensor, uncalibrated: "_Tried") -> None:
        self.failures.append(reason)
        for name in ("scores", "penalised", "others", "confidence", "correct", "log_probs"):
            if len(values := getattr(self, name)):
                values[places] = getattr(uncalibrated, name)[places]

    def leads(self, other: "_Tried", *, by: float = 0.0) -> bool:
        """Whether its mean score is lower, by so many standard errors, on the samples it has seen."""
        change = PairedDifference.between(self.penalised[self.seen], other.penalised[self.seen])
        return change.value < -by * change.standard_error

    def calibration_gaps(self) -> Tensor:
        """Numbers whose mean is the ECE: correctness minus confidence, with the sign of the sample's bin, (n,)."""
        index = bin_index(self.confidence[self.seen], _BINS).long()
        gap = (self.correct - self.confidence)[self.seen]
        return gap * sums_by(index, gap, _BINS).sign()[index]


def _hopeless(candidate: _Tried, tried: Sequence[_Tried], place: int | None) -> bool:
    """Whether a cheaper method has shown that it will not help; this is noted as the reason."""
    if place is None or candidate.folds:
        return False
    for costly, cheaper, than, lead in _HINTS:
        hint = _first(tried, cheaper)
        baseline = tried[place] if than is None else _first(tried, than)
        if not isinstance(candidate.calibrator, costly) or hint is None or baseline is None:
            continue
        if hint.folds and not hint.leads(baseline, by=lead):
            reason = f"not tried, since {hint.name}, a simpler kind of it, does not lead {baseline.name}."
            candidate.failures.append(reason)
            candidate.dropped = True
            return True
    return False


def _first(tried: Sequence[_Tried], kind: type[Calibrator]) -> _Tried | None:
    return next((candidate for candidate in tried if isinstance(candidate.calibrator, kind)), None)


def _ranked(tried: Sequence[_Tried], score: Score, folds: int, n: int, place: int | None) -> Ranking:
    finalists = [candidate for candidate in tried if candidate.failure is None and candidate.folds == folds]
    uncalibrated = next(candidate for candidate in finalists if isinstance(candidate.calibrator, Uncalibrated))
    best = min(finalists, key=lambda candidate: float(candidate.penalised.mean()))
    lowest = min((candidate.calibration_gaps() for candidate in finalists), key=lambda gaps: float(gaps.mean()))
    steady = None if place is None or tried[place] not in finalists else tried[place]
    temperature = _first(finalists, TemperatureScaling)
    between, unknown = PairedDifference.between, PairedDifference()

    def standing(number: int, one: _Tried) -> Standing:
        if one.failure is not None:
            return Standing(one.name, one.calibrator, number, math.nan, unknown, unknown, failure=one.failure)
        seen, gaps = one.seen, one.calibration_gaps()
        return Standing(
            one.name,
            one.calibrator,
            number,
            score=float(best.scores.mean() + (one.scores - best.scores)[seen].mean()),
            to_best=between(one.penalised[seen], best.penalised[seen]),
            to_uncalibrated=between(one.scores[seen], uncalibrated.scores[seen]),
            to_temperature=unknown if temperature is None else between(one.scores[seen], temperature.scores[seen]),
            to_steady=unknown if steady is None else between(one.penalised[seen], steady.penalised[seen]),
            other=float(one.others[seen].mean()),
            other_to_uncalibrated=between(one.others[seen], uncalibrated.others[seen]),
            ece=float(gaps.mean()),
            to_lowest_ece=between(gaps, lowest) if one.folds == folds else unknown,
            folds=one.folds,
            eligible=one.eligible,
            seconds=one.seconds,
        )

    standings = sorted(
        (standing(number, candidate) for number, candidate in enumerate(tried)),
        key=lambda one: (math.isnan(one.score), one.to_best.value),
    )
    return Ranking(score, folds, n, tuple(standings), None if steady is None else place)
