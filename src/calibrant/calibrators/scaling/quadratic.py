"""Quadratic scaling: a sigmoid of a parabola of the log-odds."""

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from calibrant.calibrators.base import Calibrator, CalibratorFamily, Fitted
from calibrant.calibrators.scaling.logistic import fit_classes
from calibrant.calibrators.scores import class_map
from calibrant.maps import Polynomial
from calibrant.paper import Paper
from calibrant.predictions import Predictions

__all__ = ["QuadraticScaling"]


@final
@dataclass(frozen=True)
class QuadraticScaling(Calibrator):
    """Logistic regression on the log-odds and their square, without a penalty.

    The square lets the two sides bend differently, as they should where the log-odds of the classes are bell-shaped
    with different widths; on two-class tables it is among the best. It hurts beyond the calibration rows: a parabola
    turns, so a row surer than all of those can come out unsure, or sure of the other class. Of more classes each is
    fitted against the rest and the results are divided by their sum.

    Formula: q = σ(a + b s + c s²), s = ln p/(1 − p); for k > 2 classes q_j ∝ σ(a_j + b_j s_j + c_j s_j²)
    Rows: about 100 of each class. With fewer the parabola follows single rows.

    Raises:
        FitError: For two classes, if log-odds and squares tell them apart without error. (Of more classes that one gets
            Platt's smoothed targets, with a warning.)

    Example:
        >>> rows = Predictions.from_binary_logits([-3.0, -1.0, 0.5, 1.0, 2.0, 4.0], [0, 0, 1, 0, 1, 0])
        >>> fitted = QuadraticScaling().fit(rows)
        >>> [round(number, 3) for number in fitted.transform(rows).probs[:, 1].tolist()]
        [0.0, 0.021, 0.546, 0.688, 0.71, 0.035]
    """

    name: ClassVar[str] = "quadratic"
    title: ClassVar[str] = "Quadratic scaling"
    family: ClassVar[CalibratorFamily] = "scaling"
    paper: ClassVar[Paper] = Paper(
        "Berta et al.", 2025, "Structured Matrix Scaling for Multi-Class Calibration", "arXiv:2511.03685"
    )
    # A parabola is not monotone.
    preserves_accuracy: ClassVar[bool] = False
    preserves_ranking: ClassVar[bool] = False

    def learn(self, predictions: Predictions) -> Fitted:
        # Differs from the paper: it defines the method for two classes; one against the rest is ours.
        fit = fit_classes(predictions, _parabola, name="quadratic scaling")
        return Fitted(class_map(Polynomial(fit.weights), predictions.n_classes), fit.certificate())


def _parabola(log_odds: Tensor) -> Tensor:
    return torch.stack([torch.ones_like(log_odds), log_odds, log_odds.square()], dim=1)
