"""Sentences about one method against doing nothing, wherever it stands."""

import math

from calibrant.comparison import UNCALIBRATED, MethodResult
from calibrant.evidence import Difference

__all__ = ["ENOUGH", "accuracy_words", "difference_words", "points_words", "separation_words"]

ENOUGH = "beyond noise and by enough to matter"


def accuracy_words(chosen: MethodResult) -> list[str]:
    """What it does to predictions and accuracy, if anything was done at all."""
    if chosen.name == UNCALIBRATED:
        return []
    if chosen.changed == 0:
        return ["It changes no prediction, so accuracy stays what it was."]
    change = chosen.differences[UNCALIBRATED]["accuracy"]
    moved = f"It changes the predicted class of {_percent(chosen.changed)} of rows; accuracy"
    if change.side == "alike":
        return [
            f"{moved} moves by {points_words(change)}: {'too little to matter' if change.is_beyond_noise else 'noise'}."
        ]
    word = "rises" if change.value > 0 else "falls"
    return [f"{moved} {word}, by {points_words(change)}."]


def separation_words(chosen: MethodResult) -> list[str]:
    """What it does to the separation of right from wrong."""
    value = chosen.metrics["auroc"].value
    if math.isnan(value):  # all answers are right, or all wrong
        return []
    change = chosen.differences[UNCALIBRATED]["auroc"] if UNCALIBRATED in chosen.differences else None
    if change is None or math.isnan(change.value):
        return [f"Confidence separates right from wrong with an AUROC of {value:.4f}."]
    moved = f"{change.value:+.4f} ({change.low:+.4f} to {change.high:+.4f}) against doing nothing"
    alike = "about as well" if change.is_beyond_noise else "no differently, beyond noise"
    words = {"better": "better", "worse": "worse", "alike": alike}[change.side]
    return [f"Confidence separates right from wrong {words}: AUROC {value:.4f}, {moved}."]


def difference_words(change: Difference, below: str, above: str) -> str:
    """So much lower or higher, with its interval."""
    word, ends = (below, (-change.high, -change.low)) if change.value <= 0 else (above, (change.low, change.high))
    return f"{abs(change.value):.4f} ({ends[0]:.4f} to {ends[1]:.4f}) {word}"


def points_words(change: Difference) -> str:
    """A difference of shares in percentage points, with its interval."""
    value, low, high = (100 * each for each in (change.value, change.low, change.high))
    return f"{value:+.2f} points ({low:+.2f} to {high:+.2f})"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
