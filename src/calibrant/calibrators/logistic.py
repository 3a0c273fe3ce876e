"""Platt, beta and quadratic scaling: logistic regression of each class on functions of its log-odds."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple, TypeAlias, final

import torch
from torch import Tensor
from torch.nn.functional import softplus

from calibrant.calibrators.affine import BERTA
from calibrant.calibrators.base import (
    Calibrator,
    Fitted,
    class_map,
    class_names,
    cross_validation_splits,
    one_vs_rest_log_odds,
    warn_of_missing_classes,
)
from calibrant.errors import FitError, SeparableError, warn, without_our_warnings
from calibrant.maps import BetaCurve, Polynomial
from calibrant.numerics.logistic import Features, LogisticFit, Targets, fit_logistic
from calibrant.paper import Paper
from calibrant.predictions import Predictions

TargetKind: TypeAlias = Literal["smoothed", "plain"]

# Log-odds whose fourth powers are still finite: no probability differs beyond.
_FAR = 1e70


class Regression(NamedTuple):
    """How regressions are fitted, and the samples of every class, (k,), and of all that their targets count."""

    fit: Callable[..., LogisticFit]
    of_classes: Tensor
    size: float


def fit_classes(
    predictions: Predictions,
    features: Features,
    *,
    regression: Regression | None,
    name: str,
    targets: TargetKind = "plain",
    rising: tuple[int, ...] = (),
) -> LogisticFit:
    """Fit the weights of every class against the rest; of two classes, those of class 1.

    Smoothed targets, Platt's, always leave an optimum. Where plain ones, 0 and 1, leave no finite one (the class has no
    samples, or is separable by its log-odds), two classes are an error, and with more classes that one gets smoothed
    targets, with a warning. A feature that must be ``rising``, and whose weight would be negative, is left out and the
    rest refitted. A ``regression`` fits on more samples than these; messages have the ``name`` of the method.
    """
    scores, classes = bounded_log_odds(predictions)
    counts = predictions.sample_counts
    if regression is None:
        of_classes = torch.bincount(predictions.labels, counts, minlength=predictions.n_classes).double()
        regression = Regression(fit_logistic, of_classes, predictions.effective_size)
    count = regression.of_classes[classes]
    smoothed = Targets(predictions.labels, classes, (count + 1) / (count + 2), 1 / (regression.size - count + 2))
    plain = smoothed._replace(hit=torch.ones_like(count), miss=torch.zeros_like(count))
    solve = partial(_fit, regression.fit)
    fit = solve(scores, plain if targets == "plain" else smoothed, features, counts, rising)
    lost = (~fit.converged).nonzero()[:, 0]
    if len(lost) and targets == "plain" and len(classes) > 1:
        warn(
            f"{name}: class {class_names(lost, predictions)} cannot be fitted separately (no calibration samples, "
            "or separable from the rest); it was fitted with smoothed targets."
        )
        fit = _with_lines(fit, lost, solve(scores[lost], smoothed.lines(lost), features, counts, rising))
    if not fit.converged.all():
        raise _failure(name, predictions, fit)
    largest, most = float(fit.weights.abs().max()), torch.finfo(scores.dtype).max * torch.finfo(scores.dtype).eps
    if not largest < most:
        raise FitError(
            f"{name} needs log-odds of a size that {scores.dtype} can multiply back; here a weight would be "
            f"{largest:.1g}. The logits are too small: multiply all of them by one number, so that those of a "
            "sample differ by 1 to 100."
        )
    return fit


def bounded_log_odds(predictions: Predictions) -> tuple[Tensor, Tensor]:
    """Return :func:`one_vs_rest_log_odds` whose fourth powers are finite."""
    scores, classes = one_vs_rest_log_odds(predictions)
    return (scores.clamp(-_FAR, _FAR) if scores.dtype == torch.float64 else scores), classes


def _fit(
    fit_lines: Callable[..., LogisticFit],
    scores: Tensor,
    targets: Targets,
    features: Features,
    counts: Tensor | None,
    rising: tuple[int, ...],
) -> LogisticFit:
    """Fit the weights, with those of the rising features not negative; ``counts`` weigh the samples."""
    fit = fit_lines(scores, targets, features, weights=counts)
    active = torch.ones_like(fit.weights, dtype=torch.bool)
    # The features rise together, so one that would be negative is 0 in the best fit without negative weights. Leaving
    # it out can turn another one negative.
    for feature in rising * 2:
        falling = (fit.weights[:, feature] < 0).nonzero()[:, 0]
        if len(falling):
            active[falling, feature] = False
            refitted, used = targets.lines(falling), active[falling]
            again = fit_lines(scores[falling], refitted, features, weights=counts, active=used)
            fit = _with_lines(fit, falling, again)
    return fit


def _with_lines(fit: LogisticFit, lines: Tensor, again: LogisticFit) -> LogisticFit:
    for old, new in zip(fit.columns(), again.columns(), strict=True):
        old[lines] = new
    passes = fit.passes + again.passes * len(lines) / len(fit.converged)
    return fit._replace(steps=fit.steps + again.steps, passes=passes)


def _failure(name: str, predictions: Predictions, fit: LogisticFit) -> FitError:
    n, of_class_1 = int(predictions.label_counts.sum()), int(predictions.label_counts[1])
    if predictions.n_classes == 2 and of_class_1 in (0, n):
        return FitError(
            f"{name} needs calibration samples of both classes; got {of_class_1} of class 1 among {n}. "
            "Add samples of the other class, or use PlattScaling with its smoothed targets."
        )
    if not (fit.separable | fit.converged).all():
        return FitError(
            f"{name} needs log-odds of about one size; on these {n} calibration samples its optimum was not reached "
            f"in {fit.steps} steps (gradient {float(fit.gradient.max()):.2g}). Check the logits for extreme values, or "
            "use isotonic, which uses only their order."
        )
    return SeparableError(
        f"{name} needs classes whose log-odds overlap; the {n} calibration samples are separable, so the best "
        "weights are infinite. Add samples, or use PlattScaling with its smoothed targets."
    )


# Shares of the uniform distribution; with the last, the score is linear in the probability.
_SHARES = (0.01, 0.1, 0.3, 0.93)
_FOLDS = 5
# The share is chosen on samples that hold so many numbers, within bounds.
_NUMBERS, _FEWEST, _MOST = 40_000, 1_000, 5_000
_PLATT = Paper("Platt", 1999,
               "Probabilistic Outputs for Support Vector Machines and Comparisons to Regularized Likelihood Methods",
               "Advances in Large Margin Classifiers, MIT Press")  # fmt: skip


@final
@dataclass(frozen=True)
class PlattScaling(Calibrator, name="platt", title="Platt scaling", family="scaling", paper=_PLATT):
    """Logistic regression on the log-odds: a slope and a shift.

    The method for two classes: the shift moves the threshold, which temperature scaling cannot, and two numbers hardly
    overfit. With more classes each is fitted against the rest and the results are divided by their sum; the fits are
    independent, so vector scaling, which fits them together, is nearly always better there. It has one slope: a network
    that is overconfident on one side only needs beta or quadratic scaling.

    With few samples a fit to log-odds depends on the most confident ones. Where probabilities are given, a share of the
    uniform distribution may be mixed in first, which shrinks their log-odds; with the largest share, the score is
    linear in the probability. The share is chosen by cross-validated log-loss.

    Formula: q = σ(a s + b), s = ln p/(1 − p); for k > 2 classes q_j ∝ σ(a_j s_j + b_j)
    Samples: about 50 of each class. With fewer the smoothed targets pull towards one half; a class without samples gets
        1/(n + 2) everywhere, with a warning.

    Args:
        targets: "smoothed" for Platt's (n₊ + 1)/(n₊ + 2) and 1/(n₋ + 2), with which an optimum always exists; "plain"
            for 1 and 0, the maximum of likelihood, which two classes do not have if they are separable. (With more
            classes the separable one gets smoothed targets, with a warning.)

    Example:
        >>> samples = Predictions.from_binary_logits([-6.0, -4.0, -2.0, 2.0, 4.0, 6.0], [0, 0, 1, 0, 1, 1])
        >>> fitted = PlattScaling().fit(samples)
        >>> [round(number, 3) for number in fitted.transform(samples).probs[:, 1].tolist()]
        [0.248, 0.323, 0.409, 0.591, 0.677, 0.752]
    """

    targets: TargetKind = "smoothed"

    def uniform_share(self, predictions: Predictions) -> float:
        usual = predictions.uniform_share
        n, k = predictions.logits.shape
        if not predictions.given_as_probs or n < 2 * _FOLDS:
            return usual
        # Differs from the paper: its score is a margin; here the samples choose between log-odds and probabilities.
        most = min(_MOST, max(_FEWEST, _NUMBERS // k))
        few = predictions[torch.randperm(n, generator=torch.Generator().manual_seed(0))[:most].to(predictions.labels)]
        shares = (usual, *(share for share in _SHARES if share > usual))
        return min(shares, key=lambda share: self._held_out_loss(few.mixed_with_uniform(share)))

    def _held_out_loss(self, predictions: Predictions) -> float:
        """Return the log-loss of the samples of each fold under the fit on the others."""
        loss = 0.0
        with without_our_warnings():
            for fit_part, held_out in cross_validation_splits(predictions, _FOLDS):
                try:
                    fitted = self._fit(fit_part).map
                except FitError:
                    return math.inf
                of_label = fitted.transform(held_out).log_probs.double().gather(1, held_out.labels[:, None])[:, 0]
                loss -= float((of_label if held_out.weights is None else of_label * held_out.weights).sum())
        return loss

    def _fit(self, predictions: Predictions, regression: Regression | None = None) -> Fitted:
        warn_of_missing_classes(predictions, self.title)
        # Differs from the paper: the score is the log-odds, since a network has no margin; a has the other sign.
        fit = fit_classes(predictions, _line, regression=regression, name="Platt scaling", targets=self.targets)
        return Fitted(class_map(Polynomial(fit.weights), predictions.n_classes), fit.certificate())


def _line(log_odds: Tensor) -> Tensor:
    return torch.stack([torch.ones_like(log_odds), log_odds], dim=1)


_KULL = Paper("Kull et al.", 2017,
              "Beta calibration: a well-founded and easily implemented improvement on logistic calibration for binary "
              "classifiers", "PMLR 54:623-631")  # fmt: skip


@final
@dataclass(frozen=True)
class BetaCalibration(Calibrator, name="beta", title="Beta calibration", family="scaling", paper=_KULL):
    """Logistic regression on ln p and ln(1 − p), each with its own slope.

    Separate slopes for either side let it be sigmoid, inverse sigmoid or neither, and unlike Platt's line it can leave
    calibrated probabilities unchanged (a = b = 1, c = 0). It never reverses the order. It hurts where little is known
    about one side: with few samples of a class, ln p of those sets the whole slope. With more than two classes each is
    fitted against the rest and the results are divided by their sum.

    Formula: q = σ(a ln p − b ln(1 − p) + c), a, b >= 0; for k > 2 classes q_j ∝ that of p_j
    Samples: about 100 of each class. With fewer, "am" and "ab" have a parameter less. Two separable classes are
        refused; with more classes the separable one gets Platt's smoothed targets, with a warning.

    Args:
        parameters: Free parameters. "abm": all three; "ab": q(1/2) = 1/2, so c = (a − b) ln 2; "am": a = b, which
            is Platt scaling with plain targets and a slope that is not negative.

    Example:
        >>> samples = Predictions.from_binary_logits([-6.0, -4.0, -2.0, 2.0, 4.0, 6.0], [0, 0, 1, 0, 1, 1])
        >>> fitted = BetaCalibration().fit(samples)
        >>> [round(number, 3) for number in fitted.transform(samples).probs[:, 1].tolist()]
        [0.1, 0.188, 0.325, 0.675, 0.812, 0.9]
    """

    parameters: Literal["abm", "ab", "am"] = "abm"

    def _fit(self, predictions: Predictions, regression: Regression | None = None) -> Fitted:
        features, rising = {"abm": (_abm, (1, 2)), "ab": (_ab, (0, 1)), "am": (_line, (1,))}[self.parameters]
        # Differs from the paper: a slope that turns out negative is 0 for "ab" and "am", too.
        fit = fit_classes(predictions, features, regression=regression, name="beta calibration", rising=rising)
        weights = fit.weights.T
        if self.parameters == "ab":
            a, b = weights
            c = (a - b) * math.log(2)
        else:
            c, a, b = weights if self.parameters == "abm" else (*weights, weights[1])
        return Fitted(class_map(BetaCurve(a, b, c), predictions.n_classes), fit.certificate())


def _abm(log_odds: Tensor) -> Tensor:
    return torch.stack([torch.ones_like(log_odds), *_logarithms(log_odds)], dim=1)


def _ab(log_odds: Tensor) -> Tensor:
    of_p, of_rest = _logarithms(log_odds)
    return torch.stack([of_p + math.log(2), of_rest - math.log(2)], dim=1)  # both 0 at one half


def _logarithms(log_odds: Tensor) -> tuple[Tensor, Tensor]:
    """Return the features ln p and -ln(1 - p), from one logarithm; both are accurate to 1e-15."""
    of_rest = softplus(log_odds, threshold=40)
    return log_odds - of_rest, of_rest


@final
@dataclass(frozen=True)
class QuadraticScaling(Calibrator, name="quadratic", title="Quadratic scaling", family="scaling", paper=BERTA):
    """Logistic regression on the log-odds and their square, without a penalty.

    The square lets the two sides bend differently, as they should where the log-odds of the classes are bell-shaped
    with different widths; on two-class tables it is among the best. It hurts beyond the calibration samples: a parabola
    turns, so a sample more confident than all of those can become unconfident, or confident in the other class. With
    more classes each is fitted against the rest and the results are divided by their sum.

    Formula: q = σ(a + b s + c s²), s = ln p/(1 − p); for k > 2 classes q_j ∝ σ(a_j + b_j s_j + c_j s_j²)
    Samples: about 100 of each class. With fewer the parabola follows single samples. Two classes that log-odds and
        squares separate are refused; with more classes such a one gets Platt's smoothed targets, with a warning.

    Example:
        >>> samples = Predictions.from_binary_logits([-3.0, -1.0, 0.5, 1.0, 2.0, 4.0], [0, 0, 1, 0, 1, 0])
        >>> fitted = QuadraticScaling().fit(samples)
        >>> [round(number, 3) for number in fitted.transform(samples).probs[:, 1].tolist()]
        [0.0, 0.021, 0.546, 0.688, 0.71, 0.035]
    """

    def _fit(self, predictions: Predictions, regression: Regression | None = None) -> Fitted:
        # Differs from the paper: it defines the method for two classes; for more, each against the rest.
        fit = fit_classes(predictions, _parabola, regression=regression, name="quadratic scaling")
        return Fitted(class_map(Polynomial(fit.weights), predictions.n_classes), fit.certificate())


def _parabola(log_odds: Tensor) -> Tensor:
    return torch.stack([torch.ones_like(log_odds), log_odds, log_odds.square()], dim=1)
