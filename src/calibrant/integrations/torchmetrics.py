"""Every metric of the catalogue as a ``torchmetrics.Metric``, whose states are sums of fixed size.

A state adds up over batches and processes, so that samples are never gathered. Metrics of the top label (``ece``,
``mce``, ``smece``, ``auroc``, …) are updated without waiting for a GPU. Extra: ``torchmetrics``.
"""

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from functools import reduce
from operator import or_
from typing import Any, Literal, TypeAlias, final, get_args

import torch
from torch import Tensor

from calibrant import catalogue
from calibrant.checks import check_known, where_float64_is
from calibrant.errors import InputError, check_kind
from calibrant.integrations import needed
from calibrant.metrics.base import Metric, RankMetric
from calibrant.metrics.states import RankedCells, Statistic, Sums, TopStatistic
from calibrant.numerics.softmax import argmax_rows, to_working_precision, workspace
from calibrant.predictions import SUM_TOLERANCE, Predictions, TopLabel, check_unweighted

with needed("torchmetrics", "torchmetrics"):
    import torchmetrics

ScoreKind: TypeAlias = Literal["logits", "probs"]
_MUST_BE = {"logits": "finite numbers", "probs": "probabilities that sum to one"}


@final
class CalibrantMetric(torchmetrics.Metric):
    """A metric of the catalogue with the interface of TorchMetrics: ``update(scores, labels)``, ``compute()``.

    Ranks (``auroc``, ``aurc``, ``ace``, ``ks``, …) are counted in 16,384 cells of log-odds, those in one cell as tied.
    On 20,000 samples this moved ``ace``, ``ks``, ``aurc`` and ``auroc`` by less than 1e-5, ``aupr_error`` and
    ``aupr_success`` by 6e-5, and ``fpr95``, a step function of the samples, by 4e-4.

    NaN among the scores, labels that are no class, and weights that are negative or not finite are counted on the
    device, and reported by ``compute``. Calibration errors of two classes are of the predicted class, unlike those of
    reports.

    Args:
        metric: Name with options, as in ``"ece(n_bins=10)"``, or a :class:`~calibrant.metrics.Metric`.
        inputs: Whether scores are logits or probabilities; their values never decide.
        num_classes: Number of classes, needed by metrics with a state per class (``sce``, ``tl_ece``, ``skce``).
        ignore_index: Label of samples that do not count, as in segmentation.
        others: Metrics whose states are kept as well, so that all of them can share one update; see
            :func:`metric_collection`.
        options: Options of ``torchmetrics.Metric``, such as ``sync_on_compute``.

    Example:
        >>> ece = CalibrantMetric("ece(n_bins=10)")
        >>> ece.update(torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 0]))
        >>> round(float(ece.compute()), 3)
        0.425
    """

    is_differentiable = False
    full_state_update = False

    samples: Tensor
    unreadable: Tensor

    def __init__(
        self,
        metric: str | Metric = "ece",
        *,
        inputs: ScoreKind = "logits",
        num_classes: int | None = None,
        ignore_index: int | None = None,
        others: Sequence[str | Metric] = (),
        **options: Any,
    ) -> None:
        super().__init__(**options)
        check_known(inputs, get_args(ScoreKind), "inputs")
        self.inputs, self.num_classes, self.ignore_index = inputs, num_classes, ignore_index
        self.metric = _with_bounded_state(metric)
        self._kept = kept = {one.statistic: one.name for one in map(_with_bounded_state, (*others, self.metric))}
        self._kinds = {statistic: _kind(statistic, name, num_classes) for statistic, name in kept.items()}
        self._wanted = reduce(or_, (statistic.wanted for statistic in kept))
        self._ranks = any(isinstance(statistic, RankedCells) for statistic in kept)
        self._is_of_top_label = all(isinstance(statistic, TopStatistic) for statistic in kept)
        self._names = {
            statistic: [f"state_{number}_{field.name}" for field in fields(kind)]
            for number, (statistic, kind) in enumerate(self._kinds.items())
        }
        for statistic, names in self._names.items():
            for name, value in zip(names, self._kinds[statistic].tensors(), strict=True):
                self.add_state(name, torch.zeros_like(value), dist_reduce_fx="sum")
        self.add_state("samples", torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum")
        self.add_state("unreadable", torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum")

    @property
    def higher_is_better(self) -> bool | None:  # type: ignore[override]  # a constant of the class there
        """Whether larger values are better; None: neither."""
        return None if self.metric.lower_is_better is None else not self.metric.lower_is_better

    def update(self, scores: Tensor, labels: Tensor, weights: Tensor | None = None) -> None:
        """Count a batch.

        Args:
            scores: Logits or probabilities, (n, k) or (n, k, ...).
            labels: Classes, (n,) or (n, ...).
            weights: How many samples each stands for, in the labels' shape, at least 0; all alike if not given.
        """
        rows, classes, counts = self._as_rows(scores, labels, weights)
        if counts is None:
            self.samples.add_(len(classes))
        else:
            self.samples.add_(counts.count_nonzero())
            is_weight = (counts >= 0) & counts.isfinite()
            self.unreadable.add_((~is_weight).sum())
            counts = counts.where(is_weight, 0)
        samples: TopLabel | Predictions | None
        if self._is_of_top_label:
            samples = self._top(rows, classes, counts)
        else:
            samples = self._predictions(rows, classes, counts)
        if samples is None:
            return
        for statistic, names in self._names.items():
            if not statistic.takes_weights:
                check_unweighted(samples, self._kept[statistic])
            state = statistic(samples)
            assert isinstance(state, Sums)
            torch._foreach_add_([getattr(self, name) for name in names], list(state.tensors()))  # in one call

    def _apply(self, fn: Callable[..., Any], *excluded: Any) -> Any:
        try:
            fn(torch.zeros((), dtype=torch.float64))
        except TypeError:  # an Apple GPU has no float64: the sums stay on the CPU
            return self
        return super()._apply(fn, *excluded)

    def compute(self) -> Tensor:
        """Return the metric of all samples so far, on all processes.

        Raises:
            InputError: If no sample was counted, or some could not be read.
        """
        if not int(self.samples):
            raise InputError(
                f"{self.metric.name} must have counted at least one sample before it is computed; got none. Call "
                "update(scores, labels) first, with weights that are not all 0."
            )
        if int(self.unreadable):
            raise InputError(
                f"{self.inputs} must be {_MUST_BE[self.inputs]}, labels classes, and weights finite and at least 0; of "
                f"{int(self.samples):,} samples {int(self.unreadable):,} had others. Give ignore_index=… if a label "
                "marks samples to leave out, or weight 0."
            )
        statistic = self.metric.statistic
        sums = (getattr(self, name) for name in self._names[statistic])
        return self.metric.value(type(self._kinds[statistic])(*sums))

    def _as_rows(self, scores: Tensor, labels: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return scores (n, k), labels (n,) and weights (n,), or None if all count alike."""
        for name, given in (("scores", scores), ("labels", labels)):
            check_kind(given, Tensor, name, "Pass torch.as_tensor of an array.")
        if scores.ndim < 2 or scores.shape[1] < 2 or labels.shape != (len(scores), *scores.shape[2:]):
            raise InputError(
                "scores must have shape (n, k) or (n, k, ...), with at least two classes, and labels the same without "
                f"k; got {tuple(scores.shape)} and {tuple(labels.shape)}."
            )
        if not scores.is_floating_point() or labels.is_floating_point() or labels.is_complex():
            raise InputError(f"scores must be floating-point numbers, labels int; got {scores.dtype}, {labels.dtype}.")
        if self.num_classes is not None and scores.shape[1] != self.num_classes:
            raise InputError(f"scores must have num_classes={self.num_classes} classes; got {scores.shape[1]}.")
        if weights is not None and (weights.shape != labels.shape or weights.is_complex()):
            raise InputError(f"weights must have the labels' shape {tuple(labels.shape)}; got {tuple(weights.shape)}.")
        k, scores, labels = scores.shape[1], where_float64_is(scores), where_float64_is(labels)
        rows = scores.detach() if scores.ndim == 2 else scores.detach().movedim(1, -1).reshape(-1, k)
        classes = labels.reshape(-1).long()
        counts = None if weights is None else where_float64_is(weights).detach().reshape(-1).double()
        if self.ignore_index is not None:
            is_counted = classes != self.ignore_index
            counts = is_counted.double() if counts is None else counts * is_counted
            classes = classes.where(is_counted, 0)
        return rows, classes, counts

    def _top(self, rows: Tensor, classes: Tensor, weights: Tensor | None) -> TopLabel:
        """Return confidence, correctness and log-odds without waiting for the device."""
        precise, predicted = to_working_precision(rows), argmax_rows(rows)
        place = predicted[:, None]
        if self._ranks and self.inputs == "logits":
            size = precise.numel()
            powers = workspace(1, size, precise.dtype, precise.device)[0, :size].view(precise.shape)
            torch.sub(precise, precise.gather(1, place), out=powers).exp_().scatter_(1, place, 0.0)
            rest = powers.sum(dim=1)  # of the others, by which confidences that round to 1 keep their order
            confidence, log_odds = (rest + 1).reciprocal_(), rest.log().neg_()
        else:
            if self.inputs == "probs":
                confidence = precise.gather(1, place).squeeze(1)
            else:
                confidence = precise.log_softmax(dim=1).gather(1, place).squeeze(1).exp_()
            log_odds = confidence
            if self._ranks:  # else no statistic reads them
                log_odds = confidence.log() - (-confidence).log1p()
        # Reported by compute: here the numbers are still on their way.
        is_bad = (classes.clamp(0, rows.shape[1] - 1) != classes).logical_or_(confidence.isnan())
        if self.inputs == "probs":
            is_bad.logical_or_((precise.sum(dim=1) - 1).abs() > SUM_TOLERANCE).logical_or_(confidence > 1)
        if weights is not None:
            is_bad.logical_and_(weights != 0)  # the others do not count, whatever they are
        self.unreadable.add_(is_bad.sum())
        confidence = confidence.nan_to_num(0.5)
        log_odds = log_odds.nan_to_num(0.0) if self._ranks else confidence
        return TopLabel._trusted(confidence.double(), predicted == classes, log_odds, weights)

    def _predictions(self, rows: Tensor, classes: Tensor, weights: Tensor | None) -> Predictions | None:
        """Return checked predictions after one pass for all statistics; None if no sample counts."""
        if weights is not None:
            is_counted = weights > 0
            rows, classes, weights = rows[is_counted], classes[is_counted], weights[is_counted]
            weights = None if self.ignore_index is not None and bool((weights == 1).all()) else weights
        if not len(rows):
            return None
        make = Predictions.from_logits if self.inputs == "logits" else Predictions.from_probs
        predictions = make(rows, classes, weights=weights)
        predictions.softmax_rows(self._wanted)
        return predictions


def metric_collection(
    *metrics: str | Metric,
    inputs: ScoreKind = "logits",
    num_classes: int | None = None,
    ignore_index: int | None = None,
    prefix: str | None = None,
    postfix: str | None = None,
) -> torchmetrics.MetricCollection:
    """Return a ``MetricCollection`` of several metrics whose updates are one pass over the scores.

    Args:
        metrics: Names with options, or metrics; different names.
        inputs: As for :class:`CalibrantMetric`, and so the rest.
        num_classes: Number of classes.
        ignore_index: Label of samples that do not count.
        prefix: Put before every name, such as ``"val_"``.
        postfix: Put after every name.

    Example:
        >>> metrics = metric_collection("ece", "nll", "auroc", prefix="val_")
        >>> metrics.update(torch.tensor([[2.0, 0.0], [0.0, 1.0], [3.0, 0.0]]), torch.tensor([0, 0, 0]))
        >>> {name: round(float(value), 3) for name, value in metrics.compute().items()}
        {'val_auroc': 1.0, 'val_ece': 0.299, 'val_nll': 0.496}
    """
    chosen = {metric.name: metric for metric in map(_with_bounded_state, metrics)}
    if len(chosen) != len(metrics) or not metrics:
        names = ", ".join(_with_bounded_state(metric).name for metric in metrics) or "none"
        raise InputError(f"a collection must have metrics of different names, at least one; got {names}.")
    options: dict[str, Any] = {"inputs": inputs, "num_classes": num_classes, "ignore_index": ignore_index}
    # Every member keeps the states of all, in the same order, so that the update of one serves all of them.
    shared = tuple(sorted(chosen.values(), key=lambda metric: metric.name))
    members: dict[str, Any] = {
        name: CalibrantMetric(metric, others=shared, **options) for name, metric in chosen.items()
    }
    return torchmetrics.MetricCollection(members, prefix=prefix, postfix=postfix, compute_groups=[list(members)])


def _with_bounded_state(metric: str | Metric) -> Metric:
    """Return a metric whose state is a sum of fixed size."""
    made = catalogue.metrics.parse(metric)
    return replace(made, ranks=RankedCells()) if isinstance(made, RankMetric) else made


def _kind(statistic: Statistic, name: str, num_classes: int | None) -> Sums:
    """Return an example of the state that a statistic gathers, for its fields and their shapes."""
    examples = []
    for k in {2, 3} if num_classes is None else {num_classes}:
        state = statistic(Predictions.from_logits(torch.eye(k), torch.arange(k)))
        if not isinstance(state, Sums):
            raise InputError(f"{name} must have a state of sums to be updated in batches; it has another.")
        examples.append(state)
    shapes = {tuple(value.shape for value in state.tensors()) for state in examples}
    if len(shapes) > 1:
        raise InputError(f"{name} must know the number of classes, as it has a state for each: give num_classes=….")
    return examples[0]
