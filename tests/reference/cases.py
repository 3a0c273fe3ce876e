"""Cases that more than one peer gets wrong, with their right answers."""

from typing import Any

import numpy as np
from data import DATASETS, softmax
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

__all__ = [
    "CERTAIN_AND_WRONG",
    "IMPOSSIBLE",
    "TIED",
    "WITH_A_MASKED_LOGIT",
    "best_temperature",
    "masked_logit",
    "share_impossible",
]

CERTAIN_AND_WRONG: dict[str, Any] = {
    "case": "confidences of exactly 1.0 get half their weight",
    "right": 0.5,
    "derivation": "smoothed at any width the gap is (2 K(t, 1) + 0 K(t, 0.5))/4, nowhere negative, and each kernel "
    "integrates to 1: 0.5. With the mass at 1.0 halved it is (2/2)/(2/2 + 2) = 1/3",
    "metric": "smece",
    "rows": {"confidence": [1.0, 1.0, 0.5, 0.5], "correct": [0, 0, 1, 0]},
}
"""Two certain answers, both wrong, beside two even chances of which one came in."""

TIED: dict[str, Any] = {
    "right": 0.1,
    "derivation": "the rows cannot be told apart: every bin has confidence 0.6 and accuracy 0.5",
    "metric": "ace",
    "rows": {"confidence": [0.6] * 10, "correct": [1] * 5 + [0] * 5},
}
"""Ten equal confidences, the right answers first."""

IMPOSSIBLE: dict[str, Any] = {
    "right": 0.0,
    "derivation": "a probability of 0 for what happened is an infinite log-loss; no row should have it",
}
"""Held-out rows whose true class was given probability 0."""

WITH_A_MASKED_LOGIT = "data set overconfident with one logit of row 3, not its label's, at -inf"


def masked_logit() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Logits of which one is -inf, as those of a class that is ruled out in one sample, and labels."""
    data = DATASETS["overconfident"]()
    logits = data.logits.copy()
    logits[3, (data.labels[3] + 1) % 10] = -np.inf
    return logits, data.labels


def share_impossible(probs: NDArray[np.float64], labels: NDArray[np.int64]) -> float:
    """The share of samples whose true class was given probability 0."""
    return float((np.take_along_axis(probs, labels[:, None], axis=1) == 0).mean())


def best_temperature(logits: NDArray[np.float64], labels: NDArray[np.int64]) -> dict[str, Any]:
    """The right answer of a temperature fit, with where it is from."""

    def loss(inverse: float) -> float:
        picked = np.take_along_axis(softmax(logits * inverse), labels[:, None], axis=1)
        return -np.log(picked).mean()

    least = minimize_scalar(loss, bounds=(0.01, 5), method="bounded", options={"xatol": 1e-12})
    return {
        "right": 1 / float(least.x),
        "derivation": "minimum of the log-loss over T, by scalar minimisation in float64",
    }
