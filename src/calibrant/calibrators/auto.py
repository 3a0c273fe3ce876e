"""The calibrator that suits the data best, chosen by cross-validation, and averaged with a partner where that helps."""

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, final

from calibrant.calibrators.affine import (
    StructuredMatrixScaling,
    StructuredVectorScaling,
    TemperatureScaling,
    Uncalibrated,
)
from calibrant.calibrators.base import Calibrator, Fitted, absent_classes, check_calibrators, class_names
from calibrant.calibrators.binning import IsotonicOneVsRest, IsotonicPooled, IsotonicRegression
from calibrant.calibrators.curves import VennAbers
from calibrant.calibrators.ensembles import Chain, EnsembleTemperatureScaling, LogOpinionPool
from calibrant.calibrators.logistic import BetaCalibration, PlattScaling, QuadraticScaling
from calibrant.calibrators.odir import DirichletODIR
from calibrant.calibrators.order_preserving import DiagonalOrderPreserving, OrderInvariant, OrderPreserving
from calibrant.calibrators.selection import CandidateResult, Ranking, Score, rank
from calibrant.checks import AtLeastTwo, Seed, check_options
from calibrant.errors import CalibrantError, warn
from calibrant.maps import Map
from calibrant.paper import Paper
from calibrant.predictions import OF_CORRECTNESS, Predictions

# Up to this n k² a fit of structured matrix scaling takes a few seconds; six of them are then half a minute.
_MATRIX_WORK = 2e9
# With fewer samples per weight the penalty dominates a matrix: then it is no better than a vector.
_SAMPLES_PER_WEIGHT = 2
# Dirichlet calibration chooses its penalties by cross-validation, which needs more samples and takes longer.
_SAMPLES_PER_SEARCHED_WEIGHT = 5
# With so few samples of so few classes cross-validation cannot distinguish many methods; all of a few are averaged.
_FEW_SAMPLES, _FEW_CLASSES = 500, 10
# A curve for each class needs samples of each; so does a network that sees which class is which.
_SAMPLES_PER_CURVE = 20
_SAMPLES_PER_SEEN_CLASS = 50


class CandidateSet(NamedTuple):
    """Methods to choose from, the one that is chosen unless another is clearly better, and those to average it with.

    Without a default, the first candidate near the best is chosen.
    """

    candidates: tuple[Calibrator, ...]
    default: Calibrator | None = None
    partners: tuple[Calibrator, ...] = ()


def candidate_set(n: int, k: int, *, absent: int = 0, of_correctness: bool = False) -> CandidateSet:
    """Return the methods that ``auto`` chooses from, each the best on some data; the default one; its partners.

    First the structured family, in which each method equals the one before it as long as the samples do not show more,
    then the alternatives. The penalties of the default one let the samples decide how much is learned. Its partner is
    Dirichlet calibration, the same kind of map with penalties that are searched.

    With at most 500 samples of ten classes the lowest of many scores would be luck. So all of a few are averaged: the
    two simplest hold back the two others where these follow noise, and Platt scaling, which fits every class
    separately, errs where structured matrix scaling, which fits all of them together, does not.

    If a class has no samples, only methods without parameters for single classes are left: the others would learn that
    the class never occurs, and no held-out sample shows the harm.

    A confidence in being right may have to cross 50 %, which the structured family learns last and a temperature never
    does: the default is then the simplest that can, Platt scaling, as in :func:`calibrant.comparison.compare`.

    Args:
        n: Number of calibration samples.
        k: Number of classes.
        absent: Number of classes without samples.
        of_correctness: Whether the classes are wrong and right.

    Example:
        >>> [method.name for method in candidate_set(5000, 2).candidates]
        ['uncalibrated', 'temperature', 'svs', 'sms', 'platt', 'beta', 'quadratic', 'ets', 'isotonic', 'venn_abers']
        >>> sets = candidate_set(100, 3), candidate_set(5000, 10), candidate_set(5000, 100)
        >>> [" & ".join(method.name for method in (one.default, *one.partners)) for one in sets]
        ['sms & uncalibrated & temperature & platt', 'sms & dirichlet_odir', 'svs']
    """
    simplest = (Uncalibrated(), TemperatureScaling())
    pooled = (IsotonicPooled(), Chain((TemperatureScaling(), IsotonicPooled())))
    if of_correctness and not absent:
        others = (BetaCalibration(), QuadraticScaling(), VennAbers(), IsotonicOneVsRest())
        return CandidateSet((Uncalibrated(), PlattScaling(), *others), PlattScaling())
    symmetric = (EnsembleTemperatureScaling(), *((DiagonalOrderPreserving(), *pooled) if k > 2 else ()))
    if absent:
        return CandidateSet((*simplest, *symmetric, *((OrderInvariant(),) if k > 2 else ())), TemperatureScaling())
    is_matrix_affordable = n * k * k <= _MATRIX_WORK
    has_default_matrix = is_matrix_affordable and n >= _SAMPLES_PER_WEIGHT * k * k
    default = StructuredMatrixScaling() if has_default_matrix else StructuredVectorScaling()
    if n <= _FEW_SAMPLES and k <= _FEW_CLASSES:
        return CandidateSet((*simplest, default, PlattScaling()), default, (*simplest, PlattScaling()))
    structured = (*simplest, StructuredVectorScaling(), *((StructuredMatrixScaling(),) if is_matrix_affordable else ()))
    if k == 2:
        scaled = (PlattScaling(), BetaCalibration(), QuadraticScaling(), *symmetric)
        return CandidateSet((*structured, *scaled, IsotonicRegression(), VennAbers()), default)
    has_partner = is_matrix_affordable and n >= _SAMPLES_PER_SEARCHED_WEIGHT * k * k
    partners = (DirichletODIR(),) if has_partner else ()
    alternatives = (
        *symmetric,
        IsotonicOneVsRest() if n >= _SAMPLES_PER_CURVE * k else None,
        OrderInvariant(),
        OrderPreserving() if n >= _SAMPLES_PER_SEEN_CLASS * k else None,
        *partners,
    )
    return CandidateSet((*structured, *(method for method in alternatives if method is not None)), default, partners)


_BREIMAN = Paper("Breiman et al.", 1984, "Classification and Regression Trees", "doi:10.1201/9781315139470",
                 "the one-standard-error rule, for candidates that are given")  # fmt: skip


@final
@dataclass(frozen=True)
class Auto(Calibrator, name="auto", title="Best of several, by cross-validation", family="composition", paper=_BREIMAN):
    """Try several methods by cross-validation, choose one by its proper score, and fit it on all samples.

    One of the methods that are tried (:func:`candidate_set`) is the default candidate: structured matrix or vector
    scaling, which is seldom far behind the best whatever the model is, and of confidences in being right Platt scaling.
    It is chosen unless another is better by three standard errors: with few samples that keeps noise from picking a
    flexible method; with many it finds the best one.
    The default candidate may have partners: the log-probabilities of all that the samples cannot tell apart are
    averaged, with weights from their scores. With 500 samples or fewer of ten classes these are all that is tried: no
    calibration, temperature, structured and Platt scaling. Of candidates that were given, the first, from simple to
    complex, that is within one standard error of the best is chosen. No calibration is always a candidate.

    The choice is made by log-loss (or Brier score), never by ECE, which is lowest for maps that give every sample the
    same confidence; a warning says where ECE, or the other proper score, would have chosen otherwise. The test set
    plays no part.

    It costs as many fits as there are candidates, times the folds that each is tried in: those that are behind the
    default candidate in the first fold are tried in no other. It fails if the calibration samples are not
    representative: the choice is then as wrong as every fit.

    Formula: m* = the default m₀, or the lowest m with CV(m) − CV(m₀) < −3 se(CV(m) − CV(m₀)); of m₀ and its partners,
        q ∝ Π_i q_i^w_i, w_i ∝ exp(−n CV(m_i)/4)
    Samples: at least two per fold; a hundred or more to distinguish methods. With fewer they are averaged.

    Args:
        candidates: From simple to complex; None takes those of :func:`candidate_set`, with a warning if some were left
            out because a class has no samples.
        score: "nll", the log-loss, or "brier", which weighs confident errors less.
        folds: Number of folds.
        seed: Random seed of the fold assignment.

    Raises:
        FitError: If there are fewer than two samples per fold.
    """

    candidates: tuple[Calibrator, ...] | None = None
    score: Score = "nll"
    folds: AtLeastTwo = 5
    seed: Seed = 0

    def __post_init__(self) -> None:
        if self.candidates is not None:
            check_calibrators(self.candidates, "candidates")
        check_options(self)

    def rank(self, predictions: Predictions) -> Ranking:
        """Rank the candidates by their score on samples they were not fitted on."""
        n, k, absent = int(predictions.effective_size), predictions.n_classes, len(absent_classes(predictions))
        given = CandidateSet(self.candidates or ())
        if self.candidates is None:
            given = candidate_set(n, k, absent=absent, of_correctness=predictions.class_names == OF_CORRECTNESS)
        ranked = partial(rank, predictions, score=self.score, folds=self.folds, seed=self.seed)
        return ranked(given.candidates, default=given.default, partners=given.partners)

    def choose(self, predictions: Predictions) -> tuple[Ranking, CandidateResult, Map]:
        """Rank the candidates and fit the chosen one on all samples, or the next by score where that fails."""
        ranking, failures = self.rank(predictions), []
        chosen = ranking.chosen
        # The last resort, no calibration, can always be fitted.
        for result in (chosen, *(other for other in ranking.fitted if other is not chosen)):
            try:
                fitted = result.calibrator.fit_without_scores(predictions)
            except CalibrantError as error:
                failures.append(f"{result.name} could be fitted on every fold but not on all samples: {error}")
                continue
            for failure in failures:
                warn(failure)
            return ranking, result, fitted
        raise AssertionError("no calibration can always be fitted")

    def _fit(self, predictions: Predictions) -> Fitted:
        absent = absent_classes(predictions)
        if self.candidates is None and len(absent):
            warn(
                f"no calibration samples of class {class_names(absent, predictions)}: methods with parameters for "
                "every class would learn that it never occurs, which held-out samples cannot show, and were left out. "
                "Gather samples of it to have them tried."
            )
        ranking, taken, fitted = self.choose(predictions)
        if ranking.ece_misleads:
            other = ranking.lowest_ece
            warn(
                f"the proper score and the calibration error disagree: {ranking.score} takes {taken.name} (ece "
                f"{taken.ece:.4f}), ece would take {other.name} (ece {other.ece:.4f}), whose {ranking.score} is "
                f"{other.to_best} above the best. {taken.name} is kept: a low ece alone does not make good "
                "probabilities."
            )
        if taken is ranking.chosen and ranking.scores_disagree:
            warn(
                f"the two proper scores disagree: {taken.name} changes {ranking.score} by {taken.to_uncalibrated} and "
                f"{ranking.other_score} by {taken.other_to_uncalibrated} against no calibration. If "
                f"{ranking.other_score} is what counts, choose by it: score={ranking.other_score}."
            )
        if taken.to_uncalibrated.low > 0:
            change = f"{ranking.score} {taken.to_uncalibrated}"
            warn(f"{taken.name} is worse than no calibration in cross-validation, {change}: compare both on others.")
        certificate = None if fitted.summary is None else fitted.summary.certificate
        return Fitted(fitted, certificate, tuple(_notes(ranking, taken)))


def _notes(ranking: Ranking, taken: CandidateResult) -> list[str]:
    """Say which method was taken and why, then the results of all candidates."""
    basis = f"{ranking.folds}-fold cross-validated {ranking.score}"
    if isinstance(taken.calibrator, Uncalibrated):
        lines = [f"chosen by {basis}: uncalibrated, which leaves the predictions unchanged ({taken.score:.4f})"]
    else:
        lines = [f"chosen by {basis}: {taken.name} ({taken.score:.4f}), {taken.to_uncalibrated} against no calibration"]
    averaged: tuple[Calibrator, ...] = ()
    if isinstance(taken.calibrator, LogOpinionPool):
        averaged = taken.calibrator.members
        weights = ", ".join(f"{weight:.2f}" for weight in taken.calibrator.weights)
        lines.append(f"the log-probabilities of {taken.name} are averaged, with weights {weights}")
    if taken is ranking.chosen and ranking.temperature_is_enough:
        about = f"{taken.name} is not clearly better ({taken.to_temperature})"
        lines.append(f"temperature scaling would do about as well: {about}")
    best, finalists = ranking.best, ranking.finalists
    if taken is not best and best.score < taken.score and best.calibrator not in averaged:
        lower = f"{best.name} scored lower ({best.score:.4f}), but "
        if (default := ranking.default) is None:
            lines.append(f"{lower}{taken.name} is simpler and no worse beyond one standard error: {taken.to_best}")
        else:
            lines.append(f"{lower}not by three standard errors: {best.to_default} against {default.name}")
    lines.append("ranking: " + ", ".join(f"{result.name} {result.score:.4f}" for result in finalists))
    behind = [result.name for result in ranking.fitted if result not in finalists]
    if behind:
        lines.append(f"behind in the first folds, and not tried in the others: {', '.join(behind)}")
    return [*lines, *(f"{one.name} was left out: {one.failure}" for one in ranking.results if one.failure)]
