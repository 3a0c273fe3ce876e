"""Evaluate slices of the samples, such as regions or predicted classes: intervals, tests, the worst first.

Two questions are asked of each slice, and the p-values of all slices are corrected together for their number (Holm).
Is its calibration error beyond noise? And is it more over- or underconfident than the rest? The second compares mean
confidence minus accuracy, whose expectation, unlike that of a calibration error, does not depend on the number of
samples: errors of small slices are larger by noise alone.

Of two classes both questions are about the probability of the positive one, as in an evaluation: its calibration error,
and its mean minus how often the class occurs.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Unpack, final

import numpy as np
import torch
from torch import Tensor

from calibrant import catalogue
from calibrant.checks import check_evidence, check_rates, with_devices_of_inputs
from calibrant.errors import InputError, warn
from calibrant.evidence import LEVEL, Estimate, OperatingPoint, estimate, holm, operating_points
from calibrant.evidence.clusters import Clusters
from calibrant.evidence.thresholds import ranked_trials
from calibrant.labels import Words
from calibrant.metrics import ECE, Accuracy, Confidence, Metric
from calibrant.metrics.states import TopStatistic
from calibrant.predictions import Arrays, Predictions, TopLabel, as_predictions, as_risk, has_risk

_METRICS = ("accuracy", "confidence", "ece", "nll", "brier", "top_brier", "auroc")
_MOST = 500  # slices of a column; a column with more is an identifier or a number
FEW = 10  # samples below which a slice is listed, but not tested
PREDICTED = "predicted class"
MISSING = "(missing)"  # slice of samples without a value, which no value is called


@final
@dataclass(frozen=True)
class GapToRest:
    """Mean confidence minus accuracy of a slice, minus that of all other samples; NaN where it is unknown."""

    value: float = math.nan
    low: float = math.nan  # 95 % interval
    high: float = math.nan
    p: float = math.nan
    corrected_p: float = math.nan  # for the number of slices

    @property
    def is_significant(self) -> bool:
        """Whether the slice differs from the rest beyond noise, also after the correction."""
        return self.corrected_p <= LEVEL


@final
@dataclass(frozen=True)
class SliceRisk:
    """The probability of the positive class of two in a slice, compared with how often that class occurs."""

    predicted: Estimate  # mean
    observed: Estimate  # share of the positive class
    ece: Estimate

    @classmethod
    def of(cls, estimates: Mapping[str, Estimate]) -> "SliceRisk":
        return cls(estimates["confidence"], estimates["accuracy"], estimates["ece"])


@final
@dataclass(frozen=True)
class Slice:
    """The samples with one value in a column, and their metrics."""

    column: str
    value: str
    n: int
    metrics: dict[str, Estimate]  # ``ece`` is that of the risk, where there is one
    corrected_p: float  # p-value of its calibration error for the number of slices; NaN with few samples
    to_rest: GapToRest
    weight: float | None = None  # its share of the weight of all samples; None where all count alike
    auroc_error: float | None = None  # most by which ranks in bounded memory can change its AUROC
    operating_points: tuple[OperatingPoint, ...] = ()  # thresholds for error rates, of its samples alone
    risk: SliceRisk | None = None  # of two classes

    @property
    def claimed(self) -> Estimate:
        """Mean confidence or, where there is a risk, mean probability of the positive class."""
        return self.metrics["confidence"] if self.risk is None else self.risk.predicted

    @property
    def occurred(self) -> Estimate:
        """Accuracy or, where there is a risk, share of the positive class."""
        return self.metrics["accuracy"] if self.risk is None else self.risk.observed

    @property
    def gap(self) -> float:
        """Mean confidence minus accuracy or, where there is a risk, mean probability minus share of the class."""
        return self.claimed.value - self.occurred.value

    @property
    def is_miscalibrated(self) -> bool:
        """Whether its calibration error is beyond noise, also after the correction for the number of slices."""
        return self.corrected_p <= LEVEL

    @property
    def is_worse(self) -> bool:
        """Whether it is further from calibration than the other samples are, beyond noise."""
        return self.to_rest.is_significant and abs(self.gap) > abs(self.gap - self.to_rest.value)

    @property
    def excess(self) -> float:
        """Calibration error above that of a calibrated model on as many samples."""
        error = self.metrics["ece"]
        return error.value - (error.floor or 0.0)


@with_devices_of_inputs
def evaluate_slices(
    *predictions: Predictions | TopLabel,
    by: Mapping[str, Any],
    n_bins: int = 15,
    resamples: int = 1000,
    seed: int = 0,
    error_rates: Sequence[float] = (),
    progress: Callable[[str], None] = lambda _: None,
    **arrays: Unpack[Arrays],
) -> list[Slice]:
    """Evaluate the samples of every value of one or more columns.

    Slices whose error is beyond noise come first, then the others, each by its error above the noise floor, largest
    first. With fewer than ten samples a slice is listed at the end and not tested.

    Args:
        predictions: Logits and labels, or confidence and correctness.
        by: Columns by name, one entry per sample: words, numbers or true/false, with at most 500 different values. A
            missing value is a slice of its own. :func:`predicted_classes` is such a column.
        n_bins: Bins of the calibration error.
        resamples: Bootstrap resamples for intervals and noise floors.
        seed: Random seed of the resampling.
        error_rates: Largest error rates for which to choose a threshold of the confidence in each slice.
        progress: Called with the name of each stage as it begins.
        arrays: The predictions as arrays by keyword: ``probs=p, labels=y``.

    Example:
        >>> top = TopLabel([0.8] * 200, [True] * 80 + [False] * 20 + [True] * 50 + [False] * 50)
        >>> slices = evaluate_slices(top, by={"region": ["north"] * 100 + ["south"] * 100}, resamples=200)
        >>> [(one.value, one.n, round(one.gap, 2), one.is_miscalibrated) for one in slices]
        [('south', 100, 0.3, True), ('north', 100, 0.0, False)]
    """
    samples = as_predictions(predictions, "evaluate_slices", arrays)
    if not isinstance(by, Mapping) or not by:
        got = "none" if isinstance(by, Mapping) else type(by).__name__
        raise InputError(f"by must name at least one column, as by={{'region': values}} does; got {got}.")
    n_bins, resamples, seed = check_evidence(n_bins, resamples, seed)
    metrics = slice_metrics(n_bins, of_all_classes=isinstance(samples, Predictions))
    risks, rates = as_risk(samples) if has_risk(samples) else None, check_rates(error_rates)
    slices = []
    for column, values in by.items():
        names, place = _codes(column, values, len(samples))
        if column != PREDICTED and _is_of_truth(place, samples):
            warn_of_truth(column)
        for code, name in enumerate(names):
            progress(f"evaluating {column} = {name}")
            inside, weight = torch.from_numpy(place == code).to(samples.device), None
            if samples.weights is not None:
                inside &= samples.weights > 0
                weight = float(samples.weights[inside].sum() / samples.weights.sum())
            if weight == 0:  # its samples count nothing
                continue
            part = samples[inside]
            estimates, risk = estimate(part, metrics, resamples=resamples, seed=seed), None
            if risks is not None:
                of_risk = (Confidence(), Accuracy(), ECE(n_bins))
                risk = SliceRisk.of(estimate(risks[inside], of_risk, resamples=resamples, seed=seed))
                estimates["ece"] = risk.ece
            to_rest = _gap_to_rest(samples.top if risks is None else risks, inside)
            points = operating_points(ranked_trials(part), rates) if rates else ()
            slices.append(
                Slice(column, name, len(part), estimates, math.nan, to_rest, weight, operating_points=points, risk=risk)
            )
    return rank_slices(slices)


def slice_metrics(n_bins: int, *, of_all_classes: bool) -> list[Metric]:
    """Return the metrics of slices, of all classes or of the top label only."""
    known = [catalogue.metrics[name] for name in _METRICS]
    metrics = [metric for metric in known if of_all_classes or isinstance(metric.statistic, TopStatistic)]
    return [replace(metric, n_bins=n_bins) if metric.name == "ece" else metric for metric in metrics]


def predicted_classes(predictions: Predictions) -> list[str]:
    """Return the name, or else number, of the class predicted for each sample, as a column to slice by."""
    names = predictions.class_names
    return [names[label] if names else str(label) for label in predictions.predicted.tolist()]


def samples_of(slices: Sequence[Slice], by: Mapping[str, Any]) -> list[Tensor]:
    """Return which samples each slice holds, bool (n,), given the columns that they were made from."""
    inside = {
        column: samples_with(values, {slice_.value for slice_ in slices if slice_.column == column})
        for column, values in by.items()
    }
    return [inside[slice_.column][slice_.value] for slice_ in slices]


def samples_with(column: Any, values: Iterable[str]) -> dict[str, Tensor]:
    """Return which samples have each of some values of a column, bool (n,), by value."""
    words = np.array(_words(column))
    return {value: torch.from_numpy(words == value) for value in values}


def worst_slices(slices: Sequence[Slice]) -> dict[str, Estimate]:
    """Return the worst value of each metric over the slices of a column, as ``worst(region).ece``.

    The bounds of its interval are the worst of the bounds of all slices, widened for their number (Bonferroni), so that
    it covers all of them at once. The mean confidence is highest where unsure samples are few by chance: there it has
    at least the spread of all slices together. Slices of fewer than ten samples are left out.
    """
    worst = {}
    for column in dict.fromkeys(slice_.column for slice_ in slices):
        tested = [slice_ for slice_ in slices if slice_.column == column and slice_.n >= FEW]
        names = tested[0].metrics if tested else ()
        for name in names:
            known = [slice_ for slice_ in tested if not math.isnan(slice_.metrics[name].value)]
            if known:
                worst[f"worst({column}).{name}"] = _worst(known, name, len(tested))
    return worst


def _worst(slices: Sequence[Slice], name: str, number: int) -> Estimate:
    """Return the worst value of a metric, with the worst bounds of the slices, widened for ``number`` of them."""
    choose = min if catalogue.metrics[name].lower_is_better is False else max
    estimates = [slice_.metrics[name] for slice_ in slices]
    spread = 0.0
    if name == "confidence":
        halves = [slice_.n * (one.high - one.low) / 2 for slice_, one in zip(slices, estimates, strict=True)]
        spread = math.hypot(*halves) / math.sqrt(sum(slice_.n for slice_ in slices))
    lows, highs = zip(*(_widened(slice_, name, number, spread) for slice_ in slices), strict=True)
    # A slice without an interval leaves that of the worst unknown; max and min would drop it.
    low, high = (math.nan if any(map(math.isnan, bounds)) else choose(bounds) for bounds in (lows, highs))
    return Estimate(choose(estimate.value for estimate in estimates), low, high)


def _widened(slice_: Slice, name: str, number: int, spread: float) -> tuple[float, float]:
    """Return the interval of a metric that covers with the 95 % of all ``number`` slices together.

    A bound moves by its distance from the value, but at least by half the width, since that of a calibration error can
    lie on the other side of it. A calibration error that is not beyond noise may be 0: its bootstrap is not normal.
    """
    from scipy.special import ndtri

    own = slice_.metrics[name]
    low, high, value = own.low, own.high, own.value
    if spread:
        low, high = min(low, value - spread / math.sqrt(slice_.n)), max(high, value + spread / math.sqrt(slice_.n))
    more = float(ndtri(1 - LEVEL / 2 / number) / ndtri(1 - LEVEL / 2)) - 1
    below, above = (max((high - low) / 2, distance) for distance in (value - low, high - value))
    if name == "ece" and slice_.corrected_p > LEVEL:
        return 0.0, high + more * above
    return max(low - more * below, 0.0), high + more * above


def _codes(column: str, values: Any, n: int) -> tuple[list[str], np.ndarray]:
    """Return the distinct values of a column as text, and the place of each sample's among them, (n,)."""
    words = _words(values)
    if len(words) != n:
        raise InputError(f"column {column!r} must have one entry per sample, {n}; got {len(words)}.")
    names, place = np.unique(words, return_inverse=True)
    check_few_values(column, len(names))
    return names.tolist(), place


def _is_of_truth(place: np.ndarray, samples: Predictions | TopLabel) -> bool:
    """Return whether the label of a sample says which of several slices it is in."""
    labels = (samples.labels if isinstance(samples, Predictions) else samples.correct.long()).cpu().numpy()
    pairs, counts = np.unique(labels * (number := place.max() + 1) + place, return_counts=True)
    return len(np.unique(pairs // number)) == len(pairs) and len(np.unique(pairs[counts >= FEW] % number)) > 1


def warn_of_truth(column: str) -> None:
    """Warn of a column that the label decides: among samples of one label calibrated confidences are not calibrated."""
    warn(
        f"{column!r} depends on the label alone: in its slices even a calibrated model is over- or underconfident. "
        "They say nothing about calibration. Slice by what is known beforehand, such as the predicted class."
    )


def check_few_values(column: str, number: int) -> None:
    """Raise if a column has too many different values to slice by."""
    if number > _MOST:
        raise InputError(
            f"column {column!r} must have at most {_MOST} different values to slice by; got {number:,} or more. "
            "Put the values into groups first, such as ranges of a number, or days or weeks of a time."
        )


def slice_words(column: Tensor | Words) -> Words:
    """Return a column, (n,), as the names of the slices that its samples are in."""
    if isinstance(column, Words):
        return Words(tuple(map(_word, column.distinct)), column.codes)
    distinct, codes = column.unique(return_inverse=True)
    return Words(tuple(map(_word, distinct.tolist())), codes)


def _words(values: Any) -> list[str]:
    if isinstance(values, Words):
        return [_word(values.distinct[code]) for code in values.codes.tolist()]
    return [_word(value) for value in (values.tolist() if hasattr(values, "tolist") else values)]


def _word(value: Any) -> str:
    if value is None or value == "" or (isinstance(value, float) and math.isnan(value)):
        return MISSING
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


class GapSums(NamedTuple):
    """Sums over samples of weight w, whose gap is confidence minus correctness: they add up."""

    n: float
    mass: float  # Σ w
    gap: float  # Σ w gap
    squares: float  # Σ w²
    squared_gap: float  # Σ w² gap
    gap_squared: float  # Σ w² gap²
    calibrated: float  # Σ w² times the variance of a calibrated prediction

    @classmethod
    def of(cls, top: TopLabel) -> "GapSums":
        n = int(top.mass.count_nonzero())
        weights = top.mass / top.mass.max() if n else top.mass  # only their ratios matter
        return cls(n, *gap_terms(top.confidence, top.correct, weights).sum(1).tolist())

    def mean(self) -> tuple[float, float, float]:
        """Return the mean gap, its squared standard error, and its degrees of freedom.

        The variance is at least that of calibrated predictions, and of half an error: right samples alone show none.
        """
        mean, size = self.gap / self.mass, self.mass**2 / self.squares
        freedom, half_error = max(size - 1, 1.0), 0.5 / (size + 1)
        spread = self.gap_squared - 2 * mean * self.squared_gap + mean**2 * self.squares
        variance = max(spread * size / freedom, self.calibrated) / self.mass**2
        return mean, max(variance, half_error * (1 - half_error) / size), freedom


def gap_terms(confidence: Tensor, correct: Tensor, weights: Tensor) -> Tensor:
    """Return what :class:`GapSums` adds up but the number, (6, n)."""
    confidence, weights = confidence.double(), weights.double()
    gap, squares = confidence - correct.double(), weights.square()
    columns = (weights, weights * gap, squares, squares * gap, squares * gap.square())
    return torch.stack([*columns, squares * confidence * (1 - confidence)])


def _gap_to_rest(top: TopLabel, inside: Tensor) -> GapToRest:
    if inside.all():
        return GapToRest()
    sums, clusters = [GapSums.of(top[part]) for part in (inside, ~inside)], Clusters.of(top)
    if clusters is None:
        return gap_to_rest(*sums)
    if min(clusters.number(part) for part in (inside, ~inside)) < FEW:
        return GapToRest()
    return gap_to_rest(*sums, clustered=_clustered_variance(clusters, inside, *sums))


def _clustered_variance(clusters: Clusters, inside: Tensor, of_inside: GapSums, rest: GapSums) -> tuple[float, float]:
    """Return the variance of the difference of two mean gaps by cluster, also of those on both sides, and its degrees.

    The degrees of freedom are the fewer ones.
    """
    gap = clusters.top.confidence - clusters.top.correct.double()
    influence = torch.zeros_like(gap)
    for part, sums, sign in ((inside, of_inside, 1), (~inside, rest, -1)):
        share = clusters.mass[part] / clusters.mass[part].sum()
        influence[part] = sign * share * (gap[part] - sums.mean()[0])
    number, degrees = (min(of(part) for part in (inside, ~inside)) for of in (clusters.number, clusters.degrees))
    return float(clusters.sums(influence).square().sum()) * number / (number - 1), degrees


def gap_to_rest(inside: GapSums, rest: GapSums, *, clustered: tuple[float, float] | None = None) -> GapToRest:
    """Compare the mean gap of a slice with that of all other samples; unknown where either has too few, effectively.

    ``clustered``: variance of the difference and degrees of freedom of samples in clusters.
    """
    if any(part.n < FEW or part.mass**2 < FEW * part.squares * (1 - 1e-9) for part in (inside, rest)):
        return GapToRest()
    from scipy.special import stdtr, stdtrit

    (mean, square, degrees), (other, other_square, other_degrees) = inside.mean(), rest.mean()
    value, variance = mean - other, square + other_square
    # Welch and Satterthwaite: the degrees of freedom of two means of unequal variance.
    freedom = variance**2 / (square**2 / degrees + other_square**2 / other_degrees)
    if clustered is not None and clustered[0] > variance:
        variance, freedom = clustered[0], min(freedom, clustered[1])
    half = float(stdtrit(freedom, 1 - LEVEL / 2)) * math.sqrt(variance)
    return GapToRest(value, value - half, value + half, float(2 * stdtr(freedom, -abs(value) / math.sqrt(variance))))


def rank_slices(slices: list[Slice]) -> list[Slice]:
    """Correct the p-values of both questions for the number of slices, and put the worst first."""
    errors = {str(i): slice_.metrics["ece"].p for i, slice_ in enumerate(slices) if slice_.n >= FEW}
    error_p = dict.fromkeys(map(str, range(len(slices))), math.nan)
    error_p |= holm({i: p for i, p in errors.items() if p is not None})
    gap_p = holm({str(i): slice_.to_rest.p for i, slice_ in enumerate(slices)})
    corrected = [
        replace(slice_, corrected_p=error_p[str(i)], to_rest=replace(slice_.to_rest, corrected_p=gap_p[str(i)]))
        for i, slice_ in enumerate(slices)
    ]
    return sorted(corrected, key=lambda part: (part.n < FEW, not part.is_miscalibrated, -part.excess, part.value))
