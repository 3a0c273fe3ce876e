"""Everything there is to say about one set of predictions, as numbers."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import torch

from calibrant.catalogue import all_metrics
from calibrant.evidence import Estimate, estimate
from calibrant.metrics import (
    Metric,
    Murphy,
    RefinementTerms,
    Split,
    calibration_refinement,
    murphy,
    refinement_terms,
)
from calibrant.metrics.base import TopStatistic
from calibrant.numerics.fast import row_products
from calibrant.predictions import Predictions, TopLabel, ZeroCells
from calibrant.report.advice import Advice, advise
from calibrant.report.worst import WorstBin, WorstClass, worst_bins, worst_classes

__all__ = ["Evaluation", "evaluate", "metrics_for"]

# Not a calibration error but a misprint kept for study: never in a report unless asked for by name.
_LEFT_OUT = {"sece_printed"}
_FOLDS = 5
_ORDER = 1973  # seed of the one order of the samples; no other seed of this library's


@final
@dataclass(frozen=True)
class Evaluation:
    """Numbers of one set of predictions, each with its evidence."""

    n: int
    classes: int | None  # None where only top labels are known
    n_bins: int
    seed: int
    metrics: dict[str, Estimate]
    murphy: Murphy
    refinement_terms: RefinementTerms
    splits: dict[str, Split]  # of nll and brier; empty where all classes are not known
    worst_bins: list[WorstBin]
    worst_classes: list[WorstClass]
    zeros: ZeroCells | None = None  # of given probabilities

    @property
    def gap(self) -> float:
        """Mean confidence minus accuracy: above 0 the model is overconfident on average."""
        return self.metrics["confidence"].value - self.metrics["accuracy"].value

    @property
    def advice(self) -> Advice:
        """What to do next, and why."""
        return advise(self.n, self.metrics, self.splits)


def metrics_for(predictions: Predictions | TopLabel, *, n_bins: int = 15) -> list[Metric]:
    """The metrics of a report: all that the predictions allow."""
    chosen = []
    for metric in all_metrics().values():
        needs_all_classes = not isinstance(metric.statistic, TopStatistic)
        if metric.name in _LEFT_OUT or (needs_all_classes and isinstance(predictions, TopLabel)):
            continue
        has_bins = any(option.name == "n_bins" for option in dataclasses.fields(metric))  # type: ignore[arg-type]
        chosen.append(dataclasses.replace(metric, n_bins=n_bins) if has_bins else metric)  # type: ignore[type-var]
    return chosen


def evaluate(
    predictions: Predictions | TopLabel,
    *,
    n_bins: int = 15,
    resamples: int = 1000,
    seed: int = 0,
    progress: Callable[[str], None] = lambda _: None,
) -> Evaluation:
    """Judge predictions: every metric with its interval, what is worst, and how the scores divide.

    Args:
        predictions: Logits and labels, or confidence and correctness.
        n_bins: Bins of all binned errors.
        resamples: Draws behind intervals and floors.
        seed: The same seed gives the same numbers.
        progress: Called with the name of each stage as it begins.

    Example:
        >>> found = evaluate(TopLabel([0.9] * 80, [True] * 50 + [False] * 30), resamples=200)
        >>> found.n, round(found.gap, 3), found.metrics["ece"].p < 0.01
        (80, 0.275, True)
    """
    metrics = metrics_for(predictions, n_bins=n_bins)
    predictions = _in_one_order(predictions)
    found = estimate(predictions, metrics, resamples=resamples, seed=seed, progress=progress)
    progress("splitting the scores into calibration and refinement")
    return Evaluation(
        n=len(predictions),
        classes=predictions.n_classes if isinstance(predictions, Predictions) else None,
        n_bins=n_bins,
        seed=seed,
        metrics=found,
        murphy=murphy(predictions, n_bins=n_bins),
        refinement_terms=refinement_terms(predictions, n_bins=n_bins),
        splits=_splits(predictions, seed),
        worst_bins=worst_bins(predictions, n_bins=n_bins),
        worst_classes=worst_classes(predictions) if isinstance(predictions, Predictions) else [],
        zeros=predictions.zero_cells if isinstance(predictions, Predictions) else None,
    )


def _in_one_order(predictions: Predictions | TopLabel) -> Predictions | TopLabel:
    """The same samples in an order that they alone decide, so that any permutation of them gives the same report.

    Samples are dealt into folds and groups by position, and sums depend on their order in the last digits. The order is
    that of a random number that the logits of a sample give, and then as good as random itself.
    """
    if isinstance(predictions, TopLabel):
        key, second = predictions.log_odds, predictions.correct.long()
    else:
        generator = torch.Generator().manual_seed(_ORDER)
        weights = torch.rand(1, predictions.n_classes, generator=generator, dtype=torch.float64)
        key = torch.cat([row_products(block.logits.double(), weights) for block in predictions.blocks()])
        second = predictions.labels
    order = second.argsort(stable=True)
    order = order[key[order].argsort(stable=True)]
    shuffled = torch.randperm(len(order), generator=torch.Generator().manual_seed(_ORDER)).to(order.device)
    return predictions[order[shuffled]]


def _splits(predictions: Predictions | TopLabel, seed: int) -> dict[str, Split]:
    # A temperature needs right and wrong answers to balance, and rows enough to deal into folds.
    if isinstance(predictions, TopLabel) or len(predictions) < 10 * _FOLDS or predictions.top.accuracy in (0.0, 1.0):
        return {}
    return calibration_refinement(predictions, folds=_FOLDS, seed=seed)
