"""Confidence against accuracy: reliability in bins and by isotonic regression, class by class, and over bin counts."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self, final

import numpy as np
import torch
from torch import Tensor

from calibrant.checks import check_at_least, check_bins, with_devices_of_inputs
from calibrant.errors import InputError
from calibrant.evidence import Corp, Estimate, corp, estimate
from calibrant.evidence.clusters import Clusters, effective_number_of, squares_at
from calibrant.evidence.intervals import draw_right
from calibrant.metrics.binned import ECE, MCE, SCE, ECEL1Debiased
from calibrant.metrics.smooth import SmECE
from calibrant.metrics.states import EXACT, Binned, BinnedClasswise, Bins, Ranked, effective_number
from calibrant.numerics.binning import bin_index
from calibrant.predictions import Predictions, TopLabel, counted_samples

__all__ = [
    "BinsSweep", "ClassReliability", "ClasswiseDiagram", "ReliabilityBins", "ReliabilityDiagram",
    "bins_sweep", "classwise_reliability", "reliability", "slice_reliability",
]  # fmt: skip

_MOST_CELLS = 30_000  # in which samples are gathered for a sweep: the common refinement of all bins, if that is coarser


@final
@dataclass(frozen=True, eq=False)
class ReliabilityBins:
    """Equal-width bins (lo, hi] that hold at least one sample.

    The consistency band is where 95 of 100 calibrated models with the same confidences would have their accuracy. A bar
    inside its band is no evidence against calibration; of fifteen bars about one lies outside by chance.

    Differs from the paper: binomial quantiles at the bin's mean confidence, where it resamples the confidences. The
    spread of confidences inside a bin makes the exact range a little narrower (by about 1 part in 100 at 15 bins).

    Reference: Bröcker & Smith (2007), Increasing the Reliability of Reliability Diagrams, doi:10.1175/WAF993.1.
    """

    low: Tensor  # (b,) edges
    high: Tensor  # (b,)
    count: Tensor  # (b,) samples, of weighted ones their effective number
    confidence: Tensor  # (b,) mean
    accuracy: Tensor  # (b,)
    band_low: Tensor  # (b,)
    band_high: Tensor  # (b,)

    @classmethod
    def of(cls, bins: Bins, samples: Predictions | TopLabel) -> Self:
        """Build from the state of samples."""
        squares = squares_at(samples, bin_index(samples.top.confidence, len(bins.count)), len(bins.count))
        return cls.from_sums(bins.count, bins.confidence, bins.correct, squares)

    @classmethod
    def from_sums(cls, count: Tensor, confidence: Tensor, right: Tensor, squared_weights: Tensor | None = None) -> Self:
        """Build from sums over the samples of every bin, (b,) each; empty bins are left out."""
        count, confidence, right = count.cpu(), confidence.cpu(), right.cpu()
        trials = count if squared_weights is None else effective_number(count, squared_weights.cpu()).round()
        edges = torch.linspace(0, 1, count.shape[0] + 1, dtype=torch.float64)
        occupied = count > 0
        count, low, high = count[occupied], edges[:-1][occupied], edges[1:][occupied]
        mean = (confidence[occupied] / count).clamp(0, 1)
        band_low, band_high = binomial_range(trials[occupied].clamp(min=1), mean)
        return cls(low, high, count, mean, right[occupied] / count, band_low, band_high)

    @property
    def gap(self) -> Tensor:
        """Accuracy minus confidence, (b,): negative where the model is overconfident."""
        return self.accuracy - self.confidence

    @property
    def outside(self) -> Tensor:  # of the consistency band
        return (self.accuracy < self.band_low) | (self.accuracy > self.band_high)


@final
@dataclass(frozen=True, eq=False)
class ReliabilityDiagram:
    """Numbers of a reliability diagram."""

    bins: ReliabilityBins
    corp: Corp  # the curve without bins
    n: int
    accuracy: float
    confidence: float
    ece: float
    ece_low: float  # 95 % interval; NaN below ten samples
    ece_high: float
    smece: float
    effective_n: float | None = None  # of weighted samples


@with_devices_of_inputs
def reliability(
    predictions: Predictions | TopLabel, *, n_bins: int = 15, ece: Estimate | None = None
) -> ReliabilityDiagram:
    """Compute how often the model is correct at each confidence.

    Bars under the diagonal are overconfidence. Read a bar together with its consistency band and its count, not by its
    gap alone: bins of few samples stray far by chance.

    Args:
        predictions: Logits and labels, or confidence and correctness.
        n_bins: Number of equal-width bins.
        ece: Estimate of the ECE with as many bins, if there is one already; otherwise it is bootstrapped here.

    Example:
        >>> diagram = reliability(TopLabel([0.9, 0.9, 0.9, 0.9], [True, True, True, False]))
        >>> [round(gap, 6) for gap in diagram.bins.gap.tolist()], diagram.bins.count.tolist()
        ([-0.15], [4.0])
    """
    predictions = counted_samples(predictions)
    metric = ECE(n_bins)
    bins = Binned(n_bins)(predictions)
    interval = ece or estimate(predictions, [metric])[metric.name]
    n = bins.count.sum()
    return ReliabilityDiagram(
        bins=ReliabilityBins.of(bins, predictions),
        corp=corp(predictions),
        n=len(predictions),
        accuracy=float(bins.correct.sum() / n),
        confidence=float(bins.confidence.sum() / n),
        ece=float(metric.value(bins)),
        ece_low=interval.low,
        ece_high=interval.high,
        smece=SmECE()(predictions),
        effective_n=effective_number_of(predictions),
    )


def binomial_range(count: Tensor, probability: Tensor) -> tuple[Tensor, Tensor]:
    """Return a range that holds the share of successes in ``count`` trials with probability 95 % or more.

    Example:
        >>> low, high = binomial_range(torch.tensor([100.0]), torch.tensor([0.5]))
        >>> low.item(), high.item()
        (0.4, 0.6)
    """
    trials, chance = count.double().numpy(), probability.double().numpy()
    low, high = (torch.from_numpy(_binomial_quantile(q, trials, chance) / trials) for q in (0.025, 0.975))
    return low, high


def _binomial_quantile(q: float, trials: np.ndarray, chance: np.ndarray) -> np.ndarray:
    """Return the fewest successes whose cumulative probability reaches q."""
    from scipy.special import bdtr, bdtrik

    whole = trials.astype(np.int64)
    # The continuous inverse rounded up, or one less where that rounding overshot; certain outcomes have no inverse.
    above = np.nan_to_num(np.ceil(bdtrik(q, whole, chance)))
    below = np.maximum(above - 1, 0)
    successes = np.where(bdtr(below, whole, chance) >= q, below, above)
    return np.where(chance >= 1, trials, np.where(chance <= 0, 0.0, successes))


@final
@dataclass(frozen=True, eq=False)
class ClassReliability:
    """One class: share of samples that are of the class, against the probability given to it.

    Or one slice of the samples: share of right predictions, against the confidence.
    """

    index: int
    name: str  # "class 7" where classes have no names
    samples: int  # of this class, or slice
    error: float  # its part of sce, the gaps over all n samples; of a slice its ECE
    bins: ReliabilityBins  # of the class's probability, over all n samples; of a slice its confidence


@final
@dataclass(frozen=True, eq=False)
class ClasswiseDiagram:
    """The classes with the largest errors, in falling order."""

    classes: tuple[ClassReliability, ...]
    n: int
    n_classes: int
    sce: float  # over all classes
    effective_n: float | None = None  # of weighted samples


@with_devices_of_inputs
def classwise_reliability(predictions: Predictions, *, n_bins: int = 15, most: int = 12) -> ClasswiseDiagram:
    """Compute how often a sample is of a class when the model gives the class this probability.

    The worst of many classes look bad by chance alone; the consistency bands show by how much.

    Args:
        predictions: Logits and labels; confidence and correctness alone do not suffice.
        n_bins: Number of equal-width bins of each class's probability.
        most: How many classes to keep.

    Example:
        >>> predictions = Predictions.from_probs([[0.5, 0.5], [0.5, 0.5]], [0, 0], class_names=["cat", "dog"])
        >>> [(of.name, of.error) for of in classwise_reliability(predictions).classes]
        [('cat', 0.5), ('dog', 0.5)]
    """
    check_at_least(most, 1, "most")
    predictions, statistic = counted_samples(predictions), BinnedClasswise(n_bins)
    metric, state = SCE(n_bins), statistic(predictions)
    squares, clusters = state.count, Clusters.of(predictions.top)
    if predictions.weights is not None:
        squares = statistic(predictions.with_weights(predictions.weights.square())).count
    squares = squares if clusters is None else squares * clusters.design_effect
    errors = metric.by_class(state)
    samples = predictions.label_counts.tolist()
    names = predictions.class_names
    classes = tuple(
        ClassReliability(
            index=index,
            name=f"class {index}" if names is None else names[index],
            samples=samples[index],
            error=float(errors[index]),
            bins=ReliabilityBins.from_sums(
                state.count[index], state.probability[index], state.hits[index], squares[index]
            ),
        )
        for index in errors.argsort(descending=True, stable=True)[:most].tolist()
    )
    sce, effective_n = float(metric.value(state)), effective_number_of(predictions)
    return ClasswiseDiagram(classes, len(predictions), predictions.n_classes, sce, effective_n)


def slice_reliability(
    predictions: Predictions | TopLabel, names: Sequence[str], slices: Sequence[Tensor], *, n_bins: int = 15
) -> tuple[ClassReliability, ...]:
    """Compute how often the model is correct at each confidence, for slices of the samples.

    Args:
        predictions: Logits and labels, or confidence and correctness.
        names: Name of each slice.
        slices: Samples of each slice, bool (n,).
        n_bins: Number of equal-width bins.
    """

    def panel(index: int, name: str, chosen: Tensor) -> ClassReliability:
        counted = counted_samples(predictions[chosen])
        state = Binned(n_bins)(counted)
        error, bins = float(ECE(n_bins).value(state)), ReliabilityBins.of(state, counted)
        return ClassReliability(index, name, len(counted), error, bins)

    return tuple(panel(index, *part) for index, part in enumerate(zip(names, slices, strict=True)))


@final
@dataclass(frozen=True, eq=False)
class BinsSweep:
    """ECE and MCE for several numbers of bins, one entry each."""

    n_bins: Tensor  # (m,) int64
    ece: Tensor  # (m,)
    mce: Tensor  # (m,)
    debiased: Tensor  # (m,) ece_l1_debiased
    floor: Tensor  # (m,) mean ece of a calibrated model with the same confidences
    floor_low: Tensor  # (m,) 2.5 % quantile
    floor_high: Tensor  # (m,) 97.5 % quantile
    n: int
    effective_n: float | None = None  # of weighted samples


@with_devices_of_inputs
def bins_sweep(
    predictions: Predictions | TopLabel,
    *,
    n_bins: Sequence[int] = (10, 15, 20, 50, 100, 200, 500, 1000),
    redraws: int = 200,
    seed: int = 0,
) -> BinsSweep:
    """Compute how much of the ECE is due to the number of bins, and how much to noise.

    With more bins, gaps of opposite sign cancel less and noise adds more. An ECE inside the floor's range is no
    evidence against calibration. The floor redraws every sample as correct with the probability of its confidence
    (consistency resampling); samples that share all their bins are redrawn together, as one binomial number.

    Args:
        predictions: Logits and labels, or confidence and correctness.
        n_bins: Numbers of bins, rising.
        redraws: Redrawn data sets behind the floor.
        seed: Random seed of the redraws.

    Example:
        >>> sweep = bins_sweep(TopLabel([0.9, 0.8, 0.7, 0.6], [True, False, True, False]), n_bins=[1, 10])
        >>> [round(ece, 3) for ece in sweep.ece.tolist()]
        [0.25, 0.45]
    """
    check_at_least(redraws, 2, "redraws")
    if not isinstance(n_bins, Sequence) or not n_bins:
        raise InputError(f"n_bins must be a list of numbers of bins, such as [10, 15, 20]; got {n_bins!r}.")
    for number in n_bins:
        check_bins(number)
    predictions = counted_samples(predictions)
    cells = _cells(predictions, n_bins)
    # Data sets from a model whose every confidence is true.
    chance, total = (part.expand(redraws, -1).contiguous() for part in (cells.confidence, cells.total))
    if cells.squared_weights is None:
        right = torch.binomial(total, chance, generator=torch.Generator().manual_seed(seed))
    else:
        columns = (cells.total, cells.squared_weights, cells.confidence)
        mass, squares, confidence = (column.numpy() for column in columns)
        right = torch.from_numpy(draw_right(mass, squares, confidence, np.random.default_rng(seed), redraws))
    redrawn = Ranked(cells.log_odds, cells.confidence, right, total - right)
    observed = [Binned(number).of_ranked(cells) for number in n_bins]
    floors = torch.stack([ECE().value(Binned(number).of_ranked(redrawn)) for number in n_bins])
    low, high = floors.quantile(torch.tensor([0.025, 0.975], dtype=torch.float64), dim=1)
    return BinsSweep(
        n_bins=torch.tensor(list(n_bins)),
        ece=torch.stack([ECE().value(bins) for bins in observed]),
        mce=torch.stack([MCE().value(bins) for bins in observed]),
        debiased=torch.stack([ECEL1Debiased().value(bins) for bins in observed]),
        floor=floors.mean(1),
        floor_low=low,
        floor_high=high,
        n=len(predictions),
        effective_n=effective_number_of(predictions),
    )


def _cells(predictions: Predictions | TopLabel, n_bins: Sequence[int]) -> Ranked:
    """Join the samples that no number of bins distinguishes."""
    bins = Binned(min(math.lcm(*n_bins), _MOST_CELLS))(predictions)
    count, confidence, right = (part.cpu() for part in (bins.count, bins.confidence, bins.correct))
    occupied = count > 0
    count, right = count[occupied], right[occupied]
    confidence = (confidence[occupied] / count).clamp(0, 1)
    squares = None
    if predictions.weights is not None:
        squares = bins.squared_weights.cpu()[occupied] * EXACT.excess_of_heavy(predictions)
    if (clusters := Clusters.of(predictions.top)) is not None:
        squares = (bins.squared_weights.cpu()[occupied] if squares is None else squares) * clusters.design_effect
    wrong = (count - right).clamp(min=0)
    return Ranked(torch.logit(confidence), confidence, right, wrong, squared_weights=squares)
