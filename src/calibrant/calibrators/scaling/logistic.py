"""What Platt, beta and quadratic scaling share: logistic regression of each class on a few features of its log-odds."""

import warnings
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from calibrant.calibrators.absent import some_names
from calibrant.calibrators.scores import class_by_class
from calibrant.errors import CalibrantWarning, FitError, SeparableError
from calibrant.numerics.logistic import Features, LogisticFit, Targets, fit_logistic
from calibrant.predictions import Predictions

__all__ = ["TargetKind", "fit_classes"]

TargetKind: TypeAlias = Literal["smoothed", "plain"]

# Log-odds whose fourth powers are numbers still: no probability differs beyond.
_FAR = 1e70


def fit_classes(
    predictions: Predictions,
    features: Features,
    *,
    name: str,
    targets: TargetKind = "plain",
    rising: tuple[int, ...] = (),
) -> LogisticFit:
    """Weights of every class against the rest; of two classes, those of class 1.

    Where 0 and 1 as targets leave no finite optimum (the class has no rows, or its log-odds tell it apart without
    error), two classes are an error, and of more classes that one gets smoothed targets, with a warning.

    Args:
        predictions: The calibration rows.
        features: Of the log-odds.
        name: Of the method, for messages.
        targets: "plain" for 0 and 1; "smoothed" for Platt's (n₊ + 1)/(n₊ + 2) and 1/(n₋ + 2), which always leave one.
        rising: Features whose weights must not be negative. One that would be is left out and the rest fitted anew.

    Raises:
        FitError: If there is no optimum, or it was not reached.
    """
    scores, numbers = class_by_class(predictions)
    scores = scores.clamp(-_FAR, _FAR) if scores.dtype == torch.float64 else scores
    classes = torch.tensor(numbers, device=scores.device)
    rows = torch.bincount(predictions.labels, minlength=predictions.n_classes).double()[classes]
    smoothed = Targets(predictions.labels, classes, (rows + 1) / (rows + 2), 1 / (len(predictions) - rows + 2))
    plain = smoothed._replace(hit=torch.ones_like(rows), miss=torch.zeros_like(rows))
    fit = _fit(scores, plain if targets == "plain" else smoothed, features, rising)
    lost = (~fit.found).nonzero()[:, 0]
    if len(lost) and targets == "plain" and len(classes) > 1:
        warnings.warn(
            f"{name}: class {some_names(lost, predictions)} cannot be fitted by itself (no calibration rows, or told "
            "apart from the rest without error); it was fitted with smoothed targets.",
            CalibrantWarning,
            stacklevel=2,
        )
        fit = _with_lines(fit, lost, _fit(scores[lost], smoothed.lines(lost), features, rising))
    if not fit.found.all():
        raise _why_not(name, rows, len(predictions), fit)
    largest, most = float(fit.weights.abs().max()), torch.finfo(scores.dtype).max * torch.finfo(scores.dtype).eps
    if not largest < most:
        raise FitError(
            f"{name} needs log-odds of a size that {scores.dtype} can multiply back; here a weight would be "
            f"{largest:.1g}. The logits are too small: multiply all of them by one number, so that those of a row "
            "differ by 1 to 100."
        )
    return fit


def _fit(scores: Tensor, targets: Targets, features: Features, rising: tuple[int, ...]) -> LogisticFit:
    """The best weights, those of the rising features not negative."""
    fit = fit_logistic(scores, targets, features)
    active = torch.ones_like(fit.weights, dtype=torch.bool)
    # The features rise together, so one that would be negative is 0 in the best fit without negative weights. Its being
    # left out can turn another one negative.
    for feature in rising * 2:
        falling = (fit.weights[:, feature] < 0).nonzero()[:, 0]
        if len(falling):
            active[falling, feature] = False
            again = fit_logistic(scores[falling], targets.lines(falling), features, active=active[falling])
            fit = _with_lines(fit, falling, again)
    return fit


def _with_lines(fit: LogisticFit, lines: Tensor, again: LogisticFit) -> LogisticFit:
    """The fit with some of its lines replaced."""
    for old, new in zip(fit.columns(), again.columns(), strict=True):
        old[lines] = new
    passes = fit.passes + again.passes * len(lines) / len(fit.found)
    return fit._replace(steps=fit.steps + again.steps, passes=passes)


def _why_not(name: str, rows: Tensor, n: int, fit: LogisticFit) -> FitError:
    if len(rows) == 1 and float(rows[0]) in (0, n):
        return FitError(
            f"{name} needs calibration rows of both classes; got {int(rows[0])} of class 1 among {n}. "
            "Add rows of the other class, or use PlattScaling with its smoothed targets."
        )
    if not (fit.separable | fit.found).all():
        return FitError(
            f"{name} needs log-odds of about one size; on these {n} calibration rows its optimum was not reached in "
            f"{fit.steps} steps (gradient {float(fit.gradient.max()):.2g}). Check the logits for extreme values, or "
            "use isotonic, which knows only their order."
        )
    return SeparableError(
        f"{name} needs classes whose log-odds overlap; the {n} calibration rows can be told apart without error, so "
        "the best weights are infinite. Add rows, or use PlattScaling with its smoothed targets."
    )
