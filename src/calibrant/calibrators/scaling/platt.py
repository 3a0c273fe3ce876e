"""Platt scaling: a sigmoid of a linear function of the log-odds."""

import math
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from calibrant.calibrators.absent import warn_of_absent
from calibrant.calibrators.base import Calibrator, CalibratorFamily, Fitted
from calibrant.calibrators.floor import with_floor
from calibrant.calibrators.folds import deal_folds
from calibrant.calibrators.scaling.logistic import TargetKind, fit_classes
from calibrant.calibrators.scores import class_map
from calibrant.checks import check_known
from calibrant.errors import FitError, without_our_warnings
from calibrant.maps import Polynomial
from calibrant.paper import Paper
from calibrant.predictions import Predictions

__all__ = ["PlattScaling"]

# Shares of the uniform distribution that lead from log-odds to probabilities, with the last of which they are linear.
_SHARES = (0.01, 0.1, 0.3, 0.93)
_FOLDS = 5
# The share is chosen on so many numbers, but on no fewer and no more samples than these.
_NUMBERS, _FEWEST, _MOST = 40_000, 1_000, 5_000


@final
@dataclass(frozen=True)
class PlattScaling(Calibrator):
    """Logistic regression on the log-odds: a slope and a shift.

    The method for two classes: the shift moves the threshold, which temperature scaling cannot, and two numbers hardly
    overfit. Of more classes each is fitted against the rest and the results are divided by their sum; the fits know
    nothing of each other, so vector scaling, which fits them together, is nearly always better there. It cannot bend:
    a network sure of its mistakes on one side only wants beta or quadratic scaling.

    With few samples a fit to log-odds hangs on the most confident ones. Where probabilities are given, a share of the
    uniform distribution may be mixed in first, which draws those in: at the most, the score is linear in the
    probability. The share is chosen by cross-validated log-loss.

    Formula: q = σ(a s + b), s = ln p/(1 − p); for k > 2 classes q_j ∝ σ(a_j s_j + b_j)
    Rows: about 50 of each class. With fewer the smoothed targets pull towards one half; a class without rows gets
        1/(n + 2) everywhere, with a warning.

    Args:
        targets: "smoothed" for Platt's (n₊ + 1)/(n₊ + 2) and 1/(n₋ + 2), with which an optimum always exists; "plain"
            for 1 and 0, the maximum of likelihood.

    Raises:
        FitError: With plain targets and two classes, if the log-odds tell the classes apart without error. (Of more
            classes that one gets smoothed targets, with a warning.)

    Example:
        >>> rows = Predictions.from_binary_logits([-6.0, -4.0, -2.0, 2.0, 4.0, 6.0], [0, 0, 1, 0, 1, 1])
        >>> fitted = PlattScaling().fit(rows)
        >>> [round(number, 3) for number in fitted.transform(rows).probs[:, 1].tolist()]
        [0.248, 0.323, 0.409, 0.591, 0.677, 0.752]
    """

    name: ClassVar[str] = "platt"
    title: ClassVar[str] = "Platt scaling"
    family: ClassVar[CalibratorFamily] = "scaling"
    paper: ClassVar[Paper] = Paper(
        "Platt",
        1999,
        "Probabilistic Outputs for Support Vector Machines and Comparisons to Regularized Likelihood Methods",
        "Advances in Large Margin Classifiers, MIT Press",
    )
    # The shift moves the threshold between the classes, and the slope may be negative.
    preserves_accuracy: ClassVar[bool] = False
    preserves_ranking: ClassVar[bool] = False

    targets: TargetKind = "smoothed"

    def __post_init__(self) -> None:
        check_known(self.targets, ("smoothed", "plain"), "targets")

    def uniform_share(self, predictions: Predictions) -> float:
        usual = predictions.uniform_share
        n, k = predictions.logits.shape
        if not predictions.given_as_probs or n < 2 * _FOLDS:
            return usual
        # Differs from the paper: a margin has no scale of its own, a probability has two, and the samples choose.
        most = min(_MOST, max(_FEWEST, _NUMBERS // k))
        few = predictions[torch.randperm(n, generator=torch.Generator().manual_seed(0))[:most].to(predictions.labels)]
        shares = (usual, *(share for share in _SHARES if share > usual))
        return min(shares, key=lambda share: self._held_out_loss(with_floor(few, share) if share else few))

    def _held_out_loss(self, predictions: Predictions) -> float:
        """Return the log-loss of samples, each from the fit on the other folds."""
        fold, loss = deal_folds(predictions.labels, _FOLDS, seed=0), 0.0
        with without_our_warnings():
            for number in range(_FOLDS):
                held = predictions[(fold == number).nonzero()[:, 0]]
                try:
                    fitted = self.learn(predictions[(fold != number).nonzero()[:, 0]]).map
                except FitError:
                    return math.inf
                log_probs = fitted.transform(held).log_probs.double()
                loss -= float(log_probs.gather(1, held.labels[:, None]).sum())
        return loss

    def learn(self, predictions: Predictions) -> Fitted:
        warn_of_absent(predictions, self.title)
        # Differs from the paper: the score is the log-odds, since a network has no margin; the sign of a is turned.
        fit = fit_classes(predictions, _line, name="Platt scaling", targets=self.targets)
        return Fitted(class_map(Polynomial(fit.weights), predictions.n_classes), fit.certificate())


def _line(log_odds: Tensor) -> Tensor:
    return torch.stack([torch.ones_like(log_odds), log_odds], dim=1)
