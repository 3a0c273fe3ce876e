"""The calibrator that suits the data best, chosen by cross-validation, and averaged with a partner where that helps."""

import warnings
from dataclasses import dataclass
from typing import NamedTuple, final, get_args

from calibrant.calibrators.affine import (
    StructuredMatrixScaling,
    StructuredVectorScaling,
    TemperatureScaling,
    Uncalibrated,
)
from calibrant.calibrators.base import Calibrator, Fitted, absent_classes, check_calibrators, class_names
from calibrant.calibrators.binning import IsotonicOneVsRest, IsotonicPooled, IsotonicRegression
from calibrant.calibrators.curves import VennAbers
from calibrant.calibrators.ets import EnsembleTemperatureScaling
from calibrant.calibrators.logistic import BetaCalibration, PlattScaling, QuadraticScaling
from calibrant.calibrators.odir import DirichletODIR
from calibrant.calibrators.order_preserving import DiagonalOrderPreserving, OrderInvariant, OrderPreserving
from calibrant.calibrators.selection import Chain, Pool, Ranking, Score, Standing, rank
from calibrant.checks import check_at_least, check_known
from calibrant.errors import CalibrantError, CalibrantWarning
from calibrant.maps import Map
from calibrant.paper import Paper
from calibrant.predictions import Predictions

# Up to this n k² a fit of structured matrix scaling takes a few seconds; six of them are then half a minute.
_MATRIX_WORK = 2e9
# With fewer samples per weight the penalty dominates a matrix: then it is no better than a vector.
_SAMPLES_PER_WEIGHT = 2
# Dirichlet calibration chooses its penalties by cross-validation, which needs more samples and takes longer.
_SAMPLES_PER_SEARCHED_WEIGHT = 5
# With so few samples of so few classes cross-validation cannot distinguish methods; the steady ones are averaged.
_FEW_SAMPLES, _FEW_CLASSES = 500, 10
# A curve for each class needs samples of each; so does a network that sees which class is which.
_SAMPLES_PER_CURVE = 20
_SAMPLES_PER_SEEN_CLASS = 50

_POOLED_AFTER_TEMPERATURE = Chain((TemperatureScaling(), IsotonicPooled()))
# They have no parameters for single classes, so that one without samples is not driven out.
_CLASS_SYMMETRIC = (
    Uncalibrated(),
    TemperatureScaling(),
    EnsembleTemperatureScaling(),
    DiagonalOrderPreserving(),
    OrderInvariant(),
    IsotonicPooled(),
    _POOLED_AFTER_TEMPERATURE,
)


def default_candidates(n: int, k: int, *, absent: int = 0) -> tuple[Calibrator, ...]:
    """Methods that are the best somewhere: first the steady ones, from simple to complex, then their challengers.

    Steady are no calibration, temperature, structured vector scaling and structured matrix scaling (where n k² is at
    most 2·10⁹): each equals the one before it as long as the samples do not show more. Challengers for two classes:
    Platt, beta, quadratic, ensemble temperature, isotonic, Venn-Abers. For more: ensemble temperature, the diagonal
    function, pooled isotonic alone and after a temperature, isotonic regression of each class (20 samples per class),
    the order-invariant network, the order-preserving one (50 per class), and Dirichlet calibration (5 per weight). With
    at most 500 samples of ten classes Platt scaling is the only one: the lowest of many scores would be luck. Where a
    class has no samples, only methods that treat all classes alike are left: the others would learn that it never
    occurs, and no held-out sample shows the harm.

    Args:
        n: Number of calibration samples.
        k: Number of classes.
        absent: Number of classes without samples.

    Example:
        >>> [method.name for method in default_candidates(5000, 2)]
        ['uncalibrated', 'temperature', 'svs', 'sms', 'platt', 'beta', 'quadratic', 'ets', 'isotonic', 'venn_abers']
    """
    if _is_few(n, k) and not absent:
        return Uncalibrated(), TemperatureScaling(), steady_candidate(n, k), PlattScaling()
    matrix = (StructuredMatrixScaling(),) if n * k * k <= _MATRIX_WORK else ()
    steady = (Uncalibrated(), TemperatureScaling(), StructuredVectorScaling(), *matrix)
    candidates = (*steady, *(_challengers_of_two() if k == 2 else _challengers(n, k)))
    return tuple(method for method in candidates if method in _CLASS_SYMMETRIC) if absent else candidates


def steady_candidate(n: int, k: int, *, absent: int = 0) -> Calibrator:
    """Return the one of :func:`default_candidates` that is taken unless cross-validation speaks against it.

    Structured matrix scaling where there are two samples per weight, else structured vector scaling; a temperature
    where a class has no samples. Their penalties let the samples decide how much is learned, so that they are seldom
    far behind the best, whatever the model; a hundred samples could not tell which method that is.

    Example:
        >>> steady_candidate(5000, 10).name, steady_candidate(5000, 100).name
        ('sms', 'svs')
    """
    if absent:
        return TemperatureScaling()
    is_wide = n < _SAMPLES_PER_WEIGHT * k * k or n * k * k > _MATRIX_WORK
    return StructuredVectorScaling() if is_wide else StructuredMatrixScaling()


def steady_partner(n: int, k: int, *, absent: int = 0) -> Calibrator | None:
    """Return the method of :func:`default_candidates` that the steady one is averaged with, if there is one.

    Platt scaling with few samples: it fits every class separately, and errs where structured matrix scaling, which fits
    all of them together, does not. With more samples Dirichlet calibration, the same kind of map with penalties that
    are searched.

    Example:
        >>> steady_partner(100, 3).name, steady_partner(5000, 10).name, steady_partner(5000, 100)
        ('platt', 'dirichlet_odir', None)
    """
    if absent:
        return None
    if _is_few(n, k):
        return PlattScaling()
    return DirichletODIR() if k > 2 and _can_search(n, k) else None


def _is_few(n: int, k: int) -> bool:
    return n <= _FEW_SAMPLES and k <= _FEW_CLASSES


def _can_search(n: int, k: int) -> bool:
    """Whether there are samples enough to search the penalties of a matrix, and not too many."""
    return n >= _SAMPLES_PER_SEARCHED_WEIGHT * k * k and n * k * k <= _MATRIX_WORK


def _challengers_of_two() -> tuple[Calibrator, ...]:
    scaled = (PlattScaling(), BetaCalibration(), QuadraticScaling(), EnsembleTemperatureScaling())
    return (*scaled, IsotonicRegression(), VennAbers())


def _challengers(n: int, k: int) -> tuple[Calibrator, ...]:
    allowed: list[tuple[Calibrator, bool]] = [
        (EnsembleTemperatureScaling(), True),
        (DiagonalOrderPreserving(), True),
        (IsotonicPooled(), True),
        (_POOLED_AFTER_TEMPERATURE, True),
        (IsotonicOneVsRest(), n >= _SAMPLES_PER_CURVE * k),
        (OrderInvariant(), True),
        (OrderPreserving(), n >= _SAMPLES_PER_SEEN_CLASS * k),
        (DirichletODIR(), _can_search(n, k)),
    ]
    return tuple(method for method, has_enough in allowed if has_enough)


class Choice(NamedTuple):
    """The ranking of the candidates, the one that is taken, and its map, fitted on all samples."""

    ranking: Ranking
    taken: Standing
    map: Map


@final
@dataclass(frozen=True)
class Auto(Calibrator):
    """Try several methods by cross-validation, choose one by its proper score, and fit it on all samples.

    The default candidates (:func:`default_candidates`) include a steady one, structured matrix or vector scaling, which
    is seldom far behind the best whatever the model is. It is taken unless cross-validation speaks against it by three
    standard errors. With few samples that keeps noise from picking a flexible method; with many it finds the winner.
    The steady one has a partner where the samples allow (:func:`steady_partner`); where they cannot decide between the
    two, the log-probabilities of both are averaged, with weights from their scores. With 500 samples or fewer only
    these two, temperature scaling and no calibration are tried. Of candidates that were given, the first, from simple
    to complex, that is within one standard error of the best is taken. No calibration is always a candidate.

    The choice is made by log-loss (or Brier score), never by ECE, which is lowest for maps that give every sample the
    same confidence; a warning says where ECE, or the other proper score, would have chosen otherwise. The test set
    plays no part.

    It costs as many fits as there are candidates, times the folds that each is tried in: those that are behind the
    steady one in the first fold are tried in no other. It hurts where the calibration samples have another distribution
    than later ones: the choice is then as wrong as every fit.

    Formula: m* = the steady m₀, or the lowest m with CV(m) − CV(m₀) < −3 se(CV(m) − CV(m₀)); of m₀ and its partner m₁,
        q ∝ q₀^w q₁^(1 − w), w/(1 − w) = exp(n (CV(m₁) − CV(m₀))/4)
    Samples: at least two per fold; a hundred or more to distinguish methods. With fewer the steady one is kept.

    Args:
        candidates: From simple to complex; None takes those of :func:`default_candidates`, by the number of samples and
            classes; where a class has no samples, only those that treat all classes alike, with a warning.
        score: "nll", the log-loss, or "brier", which weighs confident errors less.
        folds: Number of folds.
        seed: Random seed of the fold assignment.

    Raises:
        FitError: If there are fewer than two samples per fold.
    """

    name = "auto"
    title = "Best of several, by cross-validation"
    family = "composition"
    paper = Paper(
        "Breiman et al.",
        1984,
        "Classification and Regression Trees",
        "doi:10.1201/9781315139470",
        "the one-standard-error rule",
    )

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
        """Rank the candidates by their score on samples they were not fitted on."""
        candidates, steady, partner = self.candidates, None, None
        if candidates is None:
            n, k, absent = len(predictions), predictions.n_classes, len(absent_classes(predictions))
            candidates = default_candidates(n, k, absent=absent)
            steady, partner = steady_candidate(n, k, absent=absent), steady_partner(n, k, absent=absent)
        return rank(
            predictions, candidates, score=self.score, folds=self.folds, seed=self.seed, steady=steady, partner=partner
        )

    def choose(self, predictions: Predictions) -> Choice:
        """Choose a candidate and fit it on all samples.

        Example:
            >>> import torch
            >>> logits = 3 * torch.randn(300, 4, generator=torch.Generator().manual_seed(0))
            >>> labels = (logits / 3).softmax(1).multinomial(1, generator=torch.Generator().manual_seed(1))[:, 0]
            >>> Auto((TemperatureScaling(),)).choose(Predictions(logits, labels)).taken.name
            'temperature'
        """
        ranking = self.rank(predictions)
        failures = []
        # The chosen one, then the others by score: the last resort, no calibration, can always be fitted.
        for standing in (ranking.chosen, *(other for other in ranking.fitted if other is not ranking.chosen)):
            try:
                fitted = standing.calibrator.fit_without_scores(predictions)
            except CalibrantError as error:
                failures.append(f"{standing.name} could be fitted on every fold but not on all samples: {error}")
                continue
            for failure in failures:
                warnings.warn(failure, CalibrantWarning, stacklevel=3)
            return Choice(ranking, standing, fitted)
        raise AssertionError("no calibration can always be fitted")

    def _fit(self, predictions: Predictions) -> Fitted:
        absent = absent_classes(predictions)
        if self.candidates is None and len(absent):
            warnings.warn(
                f"no calibration samples of class {class_names(absent, predictions)}: methods with parameters for "
                "every class would learn that it never occurs, which held-out samples cannot show, and were left out. "
                "Gather samples of it to have them tried.",
                CalibrantWarning,
                stacklevel=3,
            )
        ranking, taken, fitted = self.choose(predictions)
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
        if taken is ranking.chosen and ranking.scores_disagree:
            warnings.warn(
                f"the two proper scores disagree: {taken.name} changes {ranking.score} by {taken.to_uncalibrated} and "
                f"{ranking.other_score} by {taken.other_to_uncalibrated} against no calibration. If "
                f"{ranking.other_score} is what counts, choose by it: score={ranking.other_score}.",
                CalibrantWarning,
                stacklevel=2,
            )
        certificate = None if fitted.summary is None else fitted.summary.certificate
        return Fitted(fitted, certificate, tuple(_notes(ranking, taken)))


def _notes(ranking: Ranking, taken: Standing) -> list[str]:
    """The method that was taken and why, then the results of all candidates."""
    basis = f"{ranking.folds}-fold cross-validated {ranking.score}"
    if isinstance(taken.calibrator, Uncalibrated):
        lines = [f"chosen by {basis}: uncalibrated, which leaves the predictions unchanged ({taken.score:.4f})"]
    else:
        lines = [f"chosen by {basis}: {taken.name} ({taken.score:.4f}), {taken.to_uncalibrated} against no calibration"]
    averaged: tuple[Calibrator, ...] = ()
    if isinstance(taken.calibrator, Pool):
        averaged = taken.calibrator.members
        weights = " and ".join(f"{weight:.2f}" for weight in taken.calibrator.weights)
        lines.append(f"the log-probabilities of {taken.name} are averaged, with weights {weights}")
    if taken is ranking.chosen and ranking.temperature_is_enough:
        lines.append(f"temperature scaling is enough: {taken.name} is not clearly better ({taken.to_temperature})")
    best, finalists = ranking.best, ranking.finalists
    if taken is not best and best.score < taken.score and best.calibrator not in averaged:
        lower = f"{best.name} scored lower ({best.score:.4f}), but "
        if ranking.steady is None:
            lines.append(f"{lower}{taken.name} is simpler and no worse beyond one standard error: {taken.to_best}")
        else:
            steady = next(standing.name for standing in ranking.standings if standing.place == ranking.steady)
            lines.append(f"{lower}not beyond doubt: {best.to_steady} against {steady}")
    lines.append("ranking: " + ", ".join(f"{standing.name} {standing.score:.4f}" for standing in finalists))
    behind = [standing.name for standing in ranking.fitted if standing not in finalists]
    if behind:
        lines.append(f"behind in the first folds, and not tried in the others: {', '.join(behind)}")
    return [*lines, *(f"{one.name} was left out: {one.failure}" for one in ranking.standings if one.failure)]
