"""probmetrics: proper scores from logits or probabilities, smECE through relplot."""

from collections.abc import Callable

from probmetrics.metrics import Metric

from .rows import Rows


def _from_probs(name: str) -> Callable[[Rows], float]:
    metric = Metric.from_name(name)
    return lambda rows: float(metric.compute_from_labels_probs(rows.labels, rows.probs))


def _from_logits(name: str) -> Callable[[Rows], float]:
    metric = Metric.from_name(name)
    return lambda rows: float(metric.compute_from_labels_logits(rows.labels, rows.logits))


TASKS = {
    "brier from probs": _from_probs("brier"),
    "brier from logits": _from_logits("brier"),
    "nll from logits": _from_logits("logloss"),
    "ece from logits": _from_logits("ece-15"),
    "smece from logits": _from_logits("smece"),
}
