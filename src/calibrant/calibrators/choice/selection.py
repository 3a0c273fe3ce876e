"""Which of several methods suits these predictions: each is judged on rows it was not fitted on."""

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from calibrant.calibrators.base import Calibrator
from calibrant.calibrators.choice.ranking import Gap, Ranking, Standing, label
from calibrant.calibrators.folds import deal_folds
from calibrant.calibrators.nothing import DoNothing
from calibrant.checks import check_at_least
from calibrant.errors import CalibrantError, CalibrantWarning, FitError
from calibrant.numerics.binning import bin_index, sums_by
from calibrant.numerics.softmax import Wanted
from calibrant.predictions import Predictions

__all__ = ["Score", "rank"]

Score: TypeAlias = Literal["nll", "brier"]

_BINS = 15  # of the calibration error


def rank(
    predictions: Predictions,
    candidates: Sequence[Calibrator],
    *,
    score: Score = "nll",
    folds: int = 5,
    seed: int = 0,
    progress: Callable[[str], None] = lambda _: None,
) -> Ranking:
    """Cross-validate the candidates and rank them by a proper score; doing nothing is always among them.

    Every row is scored by maps that were fitted on the other folds, the same folds for every candidate, so that the
    differences between two of them are paired row by row. A candidate that cannot be fitted in a fold is dropped, with
    the reason in its standing.

    Args:
        predictions: The calibration rows, at least two a fold.
        candidates: From simple to complex: among those that are as good as the best, the first is chosen.
        score: "nll", the log-loss, or "brier", which forgives confident mistakes.
        folds: Parts that the rows are dealt into (:func:`deal_folds`).
        seed: Of the deal.
        progress: Called with the name of each fit as it begins.

    Raises:
        FitError: If there are fewer than two rows a fold.

    Example:
        >>> from calibrant.calibrators import DoNothing
        >>> logits = torch.randn(100, 3, generator=torch.Generator().manual_seed(0))
        >>> rank(Predictions(logits, logits.argmax(1)), [DoNothing()]).chosen.name
        'none'
    """
    check_at_least(folds, 2, "folds")
    if len(predictions) < 2 * folds:
        raise FitError(
            f"choosing a method needs at least two rows a fold; got {len(predictions)} rows for {folds} folds. "
            "Take fewer folds, or gather more rows."
        )
    if not any(isinstance(each, DoNothing) for each in candidates):
        candidates = (DoNothing(), *candidates)
    fold = deal_folds(predictions.labels, folds, seed)
    tried = [_Tried(each, len(predictions), predictions.logits.device) for each in candidates]
    for number in range(folds):
        held = (fold == number).nonzero().flatten()
        fitting, judging = predictions[(fold != number).nonzero().flatten()], predictions[held]
        for each in tried:
            if each.failure is None:
                progress(f"fold {number + 1} of {folds}: {each.name}")
                each.try_fold(fitting, judging, held, score)
    return _ranked(tried, score, folds, len(predictions))


class _Tried:
    """What the folds have shown of one candidate so far."""

    def __init__(self, calibrator: Calibrator, n: int, device: torch.device) -> None:
        self.calibrator, self.name = calibrator, label(calibrator)
        self.scores, self.confidence, self.correct = torch.zeros(3, n, dtype=torch.float64, device=device)
        self.seconds = 0.0
        self.failure: str | None = None

    def try_fold(self, fitting: Predictions, judging: Predictions, held: Tensor, score: Score) -> None:
        """Fit on some rows, and keep what the map makes of the others."""
        with warnings.catch_warnings():
            # What a fold has to warn of, the fit on all rows will say again if it is still so.
            warnings.simplefilter("ignore", CalibrantWarning)
            try:
                fitted = self.calibrator.fit_uncompared(fitting)
                mapped = fitted.transform(judging)
            except CalibrantError as error:
                self.failure = str(error)
                return
        assert fitted.summary is not None, "every fit leaves a summary"
        self.seconds += fitted.summary.seconds
        rows = mapped.softmax_rows(Wanted(squares=score == "brier"))
        self.scores[held] = (rows.nll() if score == "nll" else rows.brier()).double()
        self.confidence[held], self.correct[held] = mapped.confidence, mapped.correct.double()
        if not math.isfinite(float(self.scores[held].sum())):
            self.failure = f"its {score} was not finite on rows held out."

    def calibration_gaps(self) -> Tensor:
        """Numbers whose mean is the ECE: right minus claimed, with the sign that the row's bin has, (n,)."""
        index = bin_index(self.confidence, _BINS).long()
        gap = self.correct - self.confidence
        return gap * sums_by(index, gap, _BINS).sign()[index]


def _ranked(tried: Sequence[_Tried], score: Score, folds: int, n: int) -> Ranking:
    fitted = [each for each in tried if each.failure is None]
    nothing = next(each for each in fitted if isinstance(each.calibrator, DoNothing))
    best = min(fitted, key=lambda each: float(each.scores.mean()))
    gaps = {id(each): each.calibration_gaps() for each in fitted}
    lowest = min(gaps.values(), key=lambda gap: float(gap.mean()))
    standings = [
        Standing(
            name=each.name,
            calibrator=each.calibrator,
            place=place,
            score=float(each.scores.mean()) if each.failure is None else math.nan,
            to_best=Gap.between(each.scores, best.scores) if each.failure is None else Gap(),
            to_nothing=Gap.between(each.scores, nothing.scores) if each.failure is None else Gap(),
            ece=float(gaps[id(each)].mean()) if each.failure is None else math.nan,
            to_lowest_ece=Gap.between(gaps[id(each)], lowest) if each.failure is None else Gap(),
            seconds=each.seconds,
            failure=each.failure,
        )
        for place, each in enumerate(tried)
    ]
    standings.sort(key=lambda each: (math.isnan(each.score), each.score))
    return Ranking(score, folds, n, tuple(standings))
