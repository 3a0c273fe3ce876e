"""Every metric by its short name, read from its folder: nothing is registered by hand."""

import difflib
import inspect

from calibrant import metrics
from calibrant.errors import UnknownNameError
from calibrant.metrics import Metric

__all__ = ["all_metrics", "find_metric"]


def all_metrics() -> dict[str, Metric]:
    """Every metric with its default options, by name.

    Example:
        >>> all_metrics()["ece"].title
        'Expected calibration error'
    """
    exported = (getattr(metrics, name) for name in metrics.__all__)
    classes = (thing for thing in exported if inspect.isclass(thing) and issubclass(thing, Metric))
    made = (kind() for kind in classes if not inspect.isabstract(kind))
    return {metric.name: metric for metric in sorted(made, key=lambda metric: metric.name)}


def find_metric(name: str) -> Metric:
    """The metric of that name.

    Raises:
        UnknownNameError: If there is none; the message names the closest.
    """
    known = all_metrics()
    if name in known:
        return known[name]
    close = difflib.get_close_matches(name, known, n=1)
    hint = f" Did you mean {close[0]}?" if close else ""
    raise UnknownNameError(f"a metric must be one of {', '.join(known)}; got {name!r}.{hint}")
