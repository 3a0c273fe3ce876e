"""What peers are asked to fit: on the first half of a data set, to be evaluated on the second."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from data import Dataset, Floats
from question import Tolerance

__all__ = [
    "FLOORED",
    "LIFTED",
    "SAME_OPTIMUM",
    "FitQuestion",
    "floored",
    "halves",
    "lifted",
    "one_vs_rest",
    "two_columns",
]

# Evaluated samples whose probabilities are written down; all of them are in the Brier score.
SHOWN = 4

FLOORED = "ours keeps each probability 1/((n + 2)(k - 1)) above 0 and 1/(n + 2) below 1, before any division by the sum"
LIFTED = "ours keeps a confidence 1/(n + 2) from 0 and 1, and lifts one below 1/k to it, so that the prediction stays"
SAME_OPTIMUM = Tolerance(2e-6, "same objective, both at its minimum: ours to 2e-6 in the parameters")


@dataclass(frozen=True)
class FitQuestion:
    """One of our calibrators asked of a peer, on the named data sets.

    The peer answers with the probabilities of the evaluated samples, (m, k), or, if it calibrates the top class, with
    that class's, (m,). Where its definition differs from ours by a closed form, ``ask`` applies it and ``conversion``
    says so. Two step functions that agree at all calibration scores may differ between them; they are compared on the
    calibration samples.
    """

    method: str
    call: str
    ask: Callable[[Dataset, Dataset], Floats]
    datasets: tuple[str, ...]
    tolerance: Tolerance = SAME_OPTIMUM
    options: dict[str, Any] = field(default_factory=dict)
    given: Literal["logits", "probs"] = "logits"
    judged_on: Literal["held out", "calibration"] = "held out"
    conversion: str | None = None

    def record(self, name: str, data: Dataset) -> dict[str, Any]:
        """What the peer says about one data set."""
        calibration, held_out = halves(data)
        judged = held_out if self.judged_on == "held out" else calibration
        probs = np.asarray(self.ask(calibration, judged), dtype=np.float64)
        return {
            "method": self.method,
            "options": self.options,
            "dataset": name,
            "given": self.given,
            "judged_on": self.judged_on,
            "call": self.call,
            "probs": _short(probs[:SHOWN]),
            "brier": float(_brier(probs, judged)),
            "conversion": self.conversion,
            "tolerance": self.tolerance.absolute,
            "reason": self.tolerance.reason,
        }


def halves(data: Dataset) -> tuple[Dataset, Dataset]:
    """Samples to fit on, and samples to evaluate on."""
    middle = len(data.labels) // 2
    first, second = (
        Dataset(
            data.labels[rows],
            logits=None if data.logits is None else data.logits[rows],
            given_probs=None if data.given_probs is None else data.given_probs[rows],
        )
        for rows in (slice(0, middle), slice(middle, None))
    )
    return first, second


def floored(probs: Floats, rows: int, n_classes: int = 2) -> Floats:
    """What we make of a peer's zeros and ones: the rule of succession over the samples it was fitted on."""
    return np.clip(probs, 1 / ((rows + 2) * (n_classes - 1)), 1 - 1 / (rows + 2))


def lifted(confidence: Floats, rows: int, n_classes: int) -> Floats:
    """What we make of a peer's confidence of the predicted class: floored, and not below that of the other classes."""
    fair_odds = np.exp(1e-4) / (n_classes - 1)  # ahead of them by a hair
    return np.maximum(floored(confidence, rows), fair_odds / (1 + fair_odds))


def two_columns(probs: Floats) -> Floats:
    """The probability of a hit as those of a miss and of a hit."""
    return np.stack([1 - probs, probs], axis=1)


def one_vs_rest(
    fit: Callable[[Floats, Floats, Floats], Floats], *, floor: bool
) -> Callable[[Dataset, Dataset], Floats]:
    """A peer's method for a single probability, applied to each class against the rest, then divided by the sum.

    Two classes are one such problem, that of class 1.

    Args:
        fit: Probability and hit of calibration samples, probability of evaluated ones -> calibrated probability.
        floor: Whether to keep each probability above ours, before the division.
    """

    def ask(calibration: Dataset, judged: Dataset) -> Floats:
        k = judged.n_classes
        columns = [
            fit(calibration.probs[:, j], (calibration.labels == j).astype(np.int64), judged.probs[:, j])
            for j in (range(k) if k > 2 else (1,))
        ]
        probs = np.stack(columns, axis=1)
        probs = floored(probs, len(calibration.labels), k) if floor else probs
        return two_columns(probs[:, 0]) if k == 2 else probs / probs.sum(axis=1, keepdims=True)

    return ask


def _brier(probs: Floats, judged: Dataset) -> float:
    if probs.ndim == 1:
        return np.mean((probs - judged.correct) ** 2)
    hits = np.eye(judged.n_classes)[judged.labels]
    return ((probs - hits) ** 2).sum(axis=1).mean()


def _short(values: Floats) -> list[Any]:
    """Nested lists of numbers with twelve digits."""
    if values.ndim == 1:
        return [float(f"{value:.12g}") for value in values]
    return [_short(row) for row in values]
