"""Classifiers with a wanted calibration error and separation of right from wrong, half of whose answers are right.

Confidences of right answers have a Beta(q + d, q) distribution, those of wrong answers its mirror image. Then
``P(right | c) = c^d / (c^d + (1 - c)^d)``: the classifier is calibrated at d = 1, too sure below and too modest above;
and a smaller q moves right and wrong apart.
"""

from typing import Literal, NamedTuple, TypeAlias, final

import numpy as np
import torch
from scipy.optimize import brentq
from scipy.stats import beta

from calibrant.predictions import TopLabel

__all__ = ["Hypothetical", "Side", "hypothetical"]

Side: TypeAlias = Literal["overconfident", "underconfident"]
_POINTS = (np.arange(4_000) + 0.5) / 4_000
_WIDEST = {"overconfident": 0.02, "underconfident": 40.0}


@final
class Hypothetical(NamedTuple):
    """A classifier by the two numbers of its distribution of confidences."""

    d: float
    q: float

    @property
    def auroc(self) -> float:
        """Probability that a right answer is surer than a wrong one."""
        right = beta.ppf(_POINTS, self.q + self.d, self.q)
        return float(beta.cdf(right, self.q, self.q + self.d).mean())

    @property
    def calibration_error(self) -> float:
        """Mean distance of the confidence from the probability of being right, without bins."""
        right = beta.ppf(_POINTS, self.q + self.d, self.q)
        # By symmetry wrong answers, at 1 - c, are as far off.
        with np.errstate(divide="ignore"):  # where a confidence rounds to 1
            odds = self.d * (np.log(right) - np.log1p(-right))
        return float(np.abs(1 / (1 + np.exp(-odds)) - right).mean())

    def draw(self, n: int, *, seed: int) -> TopLabel:
        """Return n answers, half of them right."""
        correct = torch.arange(n) % 2 == 0
        drawn = np.random.default_rng(seed).beta(self.q + self.d, self.q, size=n)
        confidence = torch.from_numpy(drawn)
        return TopLabel(torch.where(correct, confidence, 1 - confidence), correct)


def hypothetical(auroc: float, error: float, side: Side) -> Hypothetical:
    """Return the classifier that has these numbers.

    Args:
        auroc: Above one half.
        error: Of calibration, without bins.
        side: Where it lies from the calibrated one.
    """

    def with_auroc(d: float) -> Hypothetical:
        q = brentq(lambda log_q: Hypothetical(d, float(np.exp(log_q))).auroc - auroc, -5.0, 6.0, xtol=1e-10)
        return Hypothetical(d, float(np.exp(q)))

    log_d = brentq(
        lambda log_d: with_auroc(float(np.exp(log_d))).calibration_error - error,
        0.0,
        float(np.log(_WIDEST[side])),
        xtol=1e-10,
    )
    return with_auroc(float(np.exp(log_d)))
