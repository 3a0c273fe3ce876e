"""A report as JSON, under a versioned schema."""

import math
from importlib.metadata import version
from typing import Any

from calibrant.evidence import Difference, Estimate
from calibrant.report.evaluation import Evaluation
from calibrant.report.wording import verdict

__all__ = ["SCHEMA", "plain_estimate", "to_document", "without_nan"]

SCHEMA = "calibrant.evaluation/1"
_ALWAYS = ("value", "low", "high")


def to_document(
    evaluation: Evaluation, *, source: str | None = None, comparison: dict[str, Difference] | None = None
) -> dict[str, Any]:
    """The report as plain data: numbers that do not exist (NaN) are None.

    ``metrics.<name>`` has ``value``, ``low`` and ``high``, and for calibration errors ``floor`` and ``p``. ``advice``
    has the ``step`` to take next, its ``reason``, and the ``samples`` that would decide where more are the step.
    """
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "calibrant": version("calibrant"),
        "source": source,
        "n": evaluation.n,
        "classes": evaluation.classes,
        "bins": evaluation.n_bins,
        "seed": evaluation.seed,
        "verdict": vars(verdict(evaluation)),
        "advice": vars(evaluation.advice),
        "metrics": {name: plain_estimate(found) for name, found in evaluation.metrics.items()},
        "splits": {name: split._asdict() for name, split in evaluation.splits.items()},
        "murphy": evaluation.murphy._asdict() | {"refinement": evaluation.murphy.refinement},
        "refinement_terms": evaluation.refinement_terms._asdict()
        | {"equation_9": evaluation.refinement_terms.equation_9},
        "zeros": None if evaluation.zeros is None else evaluation.zeros.as_dict(),
        "worst_bins": [vars(worst) for worst in evaluation.worst_bins],
        "worst_classes": [vars(worst) for worst in evaluation.worst_classes],
    }
    if comparison is not None:
        document["comparison"] = {name: vars(difference) for name, difference in comparison.items()}
    plain: dict[str, Any] = without_nan(document)
    return plain


def plain_estimate(found: Estimate) -> dict[str, float]:
    """Value and bounds, and for calibration errors floor and p."""
    return {key: number for key, number in vars(found).items() if key in _ALWAYS or number is not None}


def without_nan(value: Any) -> Any:
    """JSON has no NaN and no infinity."""
    if isinstance(value, dict):
        return {key: without_nan(item) for key, item in value.items()}
    if isinstance(value, list):
        return [without_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
