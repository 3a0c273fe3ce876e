"""Base class of calibrators, the calibration samples they see, and the scores of a fit on its own samples."""

import dataclasses
import math
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias, Unpack, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from calibrant.checks import check_options, expression_of, set_facts, with_devices_of_inputs
from calibrant.errors import (
    CalibrantError,
    CalibrantWarning,
    FitError,
    InputError,
    caught_warnings,
    ours_in,
    warn,
    without_our_warnings,
)
from calibrant.maps import Curve, FitSummary, Map, OneVsRest, TwoClassMap
from calibrant.maps.curves import class_log_odds, predicted_log_odds
from calibrant.numerics.newton import Certificate
from calibrant.numerics.softmax import argmax_rows, full_precision, to_working_precision
from calibrant.paper import Paper
from calibrant.predictions import LABEL_FLOOR, PROB_FLOOR, Arrays, Predictions, as_predictions, by_unit


def absent_classes(predictions: Predictions, least: int = 1) -> Tensor:
    """Return the numbers of the classes that have fewer samples than ``least``."""
    return (predictions.label_counts < least).nonzero()[:, 0]


def warn_of_missing_classes(predictions: Predictions, name: str) -> None:
    """Warn about classes without calibration samples, in a method of this name that fits every class separately."""
    absent = absent_classes(predictions)
    if len(absent):
        warn(
            f"{name}: no calibration samples of class {class_names(absent, predictions)}; all that is learned about it "
            "is that it is rare, whatever the network predicts. Gather samples of it, or use a method that treats all "
            "classes alike, such as temperature or ets."
        )


def class_names(classes: Tensor, predictions: Predictions) -> str:
    """Return names, or else numbers, of classes for a message; the first five if they are many."""
    names = predictions.class_names
    shown = ", ".join(names[j] if names else str(j) for j in classes[:5].tolist())
    return shown + (f" and {len(classes) - 5} others" if len(classes) > 5 else "")


def assign_folds(n: int, folds: int, seed: int, device: torch.device | None = None) -> Tensor:
    """Assign n samples to folds at random, in even sizes: the number of the fold of every sample, (n,).

    Folds are not stratified by class: the held-out samples would then have the very class counts that the map was
    fitted to, and methods with a shift for every class would be rewarded for learning the noise in them. (With 100
    classes and 1,000 samples, structured matrix scaling seemed .010 better than a temperature and was .009 worse on new
    samples; with random folds its estimate was .012 worse.) So a rare class may be absent from a fit.

    Example:
        >>> assign_folds(7, 3, seed=0).bincount().tolist()
        [3, 2, 2]
    """
    fold = np.empty(n, dtype=np.int64)
    fold[np.random.default_rng(seed).permutation(n)] = np.arange(n) % folds
    return torch.from_numpy(fold).to(device)


def fold_positions(
    labels: Tensor, folds: int, seed: int, clusters: Tensor | None = None
) -> list[tuple[Tensor, Tensor]]:
    """Return the positions of the samples outside and inside of each fold that is not empty; a cluster is in one."""

    def assign(n: int) -> Tensor:
        if n < 2:  # of clusters
            raise FitError("folds need two clusters or more, as none is in two of them; got one. Gather more clusters.")
        return assign_folds(n, folds, seed, labels.device)

    fold = by_unit(len(labels), clusters, assign)
    numbers = range(int(fold.max()) + 1)
    return [((fold != number).nonzero()[:, 0], (fold == number).nonzero()[:, 0]) for number in numbers]


def cross_validation_splits(predictions: Predictions, folds: int) -> Iterator[tuple[Predictions, Predictions]]:
    """Yield the samples outside and inside each fold in turn, to fit on and to evaluate."""
    for others, held_out in fold_positions(predictions.labels, folds, 0, predictions.clusters):
        yield predictions.part(others), predictions[held_out]


def top_label(predictions: Predictions) -> tuple[Tensor, Tensor]:
    """Return the log-odds of the predicted class, as the map computes them, and whether it is the label, (n,) each."""
    normalised = predictions.normalised
    parts = [predicted_log_odds(to_working_precision(block.logits), normalised) for block in predictions.small_blocks()]
    predicted, log_odds = (torch.cat(column).squeeze(1) for column in zip(*parts, strict=True))
    return log_odds, predicted == predictions.labels


def one_vs_rest_log_odds(predictions: Predictions) -> tuple[Tensor, Tensor]:
    """Return log-odds of every class against the rest, one class per row, (c, n), and the numbers of these classes.

    Two classes are one problem, that of class 1, since the other is its mirror image.
    """
    classes = torch.arange(predictions.n_classes, device=predictions.logits.device)
    if predictions.n_classes == 2:
        logits = to_working_precision(predictions.logits)
        return (logits[:, 1] - logits[:, 0])[None], classes[1:]
    log_odds = predictions.by_blocks(lambda block: class_log_odds(to_working_precision(block.logits)))
    return log_odds.T.contiguous(), classes


def class_map(curve: Curve, n_classes: int) -> Map:
    """Return the map that applies a curve fitted on :func:`one_vs_rest_log_odds`."""
    return TwoClassMap(curve) if n_classes == 2 else OneVsRest(curve, n_classes=n_classes)


def log_odds_bounds(n: float, n_classes: int = 2) -> tuple[float, float]:
    """Return the log-odds of the smallest and largest probability that a map fitted on n samples gives to a class.

    These probabilities are 1/((n + 2)(k - 1)) and 1 - 1/(n + 2). The predicted class is one of two.

    Example:
        >>> [round(1 / (1 + math.exp(-bound)), 3) for bound in log_odds_bounds(8, n_classes=11)]
        [0.01, 0.9]
    """
    return -math.log((n + 2) * (n_classes - 1) - 1), math.log(n + 1)


def floored_log_odds(probs: Tensor, n: float, n_classes: int = 2) -> Tensor:
    """Return log-odds of probabilities kept within :func:`log_odds_bounds`, any shape; always finite."""
    # Clamped as log-odds, so that all values at a bound are equal; sums of weights may round to a share above 1.
    return torch.logit(probs.double().clamp(0, 1)).clamp(*log_odds_bounds(n, n_classes))


def _about_floor(predictions: Predictions, share: float) -> str:
    zeros = predictions.zero_cells
    assert zeros is not None, "only given probabilities have a floor"
    mixed = f"probabilities are mixed with the uniform distribution (weight {share:.2g}) before the fit, and by the map"
    if not predictions.uniform_share:
        return f"{mixed} (chosen by the method's own cross-validated log-loss)"
    percent = f"{100 * zeros.cells / zeros.of_cells:.1f} %"
    many = f"{percent} of the given probabilities are 0 or below {PROB_FLOOR:g}" if zeros.cells else "some are tiny"
    return f"{many}: {mixed} (chosen by cross-validated log-loss)"


# The map is first scored on as many samples as hold so many numbers, within bounds; on more if a score is worse there.
# Of very many samples a share is scored from the start: little compared with any fit.
_FIRST, _SECOND = (1 << 14, 100, 500), (1 << 16, 500, 10_000)
_SHARE = 256
_STANDARD_ERRORS = 2.0  # of the paired difference, beyond which a rise is no noise
_ROUNDING = 1e-4  # relative rise of a score that is not noted
_WORSE = 1e-3  # relative rise of a score that is worth a warning
_POINT = 0.01  # of accuracy
_TITLES = {"nll": "log-loss", "brier": "Brier score", "accuracy": "accuracy"}


@torch.no_grad()
def with_scores(
    summary: FitSummary,
    predictions: Predictions,
    apply: Callable[[Tensor, slice | Tensor], Tensor],
    *,
    warns: bool = True,
) -> FitSummary:
    """Return a fit's summary with log-loss, Brier score and accuracy on its own samples, without the map and with it.

    A few hundred of many samples are scored first, and some thousands only if a score is worse on those, so that this
    costs little compared with the fit. Scores that became worse are noted; it ``warns`` of those beyond noise. The map,
    ``apply``, takes logits, (m, k), and the positions of their samples among all.
    """
    n, k = len(predictions), predictions.n_classes
    few, many = (min(most, max(fewest, numbers // k)) for numbers, fewest, most in (_FIRST, _SECOND))
    few = min(many, max(few, n // _SHARE))
    drawn = torch.randint(n, (many,), generator=torch.Generator().manual_seed(0)).to(predictions.logits.device)
    places: slice | Tensor = slice(None) if n <= few else drawn[:few]
    scores, shares = _scores(predictions, places, apply), _shares(predictions, places)
    nll, brier, accuracy = (scores[1] - scores[0]) @ shares
    if few < min(n, many) and (nll > 0 or brier > 0 or accuracy < 0):
        places = slice(None) if n <= many else drawn
        scores, shares = _scores(predictions, places, apply), _shares(predictions, places)
    before, after = (dict(zip(_TITLES, (values @ shares).tolist(), strict=True)) for values in scores)
    worse, is_significant = _worse_scores(before, after, scores[1] - scores[0], shares)
    notes = summary.notes
    if worse:
        numbers = ", ".join(f"{_TITLES[key]} {before[key]:.4g} to {after[key]:.4g}" for key in worse)
        note = f"the map is worse than no calibration on the samples it was fitted on: {numbers}."
        if is_significant:
            note += " Compare it with other methods on other samples before you use it."
            if warns:
                warn(note)
        notes = (*notes, note)
    held = scores[1, 2, np.abs(scores[1, 0] - math.log(2)) < _POINT] if k == 2 else scores[1, 2, :0]
    if len(held) and (right := held.mean()) < 0.5 - 1.5 / math.sqrt(len(held)):  # three standard errors
        note = f"of samples with a calibrated confidence of 50 %, {100 * right:.0f} % are right: a method that keeps"
        notes = (*notes, f"{note} the predicted class cannot go below 50 % of two classes; isotonic_ovr and platt can.")
    return dataclasses.replace(summary, notes=notes, compared=scores.shape[2], before=before, after=after)


def _scores(
    predictions: Predictions, places: slice | Tensor, apply: Callable[[Tensor, slice | Tensor], Tensor]
) -> NDArray[np.float64]:
    """Return log-loss, Brier score and correctness of some samples, without the map and with it, (2, 3, m)."""
    given, labels = predictions.logits[places], predictions.labels[places]
    logits = torch.stack([to_working_precision(given), to_working_precision(apply(given, places))])
    correct = [argmax_rows(values) == labels for values in logits]  # the first class wins a tie
    gaps = logits.sub_(logits.amax(dim=2, keepdim=True))
    label_gap = gaps.gather(2, labels.expand(2, -1)[:, :, None])[:, :, 0].double().cpu().numpy()
    powers = gaps.exp_()
    total = powers.sum(dim=2).double().cpu().numpy()
    squares = powers.square_().sum(dim=2).double().cpu().numpy()
    scores = np.empty((2, 3, total.shape[1]))
    np.subtract(np.log(total), label_gap, out=scores[:, 0])
    if predictions.given_as_probs:
        scores[:, 0].clip(max=-math.log(LABEL_FLOOR), out=scores[:, 0])
    scores[:, 1] = squares / total**2 - 2 * np.exp(label_gap) / total + 1
    scores[:, 2] = torch.stack(correct).cpu().numpy()
    return scores


def _shares(predictions: Predictions, places: slice | Tensor) -> NDArray[np.float64]:
    """Return the share of each of some samples in their mean, (m,)."""
    counts = predictions.sample_counts
    weights = torch.ones_like(predictions.labels[places]) if counts is None else counts[places]
    shares: NDArray[np.float64] = (weights / weights.sum(dtype=torch.float64)).cpu().numpy()
    return shares


def _worse_scores(
    before: dict[str, float], after: dict[str, float], change: NDArray[np.float64], shares: NDArray[np.float64]
) -> tuple[list[str], bool]:
    """Return the scores that became worse, given their means and changes (3, m), and whether one did beyond noise."""
    # Scaled first, because squares of large changes overflow. One sample has no spread, and shows nothing but noise.
    largest = np.abs(change).max(axis=1, keepdims=True).clip(min=np.finfo(np.float64).tiny)
    relative = change / largest
    deviations = relative - (relative @ shares)[:, None]
    error = np.sqrt(deviations**2 @ shares**2) * largest[:, 0]
    noise = dict(zip(_TITLES, error if len(shares) > 1 else np.full(3, np.inf), strict=True))
    rises = {key: after[key] - before[key] for key in ("nll", "brier")}
    worse = [key for key, rise in rises.items() if rise > _ROUNDING * max(before[key], _POINT)]
    significant = any(rise > max(_WORSE * before[key], _STANDARD_ERRORS * noise[key]) for key, rise in rises.items())
    if after["accuracy"] < before["accuracy"] - _POINT:
        return [*worse, "accuracy"], True
    return worse, significant


# The accuracy of bins is estimated in so many folds, of at most so many samples: with more there is no need.
_FOLDS, _MOST_HELD_OUT = 5, 10_000

CalibratorFamily: TypeAlias = Literal["baseline", "scaling", "binning", "curve", "composition"]


class Fitted(NamedTuple):
    """A map, the certificate of its optimum (None where nothing was searched), and notes for the summary."""

    map: Map
    certificate: Certificate | None = None
    notes: tuple[str, ...] = ()


class Method(ABC):
    """A method of the literature with its options; concrete ones are frozen dataclasses.

    Their facts are keywords of the class, ``class Mine(Calibrator, name="mine", ...)``, or attributes in its body.
    Options are checked against their types (:func:`~calibrant.checks.check_options`).
    """

    name: ClassVar[str]
    title: ClassVar[str]
    family: ClassVar[CalibratorFamily]
    paper: ClassVar[Paper]
    preserves_accuracy: ClassVar[bool] = False  # the predicted class of a sample never changes
    preserves_ranking: ClassVar[bool] = False  # the more confident of two samples never becomes the less confident
    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]

    def __init_subclass__(cls, **facts: object) -> None:
        super().__init_subclass__()
        set_facts(cls, facts)

    def __post_init__(self) -> None:
        check_options(self)

    @final
    def settings(self) -> dict[str, Any]:
        """Return the options, as a file can hold them."""
        return {field.name: _plain(getattr(self, field.name)) for field in dataclasses.fields(self)}


class Calibrator(Method):
    """A method that is fitted on predictions alone."""

    aliases: ClassVar[tuple[str, ...]] = ()  # names in earlier versions, and in files that they wrote
    bins_every_class: ClassVar[bool] = False  # accuracy on the samples of the fit says little about that on others

    @abstractmethod
    def _fit(self, predictions: Predictions) -> Fitted:
        """Fit the map; raise a FitError that says why, if there is no optimum or it was not reached."""

    def uniform_share(self, predictions: Predictions) -> float:
        """Return the share of the uniform distribution that is mixed in before the fit, and by the map; 0 for none."""
        # The baseline changes nothing, and the parts of a composition mix in their own.
        return 0.0 if self.family in ("baseline", "composition") else predictions.uniform_share

    @final
    @with_devices_of_inputs
    def fit(self, *predictions: Predictions, **arrays: Unpack[Arrays]) -> Map:
        """Fit the calibrator on held-out predictions and return the map, with a summary of the fit.

        It warns if the map is worse than none on the samples that it was fitted on, by log-loss, Brier score or more
        than a point of accuracy; or if bins of every class lower the accuracy by more than a point on samples held out.

        Args:
            predictions: Samples that the model was not trained on, and on which the map will not be evaluated.
            arrays: Predictions as arrays by keyword instead: logits or probs, labels, and weights if there are any.

        Raises:
            FitError: If there is no optimum, or it was not reached; the message says why.
        """
        samples = as_predictions(predictions, f"{type(self).__name__}().fit", arrays)
        if not isinstance(samples, Predictions):
            raise InputError(f"{self.name} must be fitted on Predictions; got {type(samples).__name__}.")
        samples = samples.with_positive_weights()
        fitted = self.fit_without_scores(samples)
        assert fitted.summary is not None, "every fit leaves a summary"
        # A method with another criterion than the log-loss may raise it: a note, but no warning.
        warns, known = self.settings().get("criterion", "nll") == "nll", samples.normalised
        summary = with_scores(fitted.summary, samples, lambda logits, _: fitted.apply_as(logits, known), warns=warns)
        if note := self._lost_accuracy(samples):
            warn(note)
            summary = dataclasses.replace(summary, notes=(*summary.notes, note))
        fitted.summary = summary
        return fitted

    def _lost_accuracy(self, predictions: Predictions) -> str | None:
        """Return a note if bins of every class cost more than a point of accuracy on held-out samples."""
        n, right = len(predictions), 0.0
        if not self.bins_every_class or not 2 * _FOLDS <= n <= _MOST_HELD_OUT:
            return None
        with without_our_warnings():
            for fit_part, held_out in cross_validation_splits(predictions, _FOLDS):
                try:
                    fitted = self.fit_without_scores(fit_part)
                except FitError:
                    return None
                right += fitted.transform(held_out).top.accuracy * _mass(held_out)
        before, after = predictions.top.accuracy, right / _mass(predictions)
        if after >= before - _POINT:
            return None
        return (
            f"the map is worse than no calibration on samples held out in {_FOLDS} folds: accuracy {before:.4f} to "
            f"{after:.4f}. Its bins hold too few of these {n} samples: use more samples, fewer bins, or a method that "
            "keeps the predicted class."
        )

    @final
    @with_devices_of_inputs
    def fit_without_scores(self, predictions: Predictions) -> Map:
        """Fit as :meth:`fit` does, without scoring the map on its own samples: for one of many fits, as in folds."""
        start = time.perf_counter()
        predictions = predictions.with_positive_weights()
        with gathered_warnings() as warned, full_precision(predictions.logits):
            share = self.uniform_share(predictions)
            samples = predictions.mixed_with_uniform(share)
            samples = samples if samples.weights is None else samples[:]  # which has not been asked for its counts
            fitted = self._fit(samples)
        counts_weights = self.family in ("baseline", "composition") or "sample_counts" in vars(samples)
        if samples.weights is not None and not counts_weights:
            raise InputError(
                f"{self.name} must be fitted on samples without weights, because it ignores them; got weights. "
                "Repeat samples instead, or let the method read sample_counts of its predictions."
            )
        return self.finished(fitted, predictions, share, warned, rows=len(predictions), start=start)

    @final
    def finished(
        self,
        fitted: Fitted,
        predictions: Predictions,
        share: float,
        warned: Sequence[CalibrantWarning],
        *,
        rows: int,
        start: float,
    ) -> Map:
        """Return the map of a fit that began at a time, with its share of the uniform distribution and its summary."""
        made, certificate, notes = fitted
        made.class_names = predictions.class_names
        if share:
            made.mix_in(predictions.logits.new_tensor(share, dtype=torch.float64))
        mixed = [float(part.uniform_share or 0) for part in made.modules() if isinstance(part, Map)]
        if any(mixed):
            notes = (*notes, _about_floor(predictions, max(mixed)))
        seconds, notes = time.perf_counter() - start, (*notes, *map(str, warned))
        made.summary = FitSummary(
            method=self.name, settings=self.settings(), rows=rows, seconds=seconds, certificate=certificate, notes=notes
        )
        return made

    @property
    def expression(self) -> str:
        """The name with the options that differ from the defaults, as the command line accepts it."""
        return expression_of(self)


def _mass(predictions: Predictions) -> float:
    return len(predictions) if predictions.weights is None else float(predictions.weights.sum())


def _plain(value: object) -> Any:
    """Return calibrators as their name and options, sequences as lists, and everything else unchanged."""
    if isinstance(value, Calibrator):
        return {"method": value.name, **value.settings()}
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


class Trial(NamedTuple):
    """The outcome of :func:`try_fit`: a fitted map and the samples it transformed, or the reason of the failure."""

    map: Map | None = None
    transformed: Predictions | None = None
    failure: str | None = None
    notes: tuple[str, ...] = ()  # of the fit's summary, and the library's own warnings
    seconds: float = math.nan  # time of the fit


def try_fit(fit: Callable[[Predictions], Map], calibration: Predictions, test: Predictions | None = None) -> Trial:
    """Fit a map and transform other samples with it; collect the library's errors and warnings instead of raising.

    ``fit`` is the method of that name of a calibrator, or its ``fit_without_scores``.
    """
    with caught_warnings() as caught:
        try:
            fitted = fit(calibration)
            trial = Trial(fitted, None if test is None else fitted.transform(test))
        except CalibrantError as error:
            trial = Trial(failure=str(error))
    summary = None if trial.map is None else trial.map.summary
    notes = tuple(dict.fromkeys([*(summary.notes if summary else ()), *ours_in(caught)]))
    return trial._replace(notes=notes, seconds=summary.seconds if summary else math.nan)


def check_calibrators(values: object, name: str) -> None:
    """Check an option that must be a tuple of calibrators, and not the names of methods."""
    if not isinstance(values, tuple):
        raise InputError(f"{name} must be a tuple of calibrators; got {values!r}. For one method, write (method,).")
    for value in values:
        if not isinstance(value, Calibrator):
            raise InputError(
                f"{name} must all be calibrators, such as TemperatureScaling(); got {value!r}. "
                "catalogue.parse_calibrator builds one by its name."
            )


@contextmanager
def gathered_warnings() -> Iterator[list[CalibrantWarning]]:
    """Collect the library's own warnings of a fit, for its summary, and pass them on, also if the fit fails."""
    warned: list[CalibrantWarning] = []
    caught: list[warnings.WarningMessage] = []
    try:
        with caught_warnings() as caught:
            yield warned
    finally:
        warned += [warning.message for warning in caught if isinstance(warning.message, CalibrantWarning)]
        for warning in caught:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
