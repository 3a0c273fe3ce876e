"""What a calibrator is: a recipe with options, whose one verb gives a fitted map. There is no unfitted state."""

import dataclasses
import math
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias, Unpack, final

import torch

from calibrant.calibrators.floor import about_floor, with_floor
from calibrant.calibrators.folds import deal_folds
from calibrant.calibrators.own_samples import Compared, compare_on_own_samples
from calibrant.errors import (
    CalibrantError,
    CalibrantWarning,
    FitError,
    InputError,
    caught_warnings,
    ours_in,
    without_our_warnings,
)
from calibrant.maps import FitSummary, Map
from calibrant.numerics.certificate import Certificate
from calibrant.paper import Paper
from calibrant.predictions import Arrays, Predictions, TopLabel, as_predictions

__all__ = [
    "Calibrator",
    "CalibratorFamily",
    "Fitted",
    "Trial",
    "check_calibrators",
    "gathered_warnings",
    "try_fit",
    "with_comparison",
]

_POINT = 0.01  # of accuracy
# The accuracy of bins is looked at in so many folds, of at most so many samples: with more there is no need.
_FOLDS, _MOST_HELD_OUT = 5, 10_000

CalibratorFamily: TypeAlias = Literal["baseline", "scaling", "binning", "curve", "composition"]


class Fitted(NamedTuple):
    """A map, how well its optimum is known (None where there was nothing to search), and what else to tell of it."""

    map: Map
    certificate: Certificate | None = None
    notes: tuple[str, ...] = ()


class Calibrator(ABC):
    """A method of the literature with its options; concrete ones are frozen dataclasses.

    ``preserves_accuracy``: the predicted class of a row never changes. ``preserves_ranking``: of two rows, the one with
    the higher confidence never gets the lower (they may become equal). ``bins_every_class``: there are bins of every
    class, so many that the accuracy on the samples of the fit says little about that on others.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    family: ClassVar[CalibratorFamily]
    paper: ClassVar[Paper]
    preserves_accuracy: ClassVar[bool]
    preserves_ranking: ClassVar[bool]
    bins_every_class: ClassVar[bool] = False

    @abstractmethod
    def learn(self, predictions: Predictions) -> Fitted:
        """Find the map; called by :meth:`fit`.

        Raises:
            FitError: If there is no optimum, or it was not reached; the message says why.
        """

    def uniform_share(self, predictions: Predictions) -> float:
        """Return the share of the uniform distribution that is mixed in before the fit, and by the map; 0 for none."""
        # What changes nothing by itself, or leaves it to others, needs none of its own.
        return 0.0 if self.family in ("baseline", "composition") else predictions.uniform_share

    @final
    def fit(self, *predictions: Predictions, **arrays: Unpack[Arrays]) -> Map:
        """Fit the calibrator on held-out predictions.

        Args:
            predictions: Samples that the model was not trained on, and on which the map will not be evaluated.
            arrays: The same as arrays by keyword: logits or probs, and labels.

        Returns:
            The fitted map, with a summary of the fit.

        Raises:
            FitError: If there is no optimum, or it was not reached; the message says why.
            InputError: If a table of top labels is given, which has no logits to map.

        Warns:
            CalibrantWarning: If the map is worse than none on the samples that it was fitted on, by log-loss, Brier
                score or more than a point of accuracy; or if bins of every class lower the accuracy by more than a
                point on samples held out in folds.
        """
        samples = self._checked(as_predictions(predictions, f"{type(self).__name__}().fit", arrays))
        fitted = self.fit_uncompared(samples)
        found = compare_on_own_samples(samples, lambda logits, _: fitted(logits))
        assert fitted.summary is not None, "every fit leaves a summary"
        # A method that was asked for another criterion than the log-loss does what it was asked for: noted, no more.
        on_purpose = self.settings().get("criterion", "nll") != "nll"
        fitted.summary = with_comparison(fitted.summary, found._replace(is_serious=found.is_serious and not on_purpose))
        note = self._lost_accuracy(samples)
        if note is not None:
            warnings.warn(note, CalibrantWarning, stacklevel=2)
            fitted.summary = dataclasses.replace(fitted.summary, notes=(*fitted.summary.notes, note))
        return fitted

    def _lost_accuracy(self, predictions: Predictions) -> str | None:
        """Return what the method costs in accuracy on samples held out in folds, if that is more than a point.

        Bins of every class are fitted to few samples each, and can lose on new ones what they gain on their own.
        """
        n = len(predictions)
        if not self.bins_every_class or not 2 * _FOLDS <= n <= _MOST_HELD_OUT:
            return None
        fold, right = deal_folds(predictions.labels, _FOLDS, seed=0), 0
        with without_our_warnings():
            for number in range(_FOLDS):
                held = predictions[(fold == number).nonzero()[:, 0]]
                try:
                    fitted = self.fit_uncompared(predictions[(fold != number).nonzero()[:, 0]])
                except FitError:
                    return None
                right += int(fitted.transform(held).correct.sum())
        before, after = float(predictions.correct.double().mean()), right / n
        if after >= before - _POINT:
            return None
        return (
            f"the map is worse than no calibration on samples held out in {_FOLDS} folds: accuracy {before:.4f} to "
            f"{after:.4f}. Its bins hold too few of these {n} samples: use more samples, fewer bins, or a method that "
            "keeps the predicted class."
        )

    def _checked(self, predictions: Predictions | TopLabel) -> Predictions:
        if not isinstance(predictions, Predictions):
            raise InputError(f"{self.name} must be fitted on Predictions; got {type(predictions).__name__}.")
        return predictions

    @final
    def fit_uncompared(self, predictions: Predictions) -> Map:
        """As :meth:`fit`, without a look at what the map does to its own samples: for one of many fits, as in folds."""
        self._checked(predictions)
        start = time.perf_counter()
        with gathered_warnings() as warned:
            share = self.uniform_share(predictions)
            fitted, certificate, told = self.learn(with_floor(predictions, share) if share else predictions)
        if share:
            fitted.mix_in(predictions.logits.new_tensor(share, dtype=torch.float64))
        if any(part.uniform_share is not None for part in fitted.modules() if isinstance(part, Map)):
            told = (*told, about_floor(predictions, share or predictions.uniform_share))
        fitted.summary = FitSummary(
            method=self.name,
            settings=self.settings(),
            rows=len(predictions),
            seconds=time.perf_counter() - start,
            certificate=certificate,
            notes=(*told, *map(str, warned)),
        )
        return fitted

    @final
    def settings(self) -> dict[str, Any]:
        """The options, as a file can hold them."""
        fields = dataclasses.fields(self)  # type: ignore[arg-type]  # concrete calibrators are dataclasses
        return {field.name: _plain(getattr(self, field.name)) for field in fields}


class Trial(NamedTuple):
    """The outcome of a fit that may fail: a fitted map and the samples it transformed, or the reason of the failure."""

    map: Map | None = None
    transformed: Predictions | None = None
    failure: str | None = None
    notes: tuple[str, ...] = ()  # of the fit's summary, and the library's own warnings
    seconds: float = math.nan  # time of the fit


def try_fit(fit: Callable[[Predictions], Map], calibration: Predictions, test: Predictions | None = None) -> Trial:
    """Fit a map and transform other samples with it; collect the library's errors and warnings instead of raising.

    Args:
        fit: A calibrator's ``fit`` or ``fit_uncompared``.
        calibration: Samples to fit on.
        test: Samples to transform.

    Example:
        >>> from calibrant.calibrators import Auto
        >>> few = Predictions.from_logits([[2.0, 0.0], [0.0, 1.0]], [0, 1])
        >>> try_fit(Auto().fit, few).failure is not None
        True
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
    """A tuple of methods, as the options of a composition are.

    Raises:
        InputError: If it is anything else, such as the names of methods.
    """
    if not isinstance(values, tuple):
        raise InputError(f"{name} must be a tuple of calibrators; got {values!r}. Of one method, write (method,).")
    for each in values:
        if not isinstance(each, Calibrator):
            raise InputError(
                f"{name} must all be calibrators, such as TemperatureScaling(); got {each!r}. "
                "catalogue.parse_calibrator builds one by its name."
            )


def with_comparison(summary: FitSummary, found: Compared) -> FitSummary:
    """The summary with the scores of its own samples before and after, and a warning where one has become worse."""
    notes = summary.notes if found.note is None else (*summary.notes, found.note)
    if found.note is not None and found.is_serious:
        warnings.warn(found.note, CalibrantWarning, stacklevel=3)
    return dataclasses.replace(
        summary, notes=notes, compared=found.samples, before=dict(found.before), after=dict(found.after)
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
        warned += [each.message for each in caught if isinstance(each.message, CalibrantWarning)]
        for each in caught:
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)


def _plain(value: object) -> Any:
    """Numbers and words as they are, calibrators as their name and options, sequences as lists of these."""
    if isinstance(value, Calibrator):
        return {"method": value.name, **value.settings()}
    return [_plain(each) for each in value] if isinstance(value, tuple) else value
