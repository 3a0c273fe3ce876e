"""How the axis of a metric is named and numbered."""

from collections.abc import Callable
from typing import NamedTuple

from matplotlib.axis import Axis
from matplotlib.ticker import MaxNLocator, ScalarFormatter

from calibrant.plots.layout import percent, percent_ticks

__all__ = ["MetricAxis", "metric_axis"]


class MetricAxis(NamedTuple):
    """Words for the axis, how to write a number of it in a text, and whether ticks are in percent."""

    words: str
    number: Callable[[float], str]
    in_percent: bool

    def set_ticks(self, axis: Axis, most: int) -> None:
        """Ticks at round numbers, at most so many steps."""
        axis.set_major_locator(MaxNLocator(most))
        plain = ScalarFormatter(useOffset=False)
        axis.set_major_formatter(percent_ticks() if self.in_percent else plain)


# Shares and errors of shares are read in percent.
_WORDS = {
    "accuracy": "Accuracy",
    "ace": "Adaptive ECE",
    "auroc": "AUROC",
    "confidence": "Mean confidence",
    "ece": "ECE",
    "sce": "Classwise ECE",
}
_PLAIN = {"brier": "Brier score", "entropy": "Entropy, nats", "nll": "Log-loss"}


def metric_axis(name: str) -> MetricAxis:
    """The axis of a metric of this name; one that is not known here has its name and plain numbers.

    Example:
        >>> metric_axis("ece").words, metric_axis("ece").number(0.0123)
        ('ECE, %', '1.2 %')
    """
    if name in _WORDS:
        return MetricAxis(f"{_WORDS[name]}, %", percent, in_percent=True)
    return MetricAxis(_PLAIN.get(name, name), lambda value: f"{value:.3f}", in_percent=False)
