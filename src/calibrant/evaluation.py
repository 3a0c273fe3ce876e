"""Evaluate one set of predictions: every metric with its evidence, the worst bins and classes, and the next step.

The next step keeps three cases apart: an effect that is shown, one that is shown to be too small to matter, and one
that the samples leave open. In the last case the advice is more samples.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, NamedTuple, TypedDict, Unpack, final

import numpy as np
import torch
from torch import Tensor

from calibrant import catalogue
from calibrant.checks import check_evidence, check_rates, with_devices_of_inputs
from calibrant.evidence import LEVEL, Estimate, by_subject, estimate
from calibrant.evidence.clusters import Clusters, copies_in, effective_number_of, projection_of, squares_at
from calibrant.evidence.corp import CorpSplit, corp_of_ranked
from calibrant.evidence.decisions import NetBenefit, decision_curve
from calibrant.evidence.estimates import Draws
from calibrant.evidence.intervals import is_like_guessing
from calibrant.evidence.logistic import CalibrationLine, NoLine, Outcomes, line_of, why_no_line
from calibrant.evidence.risk import RISK_AUROC, Risk, risk_with
from calibrant.evidence.thresholds import OperatingPoint, operating_points, ranked_trials
from calibrant.metrics import Metric, Murphy, RefinementTerms, ScoreSplit, calibration_refinement
from calibrant.metrics.proper import murphy_of_state, refinement_terms_of_state
from calibrant.metrics.smooth import KernelFeatures
from calibrant.metrics.states import (
    EXACT,
    BinMoments,
    Binned,
    BinnedByPrediction,
    BinnedMoments,
    Bins,
    ClassBins,
    Ranked,
    TopStatistic,
)
from calibrant.notebook import HasReport
from calibrant.numerics.binning import bin_index
from calibrant.predictions import Arrays, Predictions, TopLabel, ZeroCells, as_predictions, as_risk, counted_samples
from calibrant.predictions.scores import OF_CORRECTNESS

# Its paper misprints the formula, so it is not a calibration error; computed only when requested by name.
_EXCLUDED_FROM_REPORTS = {"sece_printed"}
_KERNEL_CLASSES = 10_000  # the kernel error keeps 128 numbers a class of every group: with more it is left out
_FOLDS = 5
_PERMUTATION_SEED = 1973  # seed of the canonical order of the samples; not used elsewhere
_NUMBERS = 1 << 20  # logits that are read at a time
NOISE_LEVEL = 0.025  # half of the usual 5 %, because two tests decide whether the model is miscalibrated
WORTHWHILE = 0.01  # least relative change of a proper score that is worth a step, as `smallest_effect` has it
_SMALL_ERROR = 0.01  # a calibration error below this is too small to matter, even if significant
_RAREST = 0.001  # scale of errors where one of two classes is rarer than in half of this share
_EXPECTED = 10.0  # samples of a class; that none occurs has then a chance of 1 in 20,000
_HIGH_FLOOR = 0.02  # noise above this hides errors that would matter
_WIDTH = 2 * 1.96  # of a 95 % interval, in standard deviations
_POWER = 2.04  # factor on the sample size for a power of 80 %: ((1.96 + 0.84) / 1.96)²


class NextStep(StrEnum):
    """The recommended next step."""

    fit_temperature = "fit_temperature"
    compare_methods = "compare_methods"
    recalibrate = "recalibrate"  # by a method that the samples do not let us name
    more_samples = "more_samples"
    leave = "leave"
    check_labels = "check_labels"


class Reason(StrEnum):
    """The reason for a next step."""

    temperature_helps = "temperature_helps"  # beyond noise, and by enough to matter
    scores_disagree = "scores_disagree"  # a temperature raises a proper score beyond noise, and lowers another
    classes_differ = "classes_differ"  # too sure of some classes and not sure enough of others, beyond noise
    not_by_temperature = "not_by_temperature"  # miscalibrated, and no useful gain by a temperature is left possible
    gain_unknown = "gain_unknown"  # miscalibrated; only the top label, or too few samples, to tell what would help
    gain_open = "gain_open"  # the interval of the gain holds both none and one that would matter
    floor_high = "floor_high"  # an error that would matter could hide in noise
    too_small = "too_small"  # miscalibrated beyond noise, but by too little to matter
    calibrated = "calibrated"  # no sign of miscalibration, and samples enough to have seen one that matters
    classes_absent = "classes_absent"  # no sample is of a class that the probabilities expect many samples of
    like_guessing = "like_guessing"  # right about as often as guessing one of the classes, or less


@final
@dataclass(frozen=True)
class Advice:
    """A next step and its reason; ``samples`` is about how many would decide, where the step is more samples."""

    step: NextStep
    reason: Reason
    samples: int | None = None


@final
@dataclass(frozen=True)
class WorstBin:
    """A range of confidence whose accuracy differs from it beyond noise."""

    low: float
    high: float
    share: float
    confidence: float
    accuracy: float


@final
@dataclass(frozen=True)
class WorstClass:
    """A predicted class that is right less, or more, often than its confidence claims."""

    label: int
    name: str | None
    count: int
    share: float  # of all samples, by their weights
    confidence: float
    accuracy: float


class ClassShare(NamedTuple):
    """The most frequent class: to predict it every time is right for this share of samples, by their weights."""

    label: int
    name: str | None
    share: float


class AbsentClass(NamedTuple):
    """A class of which there is no sample, although the probabilities expect many."""

    label: int
    name: str | None
    expected: float  # sum of its probabilities


@final
@dataclass(frozen=True)
class Streamed:
    """How more samples than memory holds were evaluated, and what that costs."""

    shards: int
    sample: int  # uniform sample that was kept; what a temperature removes from proper scores is its
    sampled: tuple[str, ...]  # metrics of that sample alone
    auroc_error: float  # most by which ranks in bounded memory can change the area under the ROC curve
    missing: tuple[str, ...] = ()  # shards that could not be read and were allowed to be missing


@final
@dataclass(frozen=True, repr=False)
class Evaluation(HasReport):
    """Metrics of one set of predictions, each with its evidence. A notebook shows it as a report."""

    n: int
    classes: int | None  # None where only top labels are known
    n_bins: int
    seed: int
    metrics: dict[str, Estimate]
    murphy: Murphy
    refinement_terms: RefinementTerms
    corp: dict[str, CorpSplit]  # top_brier and top_nll, of two classes risk_brier and risk_nll
    splits: dict[str, ScoreSplit]  # nll and brier; empty where no temperature is fitted
    worst_bins: list[WorstBin]
    worst_classes: list[WorstClass]
    zeros: ZeroCells | None = None  # where probabilities were given
    effective_n: float | None = None  # effective number of samples; None if all count alike
    clusters: int | None = None  # their number; None: the samples are independent
    streamed: Streamed | None = None  # None: the samples were in memory
    operating_points: tuple[OperatingPoint, ...] = ()  # by error rate: that of the estimate, and the guaranteed one
    majority: ClassShare | None = None  # None where only top labels are known
    absent_classes: tuple[AbsentClass, ...] = ()  # the most expected first
    line: CalibrationLine | None = None  # of two classes, or top labels
    no_line: NoLine | None = None  # why top labels have none, where it is known
    positive: str | None = None  # name of the second of two classes, which the line and the risk are of
    risk: Risk | None = None  # of two classes: the probability of the second
    decisions: tuple[NetBenefit, ...] = ()  # by threshold of that risk, or of the confidence of top labels
    copies: int = 0  # samples that seem to be copies of others; none are counted in streams and in clusters

    @property
    def gap(self) -> float:
        """Mean confidence minus accuracy: above 0 the model is overconfident on average."""
        return self.metrics["confidence"].value - self.metrics["accuracy"].value

    @property
    def estimates(self) -> dict[str, Estimate]:
        """The metrics and, of two classes, ``risk_auroc``: all that gates and experiment trackers have a name for."""
        return self.metrics if self.risk is None else self.metrics | {RISK_AUROC: self.risk.auroc}

    @property
    def scale(self) -> float:
        """Factor by which a calibration error matters sooner, where one of two classes is rare; else 1."""
        return 1.0 if self.risk is None else max(self.risk.scale, _RAREST)

    @property
    def cancelled(self) -> float:
        """Error that cancels between predicted classes: too sure of some, and not sure enough of others, beyond noise.

        So it is where a rare class is predicted too often. One temperature moves all classes in one direction.
        """
        gaps = [one.share * (one.confidence - one.accuracy) for one in self.worst_classes]
        return min(sum(max(gap, 0.0) for gap in gaps), sum(max(-gap, 0.0) for gap in gaps))

    @property
    def is_off_by_class(self) -> bool:
        """Whether that error matters, and is too large beside the calibration error to be seen in it."""
        return self.risk is None and self.cancelled >= max(_SMALL_ERROR, self.metrics["ece"].value / 2)

    @property
    def is_shifted(self) -> bool:
        """Whether the log-odds of two classes need a shift beyond noise, by enough to matter. No temperature shifts."""
        if self.classes != 2 or self.line is None or not is_beyond_noise(self.metrics):
            return False
        shift = self.line.intercept
        if shift.low <= 0 <= shift.high:
            return False
        deviations = _WIDTH * shift.value / (shift.high - shift.low)  # of the maximum likelihood from 0
        return deviations**2 / (2 * (self.effective_n or self.n)) >= WORTHWHILE * self.metrics["nll"].value

    @property
    def advice(self) -> Advice:
        """The next step and its reason."""
        accuracy, n = self.metrics["accuracy"].value, self.effective_n or self.n
        if self.absent_classes:
            return Advice(NextStep.check_labels, Reason.classes_absent)
        # Of confidences in being right, which have no splits, any share may be right.
        if self.classes and (self.splits or not accuracy) and is_like_guessing(accuracy, n, self.classes):
            return Advice(NextStep.check_labels, Reason.like_guessing)
        if self.cancelled >= _SMALL_ERROR or self.is_shifted:
            return Advice(NextStep.compare_methods, Reason.classes_differ)
        return advise(self.n, self.metrics, self.splits, small=_SMALL_ERROR * self.scale)

    def frame_rows(self) -> list[dict[str, Any]]:
        """Return a row per metric: name, family, value, interval; for calibration errors noise floor and p-value."""
        families = {name: catalogue.metrics[name].family for name in self.metrics}
        return [{"metric": name, "family": families[name], **vars(one)} for name, one in self.metrics.items()]


def metrics_for(predictions: Predictions | TopLabel, *, n_bins: int = 15) -> list[Metric]:
    """Return the metrics of a report: all that the predictions allow."""
    chosen = []
    for metric in catalogue.metrics.values():
        needs_all_classes = not isinstance(metric.statistic, TopStatistic)
        if metric.name in _EXCLUDED_FROM_REPORTS or (needs_all_classes and isinstance(predictions, TopLabel)):
            continue
        if isinstance(metric.statistic, KernelFeatures) and getattr(predictions, "n_classes", 0) > _KERNEL_CLASSES:
            continue
        chosen.append(replace(metric, n_bins=n_bins) if hasattr(metric, "n_bins") else metric)
    return chosen


@with_devices_of_inputs
def evaluate(
    *predictions: Predictions | TopLabel,
    n_bins: int = 15,
    resamples: int = 1000,
    seed: int = 0,
    error_rates: Sequence[float] = (),
    thresholds: Sequence[float] = (),
    progress: Callable[[str], None] = lambda _: None,
    **arrays: Unpack[Arrays],
) -> Evaluation:
    """Evaluate predictions: every metric with its interval, the worst bins and classes, and decompositions of scores.

    Args:
        predictions: Logits and labels, or confidence and correctness.
        n_bins: Bins of all binned errors.
        resamples: Bootstrap resamples for intervals and noise floors.
        seed: Random seed of the resampling.
        error_rates: Largest error rates for which to choose a threshold of the confidence (:func:`operating_points`).
        thresholds: Risks of the positive class of two from which to act, with their net benefit
            (:func:`calibrant.evidence.decision_curve`).
        progress: Called with the name of each stage as it begins.
        arrays: The predictions as arrays by keyword: ``evaluate(probs=p, labels=y)``.

    Example:
        >>> evaluation = evaluate(TopLabel([0.9] * 80, [True] * 50 + [False] * 30), resamples=200)
        >>> evaluation.n, round(evaluation.gap, 3), evaluation.metrics["ece"].p < 0.01
        (80, 0.275, True)
    """
    n_bins, resamples, seed = check_evidence(n_bins, resamples, seed)
    rates, thresholds = check_rates(error_rates), check_rates(thresholds, "thresholds")
    samples = _canonical_order(counted_samples(as_predictions(predictions, "evaluate", arrays)))
    metrics = metrics_for(samples, n_bins=n_bins)
    if thresholds:
        as_risk(samples)  # refuses more than two classes
    draws: Draws = {"resamples": resamples, "seed": seed}
    rest, of_risk = by_subject(metrics, samples)
    estimates, risk = estimate(samples, rest, **draws, progress=progress), None
    if of_risk:
        progress("evaluating the probability of one class")
        risk, errors = risk_with(samples, of_risk, n_bins=n_bins, **draws)
        estimates |= errors
    progress("splitting the scores into calibration and refinement")
    whole = samples if isinstance(samples, Predictions) else None
    return evaluation_from(
        samples, metrics, estimates, n=len(samples), n_bins=n_bins, seed=seed, risk=risk, streamed=None,
        ranked=EXACT(as_risk(samples) if of_risk else samples).ranked,
        moments=BinnedMoments(n_bins)(samples), bins=Binned(n_bins)(samples),
        outcomes=Outcomes.of(as_risk(samples)) if whole is None or whole.n_classes == 2 else None,
        masses=None if whole is None else torch.bincount(whole.labels, whole.weights),
        worst_bins=worst_bins(samples, n_bins=n_bins), worst_classes=[] if whole is None else worst_classes(whole),
        absent_classes=() if whole is None else absent_classes_of(whole),
        zeros=None if whole is None else whole.zero_cells, effective_n=effective_number_of(samples),
        operating_points=operating_points(ranked_trials(samples), rates) if rates else (),
        decisions=decision_curve(samples, thresholds, **draws) if thresholds else (),
    )  # fmt: skip


class Supplied(TypedDict):
    """What samples in memory and states of more must both supply for an evaluation, each in its own way."""

    n: int
    n_bins: int
    seed: int
    worst_bins: list[WorstBin]
    worst_classes: list[WorstClass]
    absent_classes: tuple[AbsentClass, ...]
    zeros: ZeroCells | None
    effective_n: float | None
    streamed: Streamed | None
    operating_points: tuple[OperatingPoint, ...]
    risk: Risk | None
    decisions: tuple[NetBenefit, ...]


def evaluation_from(
    sample: Predictions | TopLabel,
    metrics: Sequence[Metric],
    estimates: Mapping[str, Estimate],
    *,
    ranked: Ranked,
    moments: BinMoments,
    bins: Bins,
    outcomes: Outcomes | None,
    masses: Tensor | None,
    **supplied: Unpack[Supplied],
) -> Evaluation:
    """Return the evaluation of the samples, or of those that the ``sample`` is a uniform part of if they are streamed.

    ``ranked`` and ``outcomes`` are of the risk where there is one; ``masses`` are those of the classes, (k,).
    """
    seed, risk, streamed = supplied["seed"], supplied["risk"], supplied["streamed"]
    whole, subject, of = (sample if isinstance(sample, Predictions) else None), sample.top, "top"
    if risk is not None:
        subject, of = as_risk(sample), "risk"
    floored = whole is None or whole.given_as_probs
    curve = corp_of_ranked(ranked, floored=floored, seed=seed, clusters=Clusters.of(subject))
    line = None if outcomes is None else line_of(outcomes)
    names, majority = None if whole is None else whole.class_names, None
    if masses is not None:
        label = int(masses.argmax())
        majority = ClassShare(label, names[label] if names else None, float(masses[label]) / float(masses.sum()))
    return Evaluation(
        **supplied,
        classes=None if whole is None else whole.n_classes,
        metrics={metric.name: estimates[metric.name] for metric in metrics},
        murphy=murphy_of_state(moments),
        refinement_terms=refinement_terms_of_state(bins, auroc=estimates["auroc"].value),
        corp={f"{of}_brier": curve.brier, f"{of}_nll": curve.nll},
        splits=score_splits(sample, seed, of_all=None if streamed is None else estimates),
        clusters=sample.n_clusters,
        majority=majority,
        line=line,
        no_line=why_no_line(outcomes) if outcomes is not None and line is None and whole is None else None,
        positive=names[1] if names and risk is not None else None,
        copies=copies_in(sample) if streamed is None else 0,
    )


def absent_classes_of(samples: Predictions) -> tuple[AbsentClass, ...]:
    """Return the classes without a sample of which the probabilities expect at least ten, the most expected first.

    Example:
        >>> samples = Predictions.from_probs([[0.5, 0.3, 0.2]] * 50, [0] * 25 + [1] * 25)
        >>> [(absent.label, round(absent.expected)) for absent in absent_classes_of(samples)]
        [(2, 10)]
    """
    observed = torch.bincount(samples.labels, samples.weights, minlength=samples.n_classes).double()
    absent = (observed == 0).nonzero()[:, 0]
    if not len(absent):
        return ()
    expected = torch.zeros_like(observed)
    for block in samples.blocks(max(1, _NUMBERS // samples.n_classes)):
        probs = block.probs[:, absent].double()
        expected[absent] += probs.sum(0) if block.weights is None else block.weights.double() @ probs
    return absent_classes(observed, expected, effective_number_of(samples) or len(samples), samples.class_names)


def absent_classes(
    observed: Tensor, expected: Tensor, effective_n: float, names: Sequence[str] | None
) -> tuple[AbsentClass, ...]:
    """Return the same from the mass of every class, (k,), and that of its probabilities."""
    counts = (expected * (effective_n / float(observed.sum()))).tolist()
    absent = sorted((observed == 0).nonzero()[:, 0].tolist(), key=lambda label: -counts[label])
    return tuple(
        AbsentClass(label, names[label] if names else None, counts[label])
        for label in absent
        if counts[label] >= _EXPECTED
    )


def _canonical_order(predictions: Predictions | TopLabel) -> Predictions | TopLabel:
    """Sort the samples by a random projection of their logits, then permute them: their own order must not matter."""
    key = projection_of(predictions)
    second = predictions.correct.long() if isinstance(predictions, TopLabel) else predictions.labels
    order = torch.arange(len(second), device=second.device)
    for column in (predictions.clusters, predictions.weights):
        order = order if column is None else order[column[order].argsort(stable=True)]
    order = order[second[order].argsort(stable=True)]
    order = order[key[order].argsort(stable=True)]
    shuffled = torch.randperm(len(order), generator=torch.Generator().manual_seed(_PERMUTATION_SEED)).to(order.device)
    return predictions[order[shuffled]]


def score_splits(
    predictions: Predictions | TopLabel, seed: int, of_all: Mapping[str, Estimate] | None = None
) -> dict[str, ScoreSplit]:
    """Split proper scores (``of_all`` samples, if more) by a temperature; none of top labels or of too few samples."""
    # A temperature has an optimum only if there are correct and wrong predictions; folds need enough samples.
    has_none = predictions.independent_size < 10 * _FOLDS or predictions.top.accuracy in (0.0, 1.0)
    if isinstance(predictions, TopLabel) or predictions.class_names == OF_CORRECTNESS or has_none:
        return {}
    splits = calibration_refinement(predictions, folds=_FOLDS, seed=seed)
    if of_all is not None:
        for name, one in splits.items():
            total = of_all[name].value
            splits[name] = one._replace(total=total, refinement=total - one.calibration)
    return splits


def worst_bins(predictions: Predictions | TopLabel, *, n_bins: int = 15) -> list[WorstBin]:
    """Return the bins that add most to the calibration error, beyond noise, largest first, at most three."""
    samples = counted_samples(predictions)
    squares = squares_at(samples, bin_index(samples.top.confidence, n_bins), n_bins)
    return worst_of_bins(replace(Binned(n_bins)(samples), squared_weights=squares))


def worst_of_bins(state: Bins, *, excess: float = 1.0) -> list[WorstBin]:
    """Return :func:`worst_bins` of the samples behind a state; ``excess`` is :attr:`Ranked.excess_of_heavy`."""
    n, n_bins = float(state.count.sum()), len(state.count)
    gaps = _largest_gaps(state.count, state.confidence, state.correct, state.squared_weights * excess)
    return [
        WorstBin(b / n_bins, (b + 1) / n_bins, count / n, confidence / count, correct / count)
        for b, count, confidence, correct in gaps[:3]
    ]


def worst_classes(predictions: Predictions, *, most: int = 5) -> list[WorstClass]:
    """Return the predicted classes that add most to the calibration error, beyond noise, largest first."""
    samples = counted_samples(predictions)
    state = BinnedByPrediction(1)(samples)
    squares = squares_at(samples, samples.predicted, samples.n_classes)
    size = torch.bincount(samples.predicted, minlength=samples.n_classes)
    return worst_of_classes(state, predictions.class_names, size=size, squared_weights=squares, most=most)


def worst_of_classes(
    state: ClassBins, names: Sequence[str] | None, *, size: Tensor, squared_weights: Tensor | None = None, most: int = 5
) -> list[WorstClass]:
    """Return :func:`worst_classes` of the samples behind a state, from the number of samples of each class, (k,)."""
    count, probability, hits = (part.sum(-1) for part in state.tensors())
    gaps = _largest_gaps(count, probability, hits, count if squared_weights is None else squared_weights)
    n = float(count.sum())
    return [
        WorstClass(label, names[label] if names else None, int(size[label]), own / n, confidence / own, correct / own)
        for label, own, confidence, correct in gaps[:most]
    ]


def _largest_gaps(
    count: Tensor, confidence: Tensor, correct: Tensor, squared_weights: Tensor
) -> list[tuple[int, float, float, float]]:
    """Return (index, count, summed confidence, correct) of the groups with a significant gap, largest first.

    Calibrated predictions would have as large a gap in any of the groups in at most 5 % of cases: twice the tail of the
    binomial distribution of their effective number, at their mean confidence, times the number of groups (Bonferroni).
    """
    from scipy.special import betainc

    seen = count.nonzero().flatten()
    columns = (column[seen].double().cpu().numpy() for column in (count, confidence, correct, squared_weights))
    count_of, confidence_of, correct_of, squares_of = columns
    trials, mean = count_of**2 / squares_of, (confidence_of / count_of).clip(0, 1)
    hits = (trials * correct_of / count_of).clip(0, trials)
    fewer, more = betainc(trials - hits, hits + 1, 1 - mean), betainc(hits, trials - hits + 1, mean)
    beyond = np.flatnonzero(2 * np.where(hits < trials * mean, fewer, more) * len(seen) <= LEVEL)
    groups = [(int(seen[i]), float(count_of[i]), float(confidence_of[i]), float(correct_of[i])) for i in beyond]
    return sorted(groups, key=lambda group: -abs(group[2] - group[3]))


def is_beyond_noise(metrics: Mapping[str, Estimate], names: Sequence[str] = ("ece", "smece")) -> bool:
    """Return whether the binned or the bin-free error exceeds what a calibrated model would show."""
    p_values = [metrics[name].p for name in names]
    return any(p is not None and p <= NOISE_LEVEL for p in p_values)


def advise(
    n: int, metrics: Mapping[str, Estimate], splits: Mapping[str, ScoreSplit], *, small: float = _SMALL_ERROR
) -> Advice:
    """Decide the next step; ``splits`` is what one cross-fitted temperature removes from proper scores, if known.

    A calibration error below ``small`` does not matter.
    """
    error, beyond = metrics["ece"], is_beyond_noise(metrics)
    matters = beyond and error.value >= small
    if not splits:
        return _without_splits(n, smallest_visible(metrics), beyond=beyond, matters=matters)
    shown = [split for split in splits.values() if split.calibration_low > 0]
    harmed = [split for split in splits.values() if split.calibration_high < 0]
    if harmed and any(split.calibration > 0 for split in splits.values()):
        return Advice(NextStep.compare_methods, Reason.scores_disagree)
    if any(split.calibration >= WORTHWHILE * split.total for split in shown):
        return Advice(NextStep.fit_temperature, Reason.temperature_helps)
    undecided = [split for split in splits.values() if split.calibration_high >= WORTHWHILE * split.total]
    if undecided and not shown:
        # Either score is evidence, so the one that needs fewer samples decides.
        return Advice(NextStep.more_samples, Reason.gain_open, min(_needed(n, split) for split in undecided))
    if matters:
        return Advice(NextStep.compare_methods, Reason.not_by_temperature)
    return Advice(NextStep.leave, Reason.too_small if beyond or shown else Reason.calibrated)


def smallest_visible(metrics: Mapping[str, Estimate]) -> float:
    """Return the calibration error below which noise hides it.

    The noise floor or, if larger, half the interval of the accuracy: few samples of high confidence have a low floor.
    """
    accuracy = metrics["accuracy"]
    return max(metrics["ece"].floor or 0.0, (accuracy.high - accuracy.low) / 2)


def _without_splits(n: int, visible: float, *, beyond: bool, matters: bool) -> Advice:
    if matters:
        return Advice(NextStep.recalibrate, Reason.gain_unknown)
    if not beyond and visible > _HIGH_FLOOR:  # it falls as 1/sqrt(n)
        return Advice(NextStep.more_samples, Reason.floor_high, _rounded(n * (visible / _HIGH_FLOOR) ** 2))
    return Advice(NextStep.leave, Reason.too_small if beyond else Reason.calibrated)


def _needed(n: int, split: ScoreSplit) -> int:
    """Return how many samples would show the estimated gain or, if that is too small, exclude a useful one."""
    useful = WORTHWHILE * split.total
    half = (split.calibration_high - split.calibration_low) / 2
    distance = split.calibration if split.calibration >= useful else max(useful, useful - split.calibration)
    return _rounded(max(2 * n, _POWER * n * (half / distance) ** 2))


def _rounded(samples: float) -> int:
    """Round up to one significant digit: the estimate carries no more."""
    scale = 10.0 ** math.floor(math.log10(max(samples, 1.0)))
    return int(math.ceil(samples / scale - 1e-9) * scale)
