"""probmetrics: proper scores from logits or probabilities, smECE through relplot, scaling methods."""

from collections.abc import Callable

from probmetrics.calibrators import get_calibrator
from probmetrics.distributions import CategoricalLogits
from probmetrics.metrics import Metric

from .rows import Fitted, Rows


def _from_probs(name: str) -> Callable[[Rows], float]:
    metric = Metric.from_name(name)
    return lambda rows: float(metric.compute_from_labels_probs(rows.labels, rows.probs))


def _from_logits(name: str) -> Callable[[Rows], float]:
    metric = Metric.from_name(name)
    return lambda rows: float(metric.compute_from_labels_logits(rows.labels, rows.logits))


def temperature_from_logits(rows: Rows) -> float:
    """Thirty bisections of the slope."""
    calibrator = get_calibrator("temp-scaling")
    calibrator.fit_torch(CategoricalLogits(rows.logits), rows.labels)
    return 1 / float(calibrator.invtemp_)


TASKS = {
    "brier from probs": _from_probs("brier"),
    "brier from logits": _from_logits("brier"),
    "nll from logits": _from_logits("logloss"),
    "ece from logits": _from_logits("ece-15"),
    "smece from logits": _from_logits("smece"),
    "temperature from logits": temperature_from_logits,
}


def _fit(name: str) -> Callable[[Rows], Fitted]:
    def fit(rows: Rows) -> Fitted:
        fitted = get_calibrator(name).fit(rows.probs_array, rows.labels_array)
        return lambda others: fitted.predict_proba(others.probs_array)

    return fit


FITS = {"svs from probs": _fit("svs"), "sms from probs": _fit("sms")}
