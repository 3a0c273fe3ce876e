"""Where the confidence misleads most: the bins and the classes whose gap noise does not explain."""

from dataclasses import dataclass
from typing import final

from calibrant.metrics.statistics import Binned, BinnedByPrediction
from calibrant.predictions import Predictions, TopLabel

__all__ = ["WorstBin", "WorstClass", "worst_bins", "worst_classes"]

# Gaps smaller than this many standard errors are left to noise.
_BEYOND_NOISE = 2.576


@final
@dataclass(frozen=True)
class WorstBin:
    """A range of confidence whose accuracy is off."""

    low: float
    high: float
    share: float
    confidence: float
    accuracy: float


@final
@dataclass(frozen=True)
class WorstClass:
    """A predicted class whose answers are less, or more, often right than claimed."""

    label: int
    name: str | None
    count: int
    confidence: float
    accuracy: float


def worst_bins(predictions: Predictions | TopLabel, *, n_bins: int = 15, most: int = 3) -> list[WorstBin]:
    """The bins that add most to the calibration error, beyond noise, largest first."""
    state = Binned(n_bins)(predictions)
    n = float(state.count.sum())
    rows = []
    for b, (count, confidence, correct) in enumerate(
        zip(state.count.tolist(), state.confidence.tolist(), state.correct.tolist(), strict=True)
    ):
        if count and _beyond_noise(count, confidence, correct):
            found = WorstBin(b / n_bins, (b + 1) / n_bins, count / n, confidence / count, correct / count)
            rows.append((abs(confidence - correct), found))
    return [found for _, found in sorted(rows, key=lambda row: -row[0])[:most]]


def worst_classes(predictions: Predictions, *, most: int = 5) -> list[WorstClass]:
    """The predicted classes that add most to the calibration error, beyond noise, largest first."""
    state = BinnedByPrediction(1)(predictions)
    names = predictions.class_names
    rows = []
    for label, (count, confidence, correct) in enumerate(
        zip(state.count[:, 0].tolist(), state.probability[:, 0].tolist(), state.hits[:, 0].tolist(), strict=True)
    ):
        if count and _beyond_noise(count, confidence, correct):
            name = names[label] if names else None
            found = WorstClass(label, name, int(count), confidence / count, correct / count)
            rows.append((abs(confidence - correct), found))
    return [found for _, found in sorted(rows, key=lambda row: -row[0])[:most]]


def _beyond_noise(count: float, confidence: float, correct: float) -> bool:
    """Whether calibrated answers of this mean confidence would hardly ever be off by as much."""
    mean = confidence / count
    return abs(correct - confidence) > _BEYOND_NOISE * max(mean * (1 - mean) * count, 1e-12) ** 0.5 + 0.5
