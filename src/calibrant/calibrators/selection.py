"""Combinations of calibrators: chains, weighted means, and a ranking by cross-validation."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import ClassVar, Literal, Self, TypeAlias, final

import torch
from torch import Tensor

from calibrant.calibrators.affine import (
    StructuredMatrixScaling,
    StructuredVectorScaling,
    TemperatureScaling,
    Uncalibrated,
)
from calibrant.calibrators.base import Calibrator, CalibratorFamily, Fitted, check_calibrators, deal_folds, try_fit
from calibrant.calibrators.odir import DirichletODIR
from calibrant.calibrators.order_preserving import OrderInvariant, OrderPreserving
from calibrant.checks import check_at_least
from calibrant.errors import FitError, InputError
from calibrant.maps import ChainMap, LogMixture
from calibrant.numerics.binning import bin_index, sums_by
from calibrant.numerics.softmax import Wanted
from calibrant.paper import Paper
from calibrant.predictions import Predictions

__all__ = ["Chain", "PairedDifference", "Pool", "Ranking", "Score", "Standing", "label", "rank"]


@final
@dataclass(frozen=True)
class Chain(Calibrator):
    """Fit the first method, apply it, fit the next on the result, and so on.

    Temperature scaling before an isotonic or binning method gives the latter a better scale to work on (the
    composition of Mix-n-Match). All are fitted on the same rows, so a long chain of flexible methods overfits. On the
    command line a chain is written ``temperature+isotonic``.

    Formula: q = (m_r ∘ … ∘ m_1)(z)
    Rows: what its neediest method needs.

    Args:
        steps: The methods, in order.
    """

    name: ClassVar[str] = "chain"
    title: ClassVar[str] = "Methods one after the other"
    family: ClassVar[CalibratorFamily] = "composition"
    paper: ClassVar[Paper] = Paper(
        "Zhang et al.",
        2020,
        "Mix-n-Match: Ensemble and Compositional Methods for Uncertainty Calibration in Deep Learning",
        "arXiv:2003.07329",
    )
    # What a chain preserves depends on its steps; these hold for every chain.
    preserves_accuracy: ClassVar[bool] = False
    preserves_ranking: ClassVar[bool] = False

    steps: tuple[Calibrator, ...] = (Uncalibrated(),)

    def __post_init__(self) -> None:
        check_calibrators(self.steps, "steps")
        if not self.steps:
            raise InputError("a chain must have at least one step; got none.")

    def _fit(self, predictions: Predictions) -> Fitted:
        maps = []
        for step in self.steps:
            maps.append(step.fit_uncompared(predictions))
            predictions = maps[-1].transform(predictions)
        return Fitted(ChainMap(maps, n_classes=predictions.n_classes))


@final
@dataclass(frozen=True)
class Pool(Calibrator):
    """Fit several methods and average their log-probabilities.

    Args:
        members: The methods.
        weights: One a method, above 0, summing to one.
    """

    name: ClassVar[str] = "pool"
    title: ClassVar[str] = "Mean of several methods"
    family: ClassVar[CalibratorFamily] = "composition"
    paper: ClassVar[Paper] = Paper(
        "Genest & Zidek",
        1986,
        "Combining Probability Distributions: A Critique and an Annotated Bibliography",
        "doi:10.1214/ss/1177013825",
        "the logarithmic opinion pool",
    )
    # What it preserves depends on its members; these hold for all of them.
    preserves_accuracy: ClassVar[bool] = False
    preserves_ranking: ClassVar[bool] = False

    members: tuple[Calibrator, ...]
    weights: tuple[float, ...]

    def _fit(self, predictions: Predictions) -> Fitted:
        maps = [member.fit_uncompared(predictions) for member in self.members]
        weights = torch.tensor(self.weights, dtype=torch.float64, device=predictions.logits.device)
        return Fitted(LogMixture(weights, maps, n_classes=predictions.n_classes))


Score: TypeAlias = Literal["nll", "brier"]

# Two-sided 95 %.
_Z = 1.959963984540054
# Standard errors by which the steady candidate must be led: of ten candidates, the largest lead that is noise seldom
# exceeds three.
_LEAD = 3.0


@final
@dataclass(frozen=True)
class PairedDifference:
    """A mean difference with its 95 % interval; NaN where there is none.

    Samples count as independent. The maps of different folds share most of their samples, which makes the intervals a
    little too narrow.

    ``noise`` is a standard error that one-sided outliers do not enlarge: it comes from the smaller of the two
    half-deviations, upwards and downwards. A method that is a little better on most samples and terribly wrong on one
    has a large standard error, behind which its mean would hide; its noise is small.
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

    def __str__(self) -> str:
        return f"{self.value:+.4f} ({self.low:+.4f} to {self.high:+.4f})"


@final
@dataclass(frozen=True)
class Standing:
    """One candidate: its score on samples it was not fitted on, NaN if it could not be fitted.

    A candidate that was dropped after some folds has the score of the best plus its difference in those folds. Gaps to
    the best and to the steady candidate count half an unseen mistake, as :func:`rank` says.
    """

    name: str
    calibrator: Calibrator
    place: int  # among the candidates as they were given
    score: float
    to_best: PairedDifference  # its score minus the best
    to_nothing: PairedDifference  # its score minus that of doing nothing: below 0 it helps
    to_temperature: PairedDifference = PairedDifference()  # its score minus that of temperature scaling
    to_steady: PairedDifference = PairedDifference()  # its score minus that of the steady candidate
    other: float = math.nan  # the other proper score: brier beside nll, nll beside brier
    other_to_nothing: PairedDifference = PairedDifference()
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
        """Those that have a score."""
        return tuple(each for each in self.standings if each.failure is None)

    @property
    def finalists(self) -> tuple[Standing, ...]:
        """Those that were tried in all folds."""
        return tuple(each for each in self.fitted if each.folds == self.folds)

    @property
    def chosen(self) -> Standing:
        """The candidate to take.

        With a steady candidate, that one, unless another is lower by more than three standard errors: among many the
        lowest score is partly luck. Where there is a mean of it and its partner, that mean is taken instead of either.
        Without a steady one, the simplest candidate that is no more than one standard error above the best.

        Standard errors are those of the paired differences, which are far smaller than that of either score. Above the
        best, a candidate's own outliers do not count as noise (:class:`PairedDifference`).
        """
        may = tuple(each for each in self.finalists if each.eligible) or self.finalists
        held = next((each for each in may if each.place == self.steady), None)
        if held is None:
            alike = [each for each in may if each.to_best.value <= each.to_best.noise]
            return min(alike or may[:1], key=lambda each: each.place)
        ahead = (each for each in may if each.to_steady.value < -_LEAD * each.to_steady.standard_error)
        found = min((held, *ahead), key=lambda each: each.to_steady.value)
        pools = (
            each for each in may if isinstance(each.calibrator, Pool) and found.calibrator in each.calibrator.members
        )
        return next(pools, found)

    @property
    def other_score(self) -> Score:
        """The proper score that does not decide."""
        return "brier" if self.score == "nll" else "nll"

    @property
    def scores_disagree(self) -> bool:
        """Whether the candidate to take is worse than doing nothing by the other proper score, beyond noise."""
        return self.chosen.to_nothing.value < 0 < self.chosen.other_to_nothing.low

    @property
    def lowest_ece(self) -> Standing:
        """The candidate that the expected calibration error would choose."""
        return min(self.finalists, key=lambda each: each.ece)

    @property
    def ece_misleads(self) -> bool:
        """Whether the ECE picks, beyond noise, a candidate that is worse by the proper score, beyond noise."""
        return self.chosen.to_lowest_ece.low > 0 and self.lowest_ece.to_best.low > 0


def label(calibrator: Calibrator) -> str:
    """Its name, with the options that are not the usual ones, as the command line takes it.

    Example:
        >>> from calibrant.calibrators import Chain, Uncalibrated
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
    return f"[{','.join(_option(each) for each in value)}]" if isinstance(value, tuple) else str(value)


_BINS = 15  # of the calibration error
# Samples that are added to every candidate's log-loss, labelled with the runner-up: as Jeffreys' prior adds half a
# failure, because that none of n was wrong does not mean that none will be. It counts with a hundred samples or fewer.
_UNSEEN = 0.5
# The steady candidate and its partner have weights e^(-loss / 4), the loss being that of all samples held out, in nats:
# sharp where the samples decide, and even where they cannot. One with less than the second number is left out.
_EVEN, _LIGHT = 4.0, 0.02
# More samples would tell methods apart that differ by less than matters; the method taken is fitted on all.
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
    """Cross-validate the candidates and rank them by a proper score; doing nothing is always among them.

    Every sample is scored by maps that were fitted on the other folds, the same folds for every candidate, so that the
    differences between two of them are paired sample by sample. In a fold in which it cannot be fitted, a candidate
    leaves the predictions as they are; one that cannot be fitted in most folds is left out, with the reason in its
    standing. Doing nothing is never chosen where probabilities are exactly 0: its log-loss is infinite as soon as one
    of those is the label's, which no number of samples rules out. For the same reason, half a sample more counts in the
    comparison by log-loss, one whose label is the runner-up.

    With a steady candidate, those given after it are dropped after the first fold in which they do not lead it: what is
    behind on a fifth of the samples seldom ends far ahead on all. Of more than 100,000 samples, as many are drawn. The
    steady candidate's partner is tried in all folds, unless it is far behind; then the mean of the two, weighted by
    their scores, is ranked as well.

    Args:
        predictions: The calibration samples, at least two a fold.
        candidates: From simple to complex: among those that are as good as the best, the first is chosen.
        score: "nll", the log-loss, or "brier", which forgives confident mistakes.
        folds: Parts that the samples are dealt into (:func:`deal_folds`).
        seed: Random seed of the deal.
        steady: The candidate that is chosen when in doubt (:attr:`Ranking.chosen`); None for the simplest.
        partner: The candidate that the steady one may be averaged with.
        progress: Called with the name of each fit as it begins.

    Raises:
        FitError: If there are fewer than two samples a fold.

    Example:
        >>> from calibrant.calibrators import Uncalibrated
        >>> logits = torch.randn(100, 3, generator=torch.Generator().manual_seed(0))
        >>> rank(Predictions(logits, logits.argmax(1)), [Uncalibrated()]).chosen.name
        'uncalibrated'
    """
    check_at_least(folds, 2, "folds")
    if len(predictions) < 2 * folds:
        raise FitError(
            f"choosing a method needs at least two rows a fold; got {len(predictions)} rows for {folds} folds. "
            "Take fewer folds, or gather more rows."
        )
    if not any(isinstance(each, Uncalibrated) for each in candidates):
        candidates = (Uncalibrated(), *candidates)
    if len(predictions) > _MOST:
        drawn = torch.randperm(len(predictions), generator=torch.Generator().manual_seed(seed))[:_MOST]
        predictions = predictions[drawn.to(predictions.labels.device)]
    fold = deal_folds(predictions.labels, folds, seed)
    keep = () if partner is None else (steady, partner)
    tried = [
        _Tried(each, predictions, keeps=bool(keep) and (each in keep or isinstance(each, Uncalibrated)))
        for each in candidates
    ]
    nothing = next(each for each in tried if isinstance(each.calibrator, Uncalibrated))
    nothing.eligible = predictions.zero_cells is None or not predictions.zero_cells.cells
    place = None if steady is None else list(candidates).index(steady)
    for number in range(folds):
        held = (fold == number).nonzero().flatten()
        fitting, judging = predictions[(fold != number).nonzero().flatten()], predictions[held]
        nothing.try_fold(fitting, judging, held, score, nothing)
        for each in tried:
            if each is nothing or each.dropped or _hopeless(each, tried, place):
                continue
            progress(f"fold {number + 1} of {folds}: {each.name}")
            each.try_fold(fitting, judging, held, score, nothing)
            if each.calibrator == partner:
                each.dropped = _light(each, tried[place]) if place is not None else False
            else:
                each.dropped = place is not None and tried.index(each) > place and not each.leads(tried[place])
    if place is not None and partner is not None:
        place = _with_pool(tried, place, partner, predictions, score)
    return _ranked(tried, score, folds, len(predictions), place)


def _with_pool(tried: list["_Tried"], place: int, partner: Calibrator, predictions: Predictions, score: Score) -> int:
    """Add the mean of the steady candidate and its partner; return the place of the one that is steady then.

    Where one of them has next to no weight, there is no mean, and the other is steady.
    """
    first = tried[place]
    second = next((each for each in tried if each.calibrator == partner), None)
    if second is None or second.dropped or first.failure or second.failure:
        return place
    if _light(first, second):
        return tried.index(second)
    if not _light(second, first):
        tried.append(_pooled(first, second, predictions, score))
    return place


def _light(each: "_Tried", other: "_Tried") -> bool:
    """Whether it would have next to no weight beside the other."""
    loss = float((each.judged - other.judged)[each.seen & other.seen].sum())
    return loss > -_EVEN * math.log(_LIGHT)


def _pooled(first: "_Tried", second: "_Tried", predictions: Predictions, score: Score) -> "_Tried":
    """Return the mean of two candidates as a third, on the same held-out samples."""
    lead = float((second.judged - first.judged).sum()) / _EVEN
    weights = 1 / (1 + math.exp(-lead)), 1 / (1 + math.exp(lead))
    pooled = _Tried(Pool((first.calibrator, second.calibrator), weights), predictions, keeps=False)
    mean = weights[0] * first.log_probs + weights[1] * second.log_probs
    pooled.take(predictions.with_logits(mean.log_softmax(dim=1), normalised=True), slice(None), score)
    pooled.folds = first.folds
    return pooled


class _Tried:
    """What the folds have shown of one candidate so far."""

    def __init__(self, calibrator: Calibrator, predictions: Predictions, *, keeps: bool) -> None:
        self.calibrator, self.name = calibrator, label(calibrator)
        n, device = len(predictions), predictions.logits.device
        # Of samples held out, where they may be averaged with another candidate's.
        self.log_probs = torch.zeros(predictions.logits.shape if keeps else (0, 0), dtype=torch.float64, device=device)
        self.scores, self.judged, self.others, self.confidence, self.correct = torch.zeros(
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
        self, fitting: Predictions, judging: Predictions, held: Tensor, score: Score, nothing: "_Tried"
    ) -> None:
        """Fit on some samples, and keep what the map makes of the others."""
        self.folds += 1
        self.seen[held] = True
        # Warnings of a fold are dropped: the fit on all samples warns again if there is still a reason.
        trial = try_fit(self.calibrator.fit_uncompared, fitting, judging)
        if (mapped := trial.transformed) is None:
            self._leave_as_is(trial.failure or "", held, nothing)
            return
        self.seconds += trial.seconds
        self.take(mapped, held, score)
        if not math.isfinite(float(self.scores[held].sum())):
            self._leave_as_is(f"its {score} was not finite on samples held out.", held, nothing)

    def take(self, mapped: Predictions, held: Tensor | slice, score: Score) -> None:
        """Keep the scores of samples that the map was not fitted on."""
        self.seen[held] = True
        rows = mapped.softmax_rows(Wanted(squares=True))
        nll, brier = rows.nll().double(), rows.brier().double()
        self.scores[held], self.others[held] = (nll, brier) if score == "nll" else (brier, nll)
        self.judged[held] = self.scores[held]
        if score == "nll":
            self.judged[held] -= _UNSEEN / len(self.seen) * mapped.log_probs.double().topk(2).values[:, 1]
        self.confidence[held], self.correct[held] = mapped.confidence, mapped.correct.double()
        if len(self.log_probs):
            self.log_probs[held] = mapped.log_probs.double()

    def _leave_as_is(self, reason: str, held: Tensor, nothing: "_Tried") -> None:
        self.failures.append(reason)
        for name in (
            "scores",
            "judged",
            "others",
            "confidence",
            "correct",
            *(["log_probs"] if len(self.log_probs) else []),
        ):
            getattr(self, name)[held] = getattr(nothing, name)[held]

    def leads(self, other: "_Tried", *, by: float = 0.0) -> bool:
        """Whether its mean score is lower, by so many standard errors, on the samples it has seen."""
        gap = PairedDifference.between(self.judged[self.seen], other.judged[self.seen])
        return gap.value < -by * gap.standard_error

    def calibration_gaps(self) -> Tensor:
        """Numbers whose mean is the ECE: right minus claimed, with the sign that the sample's bin has, (n,)."""
        index = bin_index(self.confidence[self.seen], _BINS).long()
        gap = (self.correct - self.confidence)[self.seen]
        return gap * sums_by(index, gap, _BINS).sign()[index]


def _hopeless(each: _Tried, tried: Sequence[_Tried], place: int | None) -> bool:
    """Whether a cheaper method has shown that there is nothing in it; noted as the reason why it was left out."""
    if place is None or each.folds:
        return False
    for costly, cheaper, than, lead in _HINTS:
        hint = _first(tried, cheaper)
        rival = tried[place] if than is None else _first(tried, than)
        if isinstance(each.calibrator, costly) and hint and rival and hint.folds and not hint.leads(rival, by=lead):
            each.failures.append(f"not tried, since {hint.name}, a simpler kind of it, does not lead {rival.name}.")
            each.dropped = True
            return True
    return False


def _first(tried: Sequence[_Tried], kind: type[Calibrator]) -> _Tried | None:
    return next((each for each in tried if isinstance(each.calibrator, kind)), None)


def _ranked(tried: Sequence[_Tried], score: Score, folds: int, n: int, place: int | None) -> Ranking:
    fitted = [each for each in tried if each.failure is None]
    finalists = [each for each in fitted if each.folds == folds]
    nothing = next(each for each in finalists if isinstance(each.calibrator, Uncalibrated))
    best = min(finalists, key=lambda each: float(each.judged.mean()))
    lowest = min((each.calibration_gaps() for each in finalists), key=lambda gap: float(gap.mean()))
    steady = None if place is None or tried[place] not in finalists else tried[place]
    temperature = next((each for each in finalists if isinstance(each.calibrator, TemperatureScaling)), None)

    def standing(number: int, each: _Tried) -> Standing:
        if each.failure is not None:
            return Standing(
                each.name,
                each.calibrator,
                number,
                math.nan,
                PairedDifference(),
                PairedDifference(),
                failure=each.failure,
            )
        seen, gaps = each.seen, each.calibration_gaps()
        to_best = PairedDifference.between(each.judged[seen], best.judged[seen])
        return Standing(
            each.name,
            each.calibrator,
            number,
            score=float(best.scores.mean() + (each.scores - best.scores)[seen].mean()),
            to_best=to_best,
            to_nothing=PairedDifference.between(each.scores[seen], nothing.scores[seen]),
            to_temperature=PairedDifference()
            if temperature is None
            else PairedDifference.between(each.scores[seen], temperature.scores[seen]),
            to_steady=PairedDifference()
            if steady is None
            else PairedDifference.between(each.judged[seen], steady.judged[seen]),
            other=float(each.others[seen].mean()),
            other_to_nothing=PairedDifference.between(each.others[seen], nothing.others[seen]),
            ece=float(gaps.mean()),
            to_lowest_ece=PairedDifference.between(gaps, lowest) if each.folds == folds else PairedDifference(),
            folds=each.folds,
            eligible=each.eligible,
            seconds=each.seconds,
        )

    standings = sorted(
        (standing(number, each) for number, each in enumerate(tried)),
        key=lambda each: (math.isnan(each.score), each.to_best.value),
    )
    return Ranking(score, folds, n, tuple(standings), None if steady is None else place)
