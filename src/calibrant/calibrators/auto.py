"""The calibrator that suits the data best, chosen by cross-validation, and averaged with a partner where that helps."""

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, final, get_args

from calibrant.calibrators.affine import (
    StructuredMatrixScaling,
    StructuredVectorScaling,
    TemperatureScaling,
    Uncalibrated,
)
from calibrant.calibrators.base import (
    Calibrator,
    CalibratorFamily,
    Fitted,
    absent_classes,
    check_calibrators,
    some_names,
)
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

__all__ = ["Auto", "Choice", "default_candidates", "steady_candidate", "steady_partner"]


# Up to this n k² a fit of structured matrix scaling takes a few seconds; six of them are then half a minute.
_MATRIX_WORK = 2e9
# Fewer samples for each of the k² weights leave a matrix to its penalty: then it is no better than a vector.
_SAMPLES_A_WEIGHT = 2
# Dirichlet calibration chooses its penalties by cross-validation, which needs more and takes longer.
_SAMPLES_A_SEARCHED_WEIGHT = 5
# With so few samples of so few classes no cross-validation tells methods apart; the steady ones are averaged.
_FEW_SAMPLES, _FEW_CLASSES = 500, 10
# A curve for each class needs samples of each, a network that sees which class is which as well.
_SAMPLES_A_CURVE = 20
_SAMPLES_A_SEEN_CLASS = 50

_POOLED_AFTER_TEMPERATURE = Chain((TemperatureScaling(), IsotonicPooled()))
# They have no numbers of their own for a class, so that one without samples is not driven out.
_ALIKE = (
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

    Steady are nothing, temperature, structured vector scaling and structured matrix scaling (where n k² is at most
    2·10⁹): each is the one before it as long as the samples do not show more. Challengers of two classes: Platt, beta,
    quadratic, ensemble temperature, isotonic, Venn-Abers. Of more: ensemble temperature, the diagonal function, pooled
    isotonic by itself and after a temperature, isotonic regression of each class (20 samples a class), the
    order-invariant network, the order-preserving one (50 a class), and Dirichlet calibration (5 a weight). With at most
    500 samples of ten classes there are none but Platt scaling: the lowest of many scores would be luck. Where a
    class has no samples, only those that treat all classes alike are left: the others would learn that it never occurs,
    and no held-out sample shows the harm.

    Args:
        n: Calibration samples.
        k: Classes.
        absent: How many of them have no samples.

    Example:
        >>> [method.name for method in default_candidates(5000, 2)]
        ['uncalibrated', 'temperature', 'svs', 'sms', 'platt', 'beta', 'quadratic', 'ets', 'isotonic', 'venn_abers']
    """
    if _few(n, k) and not absent:
        return Uncalibrated(), TemperatureScaling(), steady_candidate(n, k), PlattScaling()
    matrix = (StructuredMatrixScaling(),) if n * k * k <= _MATRIX_WORK else ()
    steady = (Uncalibrated(), TemperatureScaling(), StructuredVectorScaling(), *matrix)
    candidates = (*steady, *(_challengers_of_two() if k == 2 else _challengers(n, k)))
    return tuple(each for each in candidates if each in _ALIKE) if absent else candidates


def steady_candidate(n: int, k: int, *, absent: int = 0) -> Calibrator:
    """The one of :func:`default_candidates` that cross-validation must speak against, or it is taken.

    Structured matrix scaling where there are two samples for each weight, else structured vector scaling; a temperature
    where a class has no samples. Their penalties let the samples decide how much is learned, so that they are seldom
    far behind the best, whatever the model; a hundred samples could not tell which method that is.

    Example:
        >>> steady_candidate(5000, 10).name, steady_candidate(5000, 100).name
        ('sms', 'svs')
    """
    if absent:
        return TemperatureScaling()
    wide = n < _SAMPLES_A_WEIGHT * k * k or n * k * k > _MATRIX_WORK
    return StructuredVectorScaling() if wide else StructuredMatrixScaling()


def steady_partner(n: int, k: int, *, absent: int = 0) -> Calibrator | None:
    """Return the method of :func:`default_candidates` that the steady one is averaged with, if there is one.

    Platt scaling with few samples: it looks at every class by itself, and errs where structured matrix scaling, which
    looks at all of them together, does not. With more samples Dirichlet calibration, the same kind of map with
    penalties that are searched for.

    Example:
        >>> steady_partner(100, 3).name, steady_partner(5000, 10).name, steady_partner(5000, 100)
        ('platt', 'dirichlet_odir', None)
    """
    if absent:
        return None
    if _few(n, k):
        return PlattScaling()
    return DirichletODIR() if k > 2 and _searched(n, k) else None


def _few(n: int, k: int) -> bool:
    return n <= _FEW_SAMPLES and k <= _FEW_CLASSES


def _searched(n: int, k: int) -> bool:
    """Whether there are samples enough to search the penalties of a matrix, and not too many."""
    return n >= _SAMPLES_A_SEARCHED_WEIGHT * k * k and n * k * k <= _MATRIX_WORK


def _challengers_of_two() -> tuple[Calibrator, ...]:
    scaled = (PlattScaling(), BetaCalibration(), QuadraticScaling(), EnsembleTemperatureScaling())
    return (*scaled, IsotonicRegression(), VennAbers())


def _challengers(n: int, k: int) -> tuple[Calibrator, ...]:
    allowed: list[tuple[Calibrator, bool]] = [
        (EnsembleTemperatureScaling(), True),
        (DiagonalOrderPreserving(), True),
        (IsotonicPooled(), True),
        (_POOLED_AFTER_TEMPERATURE, True),
        (IsotonicOneVsRest(), n >= _SAMPLES_A_CURVE * k),
        (OrderInvariant(), True),
        (OrderPreserving(), n >= _SAMPLES_A_SEEN_CLASS * k),
        (DirichletODIR(), _searched(n, k)),
    ]
    return tuple(method for method, enough in allowed if enough)


class Choice(NamedTuple):
    """How the candidates did, the one that is taken, and its map, fitted on all samples."""

    ranking: Ranking
    taken: Standing
    map: Map


@final
@dataclass(frozen=True)
class Auto(Calibrator):
    """Try several methods by cross-validation, take the one whose proper score is low beyond doubt, fit it on all.

    The usual candidates (:func:`default_candidates`) have a steady one among them, structured matrix or vector scaling,
    which is seldom far behind the best whatever the model is. It is taken unless cross-validation speaks against it by
    three standard errors. With few samples that keeps noise from picking a flexible method; with many it finds the
    winner. The steady one has a partner where the samples allow (:func:`steady_partner`); where they cannot decide
    between the two, the log-probabilities of both are averaged, with weights from their scores. With 500 samples or
    fewer these two are all that is tried, beside temperature scaling and nothing. Of candidates that were given, the
    first, from simple to complex, that is within one standard error of the best is taken. Doing nothing is always a
    candidate.

    The choice is made by log-loss (or Brier score), never by ECE, which is lowest for maps that answer the same for
    every sample; a warning says where ECE, or the other proper score, would have chosen otherwise. The test set plays
    no part.

    It costs as many fits as there are candidates, times the folds that each is tried in: those that are behind the
    steady one in the first fold are tried in no other. It hurts where the calibration samples are not drawn like the
    samples to come: the choice is then as wrong as every fit.

    Formula: m* = the steady m₀, or the lowest m with CV(m) − CV(m₀) < −3 se(CV(m) − CV(m₀)); of m₀ and its partner m₁,
        q ∝ q₀^w q₁^(1 − w), w/(1 − w) = exp(n (CV(m₁) − CV(m₀))/4)
    Rows: at least two a fold; a hundred or more to tell methods apart. With fewer it keeps to the steady one.

    Args:
        candidates: From simple to complex; None takes those of :func:`default_candidates`, by the number of samples and
            classes; where a class has no samples, only those that treat all classes alike, with a warning.
        score: "nll", the log-loss, or "brier", which forgives confident mistakes.
        folds: Parts that the samples are dealt into.
        seed: Random seed of the deal.

    Raises:
        FitError: If there are fewer than two samples a fold.
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
        """How the candidates did on samples they were not fitted on."""
        candidates, steady, partner = self.candidates, None, None
        if candidates is None:
            n, k, absent = len(predictions), predictions.n_classes, len(absent_classes(predictions))
            candidates = default_candidates(n, k, absent=absent)
            steady, partner = steady_candidate(n, k, absent=absent), steady_partner(n, k, absent=absent)
        return rank(
            predictions, candidates, score=self.score, folds=self.folds, seed=self.seed, steady=steady, partner=partner
        )

    def choose(self, predictions: Predictions) -> Choice:
        """The candidate that is taken, fitted on all samples, and how all of them did.

        Example:
            >>> import torch
            >>> logits = 3 * torch.randn(300, 4, generator=torch.Generator().manual_seed(0))
            >>> labels = (logits / 3).softmax(1).multinomial(1, generator=torch.Generator().manual_seed(1))[:, 0]
            >>> from calibrant.calibrators import TemperatureScaling
            >>> Auto((TemperatureScaling(),)).choose(Predictions(logits, labels)).taken.name
            'temperature'
        """
        ranking = self.rank(predictions)
        return Choice(ranking, *_fit_first(predictions, _preference(ranking)))

    def _fit(self, predictions: Predictions) -> Fitted:
        if self.candidates is None:
            _warn_of_left_out(predictions)
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
                f"the two proper scores disagree: {taken.name} changes {ranking.score} by {taken.to_nothing} and "
                f"{ranking.other_score} by {taken.other_to_nothing} against doing nothing. If {ranking.other_score} "
                f"is what counts, choose by it: score={ranking.other_score}.",
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
    if taken.calibrator.name == "uncalibrated":
        lines = [f"chosen by {basis}: uncalibrated, which leaves the predictions unchanged ({taken.score:.4f})"]
    else:
        lines = [f"chosen by {basis}: {taken.name} ({taken.score:.4f}), {taken.to_nothing} against doing nothing"]
    if isinstance(taken.calibrator, Pool):
        weights = " and ".join(f"{weight:.2f}" for weight in taken.calibrator.weights)
        lines.append(f"the log-probabilities of {taken.name} are averaged, with weights {weights}")
    if taken.to_temperature.high >= 0 and taken.calibrator.name not in ("uncalibrated", "temperature"):
        # What a comparison on test samples would say of the same predictions.
        lines.append(f"temperature scaling is enough: {taken.name} is not clearly better ({taken.to_temperature})")
    lines += _why(ranking, taken)
    finalists = ranking.finalists
    lines.append("ranking: " + ", ".join(f"{each.name} {each.score:.4f}" for each in finalists))
    behind = [each.name for each in ranking.fitted if each not in finalists]
    if behind:
        lines.append(f"behind in the first folds, and not tried in the others: {', '.join(behind)}")
    lines += [f"{each.name} was left out: {each.failure}" for each in ranking.standings if each.failure]
    return lines


def _why(ranking: Ranking, taken: Standing) -> list[str]:
    """Why it is not the one with the lowest score, if so."""
    best = ranking.best
    averaged = taken.calibrator.members if isinstance(taken.calibrator, Pool) else ()
    if taken is best or best.score >= taken.score or best.calibrator in averaged:
        return []
    lower = f"{best.name} scored lower ({best.score:.4f}), "
    if ranking.steady is None:
        return [f"{lower}but {taken.name} is simpler and no worse beyond one standard error: {taken.to_best}"]
    return [f"{lower}but not beyond doubt: {best.to_steady} against {_named(ranking, ranking.steady)}"]


def _named(ranking: Ranking, place: int) -> str:
    return next(each.name for each in ranking.standings if each.place == place)
