"""Beta calibration: what is right if the probabilities of each class follow a beta distribution."""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, final

import torch
from torch import Tensor
from torch.nn.functional import softplus

from calibrant.calibrators.base import Calibrator, CalibratorFamily, Fitted
from calibrant.calibrators.scaling.logistic import fit_classes
from calibrant.calibrators.scores import class_map
from calibrant.checks import check_known
from calibrant.maps import BetaCurve
from calibrant.paper import Paper
from calibrant.predictions import Predictions

__all__ = ["BetaCalibration"]


@final
@dataclass(frozen=True)
class BetaCalibration(Calibrator):
    """Logistic regression on ln p and ln(1 − p), each with its own slope.

    Slopes of its own for either side let it be sigmoid, inverse sigmoid or neither, and unlike Platt's line it can
    leave probabilities that were right alone (a = b = 1, c = 0). It never turns the order round. It hurts where little
    is known of one side: of a class with few rows, ln p of those rows sets the whole slope. Of more than two classes
    each is fitted against the rest and the results are divided by their sum.

    Formula: q = σ(a ln p − b ln(1 − p) + c), a, b >= 0; for k > 2 classes q_j ∝ that of p_j
    Rows: about 100 of each class. With fewer, "am" and "ab" have a parameter less.

    Args:
        parameters: Those that are free. "abm": all three; "ab": q(1/2) = 1/2, so c = (a − b) ln 2; "am": a = b, which
            is Platt scaling with plain targets and a slope that is not negative.

    Raises:
        FitError: For two classes, if the probabilities tell them apart without error. (Of more classes that one gets
            Platt's smoothed targets, with a warning.)

    Example:
        >>> rows = Predictions.from_binary_logits([-6.0, -4.0, -2.0, 2.0, 4.0, 6.0], [0, 0, 1, 0, 1, 1])
        >>> fitted = BetaCalibration().fit(rows)
        >>> [round(number, 3) for number in fitted.transform(rows).probs[:, 1].tolist()]
        [0.1, 0.188, 0.325, 0.675, 0.812, 0.9]
    """

    name: ClassVar[str] = "beta"
    title: ClassVar[str] = "Beta calibration"
    family: ClassVar[CalibratorFamily] = "scaling"
    paper: ClassVar[Paper] = Paper(
        "Kull et al.",
        2017,
        "Beta calibration: a well-founded and easily implemented improvement on logistic calibration for binary "
        "classifiers",
        "PMLR 54:623-631",
    )
    # The shift moves the threshold between the classes.
    preserves_accuracy: ClassVar[bool] = False
    preserves_ranking: ClassVar[bool] = False

    parameters: Literal["abm", "ab", "am"] = "abm"

    def __post_init__(self) -> None:
        check_known(self.parameters, ("abm", "ab", "am"), "parameters")

    def learn(self, predictions: Predictions) -> Fitted:
        features, rising = {"abm": (_abm, (1, 2)), "ab": (_ab, (0, 1)), "am": (_am, (1,))}[self.parameters]
        # Differs from the paper: a slope that turns out negative is 0 for "ab" and "am", too.
        fit = fit_classes(predictions, features, name="beta calibration", rising=rising)
        if self.parameters == "abm":
            c, a, b = fit.weights.T
        elif self.parameters == "ab":
            a, b = fit.weights.T
            c = (a - b) * math.log(2)
        else:
            c, a = fit.weights.T
            b = a
        return Fitted(class_map(BetaCurve(a, b, c), predictions.n_classes), fit.certificate())


def _abm(log_odds: Tensor) -> Tensor:
    return torch.stack([torch.ones_like(log_odds), *_logarithms(log_odds)], dim=1)


def _ab(log_odds: Tensor) -> Tensor:
    of_p, of_rest = _logarithms(log_odds)
    return torch.stack([of_p + math.log(2), of_rest - math.log(2)], dim=1)  # both 0 at one half


def _am(log_odds: Tensor) -> Tensor:
    return torch.stack([torch.ones_like(log_odds), log_odds], dim=1)


def _logarithms(log_odds: Tensor) -> tuple[Tensor, Tensor]:
    """The features ln p and -ln(1 - p), from one logarithm; both are right to 1e-15."""
    of_rest = softplus(log_odds, threshold=40)
    return log_odds - of_rest, of_rest
