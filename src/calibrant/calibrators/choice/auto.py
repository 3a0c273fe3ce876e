"""The method that suits the data best, found by cross-validation."""

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, final, get_args

from calibrant.calibrators.absent import absent_classes, some_names
from calibrant.calibrators.base import Calibrator, CalibratorFamily, Fitted, check_calibrators
from calibrant.calibrators.choice.defaults import default_candidates
from calibrant.calibrators.choice.ranking import Ranking, Standing
from calibrant.calibrators.choice.selection import Score, rank
from calibrant.checks import check_at_least, check_known
from calibrant.errors import CalibrantError, CalibrantWarning
from calibrant.maps import Map
from calibrant.paper import Paper
from calibrant.predictions import Predictions

__all__ = ["Auto"]


@final
@dataclass(frozen=True)
class Auto(Calibrator):
    """Try several methods by cross-validation, take the one with the lowest proper score, fit it on all rows.

    Doing nothing is always a candidate. Among candidates that are within one standard error of the best, the first in
    the given order, from simple to complex, is taken: with few rows that keeps noise from picking a flexible method.
    The choice is made by log-loss (or Brier score), never by ECE, which is lowest for maps that answer the same for
    every row; a warning tells where ECE would have chosen otherwise. The test set plays no part.

    It costs as many fits as there are candidates, times the folds. It hurts where the calibration rows are not drawn
    like the rows to come (the choice is then as wrong as every fit), and with a few dozen rows it hardly ever dares
    more than a temperature.

    Formula: m* = min {m : CV(m) − CV(best) ≤ se(CV(m) − CV(best))}, then q = m* fitted on all rows
    Rows: at least two a fold; a hundred or more to tell methods apart. With fewer it keeps to the simple ones.

    Args:
        candidates: From simple to complex; None takes those of :func:`default_candidates`, by the number of rows and
            classes; where a class has no rows, only those that treat all classes alike, with a warning.
        score: "nll", the log-loss, or "brier", which forgives confident mistakes.
        folds: Parts that the rows are dealt into.
        seed: Of the deal.

    Raises:
        FitError: If there are fewer than two rows a fold.
    """

    name: ClassVar[str] = "auto"
    title: ClassVar[str] = "Best of several, by cross-validation"
    family: ClassVar[CalibratorFamily] = "composition"
    paper: ClassVar[Paper] = Paper(
        "Breiman et al.",
        1984,
        "Classification and Regression Trees",
        "doi:10.1201/9781315139470",
        "the one-standard-error rule",
    )
    # What it preserves depends on the method it takes; these hold for all of them.
    preserves_accuracy: ClassVar[bool] = False
    preserves_ranking: ClassVar[bool] = False

    candidates: tuple[Calibrator, ...] | None = None
    score: Score = "nll"
    folds: int = 5
    seed: int = 0

    def __post_init__(self) -> None:
        if self.candidates is not None:
            check_calibrators(self.candidates, "candidates")
        check_known(self.score, get_args(Score), "score")
        check_at_least(self.folds, 2, "folds")

    def rank(self, predictions: Predictions) -> Ranking:
        """How the candidates did on rows they were not fitted on."""
        candidates = self.candidates
        if candidates is None:
            absent = len(absent_classes(predictions))
            candidates = default_candidates(len(predictions), predictions.n_classes, absent=absent)
        return rank(predictions, candidates, score=self.score, folds=self.folds, seed=self.seed)

    def learn(self, predictions: Predictions) -> Fitted:
        if self.candidates is None:
            _warn_of_left_out(predictions)
        ranking = self.rank(predictions)
        taken, fitted = _fit_first(predictions, _preference(ranking))
        if ranking.ece_misleads:
            other = ranking.lowest_ece
            warnings.warn(
                f"the proper score and the calibration error disagree: {ranking.score} takes {taken.name} (ece "
                f"{taken.ece:.4f}), ece would take {other.name} (ece {other.ece:.4f}), whose {ranking.score} is "
                f"{other.to_best} above the best. {taken.name} is kept: a low ece alone does not make good "
                "probabilities.",
                CalibrantWarning,
                stacklevel=2,
            )
        certificate = None if fitted.summary is None else fitted.summary.certificate
        return Fitted(fitted, certificate, tuple(_told(ranking, taken)))


def _warn_of_left_out(predictions: Predictions) -> None:
    """Held-out rows, which lack the same classes, cannot show the harm that is done to those."""
    absent = absent_classes(predictions)
    if len(absent):
        warnings.warn(
            f"no calibration rows of class {some_names(absent, predictions)}: methods with numbers of their own for "
            "every class would learn that it never occurs, and were left out. Gather rows of it to have them tried.",
            CalibrantWarning,
            stacklevel=3,
        )


def _preference(ranking: Ranking) -> Iterable[Standing]:
    """The chosen one, then the others by score: the last resort, doing nothing, can always be fitted."""
    yield ranking.chosen
    yield from (each for each in ranking.fitted if each is not ranking.chosen)


def _fit_first(predictions: Predictions, preferred: Iterable[Standing]) -> tuple[Standing, Map]:
    """The first that can be fitted on all rows."""
    failures = []
    for standing in preferred:
        try:
            fitted = standing.calibrator.fit_uncompared(predictions)
        except CalibrantError as error:
            failures.append(f"{standing.name} could be fitted on every fold but not on all rows: {error}")
            continue
        for failure in failures:
            warnings.warn(failure, CalibrantWarning, stacklevel=3)
        return standing, fitted
    raise AssertionError("doing nothing can always be fitted")


def _told(ranking: Ranking, taken: Standing) -> list[str]:
    """Which method was taken and why, then how all of them did."""
    basis = f"{ranking.folds}-fold cross-validated {ranking.score}"
    if taken.calibrator.name == "none":
        lines = [f"chosen by {basis}: none, leaving the predictions as they are ({taken.score:.4f})"]
    else:
        lines = [f"chosen by {basis}: {taken.name} ({taken.score:.4f}), {taken.to_nothing} against doing nothing"]
    if taken is not ranking.best:
        lines.append(
            f"{ranking.best.name} scored lower ({ranking.best.score:.4f}), but {taken.name} is simpler and within one "
            f"standard error of it: {taken.to_best}"
        )
    lines.append("ranking: " + ", ".join(f"{each.name} {each.score:.4f}" for each in ranking.fitted))
    lines += [f"{each.name} was left out: {each.failure}" for each in ranking.standings if each.failure]
    return lines
