"""Base class of calibrators, the calibration samples they see, and the scores of a fit on its own samples."""

import dataclasses
import math
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias, Unpack, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from calibrant.errors import (
    CalibrantError,
    CalibrantWarning,
    FitError,
    InputError,
    caught_warnings,
    ours_in,
    without_our_warnings,
)
from calibrant.maps import Curve, FitSummary, Map, OneVsRest, TwoClassMap
from calibrant.maps.curves import class_log_odds, predicted_log_odds
from calibrant.numerics.newton import Certificate
from calibrant.numerics.softmax import argmax_rows, working
from calibrant.numerics.uniform_share import floored
from calibrant.paper import Paper
from calibrant.predictions import LABEL_FLOOR, PROB_FLOOR, Arrays, Predictions, TopLabel, as_predictions

__all__ = [
    "Calibrator",
    "CalibratorFamily",
    "Compared",
    "Fitted",
    "Trial",
    "about_floor",
    "absent_classes",
    "check_calibrators",
    "class_by_class",
    "class_map",
    "compare_on_own_samples",
    "deal_folds",
    "floored_log_odds",
    "floored_probs",
    "gathered_warnings",
    "log_odds_bounds",
    "prob_bounds",
    "some_names",
    "top_label",
    "try_fit",
    "warn_of_absent",
    "with_comparison",
    "with_floor",
]


def absent_classes(predictions: Predictions) -> Tensor:
    """Numbers of the classes that no row belongs to."""
    return (torch.bincount(predictions.labels, minlength=predictions.n_classes) == 0).nonzero()[:, 0]


def warn_of_absent(predictions: Predictions, name: str) -> None:
    """Say which classes have no calibration rows, if any.

    Args:
        predictions: The calibration rows.
        name: Name of a method that fits every class separately.
    """
    absent = absent_classes(predictions)
    if len(absent):
        warnings.warn(
            f"{name}: no calibration rows of class {some_names(absent, predictions)}; all that is learned of it is "
            "that it is rare, whatever the network says. Gather rows of it, or use a method that treats all classes "
            "alike, such as temperature or ets.",
            CalibrantWarning,
            stacklevel=2,
        )


def some_names(classes: Tensor, predictions: Predictions, *, most: int = 5) -> str:
    """Names, or else numbers, of classes for a message; the first few if they are many."""
    names = predictions.class_names
    shown = ", ".join(names[j] if names else str(j) for j in classes[:most].tolist())
    return shown + (f" and {len(classes) - most} others" if len(classes) > most else "")


def deal_folds(labels: Tensor, folds: int, seed: int) -> Tensor:
    """The fold of every row, (n,): at random, of even sizes.

    Not class by class: then the rows held out would have the very class counts that the map was fitted to, and methods
    with a shift for every class would be rewarded for learning the noise in them. (Of 100 classes and 1,000 rows,
    structured matrix scaling seemed .010 better than a temperature, and was .009 worse on new rows; dealt at random it
    was told to be .012 worse.) A class of few rows may therefore be absent from a fit, as it would be from a smaller
    sample.

    Args:
        labels: Shape (n,); only their number counts.
        folds: How many.
        seed: Random seed of the fold assignment.

    Example:
        >>> deal_folds(torch.zeros(7), 3, seed=0).bincount().tolist()
        [3, 2, 2]
    """
    fold = np.empty(len(labels), dtype=np.int64)
    fold[np.random.default_rng(seed).permutation(len(labels))] = np.arange(len(labels)) % folds
    return torch.from_numpy(fold).to(labels.device)


def top_label(predictions: Predictions) -> tuple[Tensor, Tensor]:
    """Log-odds of the predicted class and whether it is the label, (n,) each."""
    parts = [predicted_log_odds(working(block.logits)) for block in predictions.blocks()]
    predicted, log_odds = (torch.cat(column).squeeze(1) for column in zip(*parts, strict=True))
    return log_odds, predicted == predictions.labels


def class_by_class(predictions: Predictions) -> tuple[Tensor, range]:
    """Log-odds of every class against the rest, one class a line, (c, n), and which classes these are.

    Two classes are one problem, that of class 1, since the other is its mirror image.
    """
    if predictions.n_classes == 2:
        logits = working(predictions.logits)
        return (logits[:, 1] - logits[:, 0])[None], range(1, 2)
    log_odds = torch.cat([class_log_odds(working(block.logits)).T for block in predictions.blocks()], dim=1)
    return log_odds.contiguous(), range(predictions.n_classes)


def class_map(curve: Curve, n_classes: int) -> Map:
    """The map that applies a curve fitted on :func:`class_by_class`."""
    if n_classes == 2:
        return TwoClassMap(curve)
    return OneVsRest(curve, n_classes=n_classes)


# Samples of the first look, and of a second one where the first shows something worse: those that hold so many numbers,
# but no fewer and no more than these. Of very many samples a share is looked at from the start: little beside any fit.
_FIRST, _SECOND = (1 << 14, 100, 500), (1 << 16, 500, 10_000)
_SHARE = 256
_SURE = 2.0  # standard errors of the paired difference
_ROUNDING = 1e-5  # relative rise of a score that is not worth a word
_WORSE = 1e-3  # relative rise of a score that is worth a warning
_LOST_POINT = 0.01
_TITLES = {"nll": "log-loss", "brier": "Brier score", "accuracy": "accuracy"}


class Compared(NamedTuple):
    """Scores before and after, and what to say about them.

    Args:
        samples: How many they are means over.
        before: ``nll``, ``brier`` and ``accuracy`` without the map.
        after: Scores with the map.
        note: What became worse, or None.
        is_serious: Whether that is beyond noise, so that it should be a warning.
    """

    samples: int
    before: dict[str, float]
    after: dict[str, float]
    note: str | None
    is_serious: bool


@torch.no_grad()
def compare_on_own_samples(predictions: Predictions, apply: Callable[[Tensor, slice | Tensor], Tensor]) -> Compared:
    """Compare log-loss, Brier score and accuracy with and without a map.

    Of many samples a few hundred are looked at first, and some thousands only if a score is worse on those. So the
    comparison costs little beside the fit.

    Args:
        predictions: The samples that the map was fitted on.
        apply: The map: logits (m, k), and the places of these samples among all, to logits.
    """
    n, k = len(predictions), predictions.n_classes
    few, many = (min(most, max(fewest, numbers // k)) for numbers, fewest, most in (_FIRST, _SECOND))
    few = min(many, max(few, n // _SHARE))
    drawn = torch.randint(n, (many,), generator=torch.Generator().manual_seed(0)).to(predictions.logits.device)
    scores = _scores(predictions, slice(None) if n <= few else drawn[:few], apply)
    nll, brier, accuracy = (scores[1] - scores[0]).mean(axis=1)
    if few < min(n, many) and (nll > 0 or brier > 0 or accuracy < 0):
        if n <= many:
            scores = _scores(predictions, slice(None), apply)
        else:
            scores = np.concatenate([scores, _scores(predictions, drawn[few:], apply)], axis=2)
    return _compared(scores)


def _scores(
    predictions: Predictions, places: slice | Tensor, apply: Callable[[Tensor, slice | Tensor], Tensor]
) -> NDArray[np.float64]:
    """Log-loss, Brier score and correctness of some samples, without the map and with it, (2, 3, m)."""
    given, labels = predictions.logits[places], predictions.labels[places]
    logits = torch.stack([working(given), working(apply(given, places))])
    correct = [argmax_rows(each) == labels for each in logits]  # the first class wins a tie
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


def _spread(change: NDArray[np.float64]) -> NDArray[np.float64]:
    """Standard deviation of each line, (3, m) -> (3,), of numbers whose squares may overflow."""
    largest = np.abs(change).max(axis=1, keepdims=True).clip(min=np.finfo(np.float64).tiny)
    spread: NDArray[np.float64] = (change / largest).std(axis=1) * largest[:, 0]
    return spread


def _compared(scores: NDArray[np.float64]) -> Compared:
    change, n = scores[1] - scores[0], scores.shape[2]
    was, now = (dict(zip(_TITLES, each.mean(axis=1).tolist(), strict=True)) for each in scores)
    # One sample has no spread, and whatever it says is noise.
    noise = dict(zip(_TITLES, _spread(change) / math.sqrt(n) if n > 1 else np.full(3, np.inf), strict=True))
    rises = {key: now[key] - was[key] for key in ("nll", "brier")}
    worse = [key for key, rise in rises.items() if rise > _ROUNDING * max(was[key], _LOST_POINT)]
    serious = any(rise > max(_WORSE * was[key], _SURE * noise[key]) for key, rise in rises.items())
    if now["accuracy"] < was["accuracy"] - _LOST_POINT:
        worse.append("accuracy")
        serious = True
    note = None
    if worse:
        numbers = ", ".join(f"{_TITLES[key]} {was[key]:.4g} to {now[key]:.4g}" for key in worse)
        note = f"the map is worse than no calibration on the samples it was fitted on: {numbers}."
        if serious:
            note += " Compare it with other methods on other samples before you use it."
    return Compared(n, was, now, note, serious)


def prob_bounds(rows: int, n_classes: int = 2) -> tuple[float, float]:
    """Smallest and largest probability that a map learned from so many rows may give to a class.

    Args:
        rows: All calibration rows, not those of one cell.
        n_classes: Classes that stand against the one, plus it: leave it at 2 for the predicted class, whatever k is.

    Example:
        >>> prob_bounds(8)
        (0.1, 0.9)
        >>> prob_bounds(8, n_classes=11)
        (0.01, 0.9)
    """
    least = 1 / (rows + 2)
    return least / (n_classes - 1), 1 - least


def log_odds_bounds(rows: int, n_classes: int = 2) -> tuple[float, float]:
    """The same bounds as log-odds; -ln(n + 1) and ln(n + 1) for two classes."""
    return -math.log((rows + 2) * (n_classes - 1) - 1), math.log(rows + 1)


def floored_probs(probs: Tensor, rows: int, n_classes: int = 2) -> Tensor:
    """Probabilities kept within :func:`prob_bounds`, any shape."""
    least, most = prob_bounds(rows, n_classes)
    return probs.clamp(least, most)


def floored_log_odds(probs: Tensor, rows: int, n_classes: int = 2) -> Tensor:
    """Log-odds of probabilities kept within :func:`prob_bounds`, any shape; always finite.

    Example:
        >>> floored_log_odds(torch.tensor([0.0, 0.5, 1.0]), rows=2).exp()
        tensor([0.3333, 1.0000, 3.0000], dtype=torch.float64)
    """
    # Clamped as log-odds, so that every floored cell has the very same number.
    least, most = log_odds_bounds(rows, n_classes)
    return torch.logit(probs.double()).clamp(least, most)


def with_floor(predictions: Predictions, share: float) -> Predictions:
    """The samples as a map with this uniform share sees them; their confidences keep their order and their ties."""
    number = predictions.logits.new_tensor(share)
    mixed = torch.cat([floored(block.logits, number) for block in predictions.blocks()])
    return predictions.with_logits(mixed, normalised=True)


def about_floor(predictions: Predictions, share: float) -> str:
    """What was mixed in and why, in one sentence."""
    zeros = predictions.zero_cells
    assert zeros is not None, "only given probabilities have a floor"
    mixed = f"a share of {share:.2g} of equal probabilities is mixed in first, in the fit and in the map"
    if not predictions.uniform_share:
        return f"{mixed} (chosen by the method's own cross-validated log-loss)"
    percent = f"{100 * zeros.cells / zeros.of_cells:.1f} %"
    many = f"{percent} of the given probabilities are 0 or below {PROB_FLOOR:g}" if zeros.cells else "some are tiny"
    return f"{many}: {mixed} (chosen by cross-validated log-loss)"


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
    def _fit(self, predictions: Predictions) -> Fitted:
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
            arrays: Predictions as arrays by keyword instead: logits or probs, and labels.

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
            fitted, certificate, told = self._fit(with_floor(predictions, share) if share else predictions)
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
