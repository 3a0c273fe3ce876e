"""Every number with its interval, and calibration errors with what noise alone would have given."""

from collections.abc import Callable, Iterable

import numpy as np

from calibrant.evidence.all_classes import estimate_all_classes
from calibrant.evidence.groups import draw_groups
from calibrant.evidence.record import Estimate
from calibrant.evidence.top_label import estimate_top_label
from calibrant.metrics import Metric, Tally
from calibrant.metrics.base import TopStatistic
from calibrant.predictions import Predictions, TopLabel

__all__ = ["estimate"]


def estimate(
    predictions: Predictions | TopLabel,
    metrics: Iterable[Metric],
    *,
    resamples: int = 1000,
    seed: int = 0,
    progress: Callable[[str], None] = lambda _: None,
) -> dict[str, Estimate]:
    """Values, intervals, floors and p-values of several metrics.

    Args:
        predictions: What to judge.
        metrics: Top-label metrics only, if there is nothing but top labels.
        resamples: Bootstrap draws, and calibrated draws of the top label.
        seed: The same seed gives the same numbers.
        progress: Called with the name of each stage as it begins.

    Example:
        >>> from calibrant.metrics import ECE
        >>> found = estimate(TopLabel([0.9] * 80, [True] * 50 + [False] * 30), [ECE()])["ece"]
        >>> round(found.value, 3), found.low < 0.275 < found.high, found.p < 0.01
        (0.275, True, True)
    """
    metrics = tuple(metrics)
    progress("one pass over the rows")
    values = Tally(metrics).add(predictions).values()
    top = [metric for metric in metrics if isinstance(metric.statistic, TopStatistic)]
    rest = [metric for metric in metrics if metric not in top]
    found: dict[str, Estimate] = {}
    draws = draw_groups(len(predictions), resamples, np.random.default_rng([seed, 3]))
    if top:
        progress("resampling the top label")
        found |= estimate_top_label(predictions.top, top, values, draws, seed)
    if rest:
        assert isinstance(predictions, Predictions), "the tally refuses anything else"
        progress("resampling all classes")
        found |= estimate_all_classes(predictions, rest, values, draws, seed)
    return {metric.name: found[metric.name] for metric in metrics}
