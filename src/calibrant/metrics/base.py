"""Base classes of metrics: a statistic gathers a state from samples, and a metric computes its value from the state.

For ECE the statistic is ``Binned``, its state ``Bins`` holds sums per bin, and the metric averages their gaps.
Metrics that name the same statistic share its state; :class:`Tally` gathers each statistic once.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import Any, ClassVar, Literal, Self, TypeAlias, Unpack, final

import torch
from torch import Tensor

from calibrant.checks import check_bins
from calibrant.errors import InputError
from calibrant.metrics.states import (
    Average,
    BinMoments,
    Bins,
    Cells,
    ClassBins,
    Grid,
    PackedSamples,
    Ranked,
    State,
    Sums,
    merge,
)
from calibrant.numerics.binning import bin_ends, bin_index, counts_by, sums_between, sums_by
from calibrant.numerics.softmax import TOP_LABEL, SoftmaxRows, Wanted
from calibrant.paper import Paper
from calibrant.predictions import Arrays, Predictions, TopLabel, as_predictions

Family: TypeAlias = Literal["description", "proper", "calibration", "refinement"]
IntervalMethod: TypeAlias = Literal["bootstrap", "wilson", "influence", "threshold"]


class Statistic(ABC):
    """A function from samples to a state. Equal statistics give the same state, which is computed once."""

    @property
    def wanted(self) -> Wanted:
        """What it needs from the pass over the logits, beyond the top label."""
        return TOP_LABEL

    @abstractmethod
    def __call__(self, samples: Predictions | TopLabel) -> State:
        """Gather the state of these samples."""

    def by_group(self, samples: Predictions, group: Tensor) -> Sums:
        """Gather the states of groups of samples, stacked; for statistics whose state is a sum.

        Args:
            samples: The samples.
            group: Group of each sample, 0 to g - 1, none of them empty, (n,).
        """
        members = group.argsort(stable=True).split(torch.bincount(group).tolist())
        states = [self(samples[chosen]) for chosen in members]
        assert isinstance(states[0], Sums), "only sums can be taken by group"
        return type(states[0]).stack(states)  # type: ignore[arg-type]  # all of the kind of the first


class LabelStatistic(Statistic):
    """A statistic of all classes that can also be computed for other labels, without another pass over the logits."""

    @abstractmethod
    def states_for_labels(self, samples: Predictions, labels: Tensor) -> Sums:
        """Return one state per row of labels, (r, n); their leading dimension is r."""


class TopStatistic(Statistic):
    """A statistic of confidence and correctness alone, so that it can also be computed from resampled ranks."""

    @abstractmethod
    def of_ranked(self, ranked: Ranked) -> State | Ranked:
        """Return the same state from ranked samples, whose counts may have leading dimensions."""


@final
@dataclass(frozen=True)
class Averaged(Statistic):
    """Sum over the samples of one number per sample."""

    per_sample: Callable[[SoftmaxRows], Tensor]
    wanted: Wanted = TOP_LABEL

    def __call__(self, samples: Predictions | TopLabel) -> Average:
        total = self.per_sample(full_predictions(samples).softmax_rows(self.wanted)).sum(dtype=torch.float64)
        return Average(torch.full_like(total, len(samples)), total)

    def by_group(self, samples: Predictions, group: Tensor) -> Average:
        count = torch.bincount(group).double()
        return Average(count, sums_by(group, self.per_sample(samples.softmax_rows(self.wanted)).double(), len(count)))


@final
@dataclass(frozen=True)
class Binned(TopStatistic):
    """Equal-width bins of confidence."""

    n_bins: int = 15

    def __post_init__(self) -> None:
        check_bins(self.n_bins)

    def __call__(self, samples: Predictions | TopLabel) -> Bins:
        top = samples.top
        index = bin_index(top.confidence, self.n_bins)
        count, correct = counts_by(index, top.correct, self.n_bins)
        return Bins(count, sums_by(index, top.confidence, self.n_bins), correct)

    def of_ranked(self, ranked: Ranked) -> Bins:
        ends = bin_ends(ranked.confidence, self.n_bins)
        columns = (ranked.total, ranked.total * ranked.confidence, ranked.right)
        return Bins(*(sums_between(ends, column) for column in columns))


@final
@dataclass(frozen=True)
class BinnedMoments(TopStatistic):
    """Equal-width bins of confidence with second moments."""

    n_bins: int = 15

    def __post_init__(self) -> None:
        check_bins(self.n_bins)

    def __call__(self, samples: Predictions | TopLabel) -> BinMoments:
        top = samples.top
        index = bin_index(top.confidence, self.n_bins)
        columns = (top.confidence.square(), top.confidence * top.correct)
        squares = (sums_by(index, column, self.n_bins) for column in columns)
        return BinMoments(*Binned(self.n_bins)(top).tensors(), *squares)

    def of_ranked(self, ranked: Ranked) -> BinMoments:
        ends = bin_ends(ranked.confidence, self.n_bins)
        columns = (ranked.total * ranked.confidence.square(), ranked.right * ranked.confidence)
        squares = (sums_between(ends, column) for column in columns)
        return BinMoments(*Binned(self.n_bins).of_ranked(ranked).tensors(), *squares)


@final
@dataclass(frozen=True)
class Gridded(TopStatistic):
    """Samples spread over evenly spaced nodes of confidence, for kernel smoothing."""

    nodes: int = 1025

    def __call__(self, samples: Predictions | TopLabel) -> Grid:
        right = samples.top.correct.double()
        return Grid.gather(samples.top.confidence, right, torch.ones_like(right), self.nodes)

    def of_ranked(self, ranked: Ranked) -> Grid:
        return Grid.gather(ranked.confidence.double(), ranked.right.double(), ranked.total.double(), self.nodes)


@final
@dataclass(frozen=True)
class RankedSamples(TopStatistic):
    """Exact ranks; the state grows with the samples."""

    def __call__(self, samples: Predictions | TopLabel) -> PackedSamples:
        return PackedSamples.gather(samples.top.log_odds, samples.top.correct)

    def of_ranked(self, ranked: Ranked) -> Ranked:
        return ranked


EXACT = RankedSamples()


@final
@dataclass(frozen=True)
class RankedCells(TopStatistic):
    """Ranks in bounded memory: samples in the same cell count as tied (``Cells.auroc_error`` bounds the error)."""

    cells: int = 16384

    def __call__(self, samples: Predictions | TopLabel) -> Cells:
        top = samples.top
        reach = torch.finfo(top.log_odds.dtype).max / 4
        log_odds = top.log_odds.clamp(-reach, reach)
        squashed = log_odds / (log_odds.abs() + Cells.HALF_RANGE_LOG_ODDS)
        index = squashed.add_(1).mul_(self.cells / 2).clamp_(0, self.cells - 1).int()
        return Cells(*counts_by(index, top.correct, self.cells), sums_by(index, top.confidence, self.cells))

    def of_ranked(self, ranked: Ranked) -> Ranked:
        return ranked


@final
@dataclass(frozen=True)
class BinnedClasswise(LabelStatistic):
    """Equal-width bins of the probability of every class, over all samples.

    With many classes nearly all probabilities lie in the first bin, so that bin is what remains of the column sums
    after the few entries above it are taken out.
    """

    n_bins: int = 15

    def __post_init__(self) -> None:
        check_bins(self.n_bins)

    @property
    def wanted(self) -> Wanted:
        return Wanted(above=1 / self.n_bins)

    def __call__(self, samples: Predictions | TopLabel) -> ClassBins:
        samples = full_predictions(samples)
        return self._of_entries(samples, None, samples.softmax_rows(self.wanted).other_sums[None])[0]

    def by_group(self, samples: Predictions, group: Tensor) -> ClassBins:
        sums = torch.zeros(int(group.max()) + 1, samples.n_classes, dtype=samples.probs.dtype, device=group.device)
        sums.index_add_(0, group, samples.probs)
        soft = samples.softmax_rows(self.wanted)
        # Leaves the sums of the probabilities that are not the largest of their sample.
        sums.view(-1).index_add_(0, soft.top + group * samples.n_classes, -soft.confidence.to(sums.dtype))
        return self._of_entries(samples, group, sums.double())

    def _of_entries(self, samples: Predictions, group: Tensor | None, other_sums: Tensor) -> ClassBins:
        """Bin every group, from its largest entries, its others above the first bin, and the others' sums."""
        soft, shape = samples.softmax_rows(self.wanted), (*other_sums.shape, self.n_bins)
        other_samples, other_classes, other_probability = soft.other_entries()
        other_group = None if group is None else group.index_select(0, other_samples)
        sizes = other_sums.new_tensor([len(samples)]) if group is None else torch.bincount(group)

        top_cells = self._cells(group, soft.top, soft.confidence, shape)
        other_cells = self._cells(other_group, other_classes, other_probability, shape)
        total = _sum_by_cell(other_cells, shape, other_probability)
        total[..., 0] += other_sums - total.sum(dim=-1)
        count = _sum_by_cell(top_cells, shape) + _sum_by_cell(other_cells, shape)
        count[..., 0] += sizes[:, None] - count.sum(dim=-1)
        hits = _sum_by_cell(self._cells(group, samples.labels, soft.label_probability, shape), shape)
        return ClassBins(count, total + _sum_by_cell(top_cells, shape, soft.confidence), hits)

    def states_for_labels(self, samples: Predictions, labels: Tensor) -> ClassBins:
        state = self(samples)  # only the hits depend on the labels
        probability = samples.probs.T.gather(0, labels)
        cell = labels * self.n_bins + bin_index(probability, self.n_bins)
        hits = _count_by_row(cell, samples.n_classes * self.n_bins).view(-1, *state.hits.shape)
        return ClassBins(state.count.expand_as(hits), state.probability.expand_as(hits), hits)

    def _cells(self, group: Tensor | None, classes: Tensor, probability: Tensor, shape: tuple[int, ...]) -> Tensor:
        """Return the number of the cell (group, class, bin) of every probability."""
        cells = bin_index(probability, self.n_bins)
        if math.prod(shape) >= 2**31:
            cells = cells.long()
        cells.add_(classes.to(cells.dtype), alpha=self.n_bins)
        return cells if group is None else cells.add_(group.to(cells.dtype), alpha=shape[1] * shape[2])


@final
@dataclass(frozen=True)
class BinnedByPrediction(LabelStatistic):
    """Equal-width bins of confidence for every predicted class."""

    n_bins: int = 15

    def __post_init__(self) -> None:
        check_bins(self.n_bins)

    def __call__(self, samples: Predictions | TopLabel) -> ClassBins:
        samples = full_predictions(samples)
        return self.by_group(samples, torch.zeros_like(samples.labels))[0]

    def by_group(self, samples: Predictions, group: Tensor) -> ClassBins:
        shape = (int(group.max()) + 1, samples.n_classes, self.n_bins)
        cells = torch.add(self._cells(samples), group, alpha=shape[1] * shape[2])
        columns = (None, samples.confidence, samples.correct)
        return ClassBins(*(_sum_by_cell(cells, shape, column) for column in columns))

    def states_for_labels(self, samples: Predictions, labels: Tensor) -> ClassBins:
        state = self(samples)  # only the hits depend on the labels
        size = samples.n_classes * self.n_bins
        # Wrong predictions are counted in one cell too many, which is then dropped.
        cell = torch.where(labels == samples.predicted, self._cells(samples), size)
        hits = _count_by_row(cell, size + 1)[:, :size].reshape(-1, *state.hits.shape)
        return ClassBins(state.count.expand_as(hits), state.probability.expand_as(hits), hits)

    def _cells(self, samples: Predictions) -> Tensor:
        return samples.predicted * self.n_bins + bin_index(samples.confidence, self.n_bins)


def _sum_by_cell(cells: Tensor, shape: tuple[int, ...], values: Tensor | None = None) -> Tensor:
    """Count the occurrences of each cell, or add up the values in it, in float64."""
    size = math.prod(shape)
    if values is None:
        return torch.bincount(cells, minlength=size).double().view(shape)
    return sums_by(cells, values.double(), size).view(shape)


def _count_by_row(cells: Tensor, size: int) -> Tensor:
    """Count the occurrences of each cell number in each row of (r, n), giving (r, size) in float64."""
    offsets = torch.arange(0, len(cells) * size, size, device=cells.device)[:, None]
    return torch.bincount((cells + offsets).flatten(), minlength=len(cells) * size).double().view(-1, size)


def full_predictions(samples: Predictions | TopLabel) -> Predictions:
    """Return the samples, if they have the probability of every class.

    Raises:
        InputError: If only the top label is known.
    """
    if isinstance(samples, TopLabel):
        raise InputError(
            "this metric needs the probability of every class; got confidence and correctness only. "
            "Give logits or probabilities, or ask for a top-label metric."
        )
    return samples


class Metric(ABC):
    """A number about predictions, with an additive state.

    ``value(state(a) + state(b)) == value(state(a + b))``.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    family: ClassVar[Family]
    paper: ClassVar[Paper]
    lower_is_better: ClassVar[bool | None]  # None: neither
    smallest_effect: ClassVar[float | None] = None  # smallest difference that matters; None: 1 % of the baseline
    may_be_negative: ClassVar[bool] = False  # for calibration errors: the others lie in 0..1
    interval_method: ClassVar[IntervalMethod] = "bootstrap"

    @property
    @abstractmethod
    def statistic(self) -> Statistic:
        """Statistic that gathers the state."""

    @abstractmethod
    def value(self, state: Any) -> Tensor:
        """Compute the number from the state, shape (...)."""

    @final
    def state(self, samples: Predictions | TopLabel) -> State:
        """Gather the state of these samples."""
        return self.statistic(samples)

    @final
    def __call__(self, *predictions: Predictions | TopLabel, **arrays: Unpack[Arrays]) -> float:
        """Return the value of predictions, given as a record or as arrays by keyword (see :class:`Arrays`)."""
        return float(self.value(self.statistic(as_predictions(predictions, self.name, arrays))))


class MeanMetric(Metric):
    """A mean over the samples of one number per sample."""

    def value(self, state: Average) -> Tensor:
        return state.total / state.count


@dataclass(frozen=True)
class BinMetric(Metric):
    """A calibration error over equal-width bins of confidence."""

    family: ClassVar[Family] = "calibration"
    lower_is_better: ClassVar[bool | None] = True
    smallest_effect: ClassVar[float | None] = 0.001
    n_bins: int = 15

    @property
    def statistic(self) -> Binned:
        return Binned(self.n_bins)


class GridMetric(Metric):
    """A calibration error of smoothed confidences, on evenly spaced nodes."""

    family: ClassVar[Family] = "calibration"
    lower_is_better: ClassVar[bool | None] = True
    smallest_effect: ClassVar[float | None] = 0.001

    @property
    def statistic(self) -> Gridded:
        return Gridded()


@dataclass(frozen=True)
class RankMetric(Metric):
    """A metric of ranked confidences: exact, or with ``ranks=RankedCells()`` in bounded memory."""

    family: ClassVar[Family] = "refinement"
    lower_is_better: ClassVar[bool | None] = True
    # Whether any sample, right or wrong, moves it by no more than about 1/n, however few errors there are.
    counts_all_samples: ClassVar[bool] = False
    ranks: RankedSamples | RankedCells = field(default=EXACT, kw_only=True)

    @property
    def statistic(self) -> RankedSamples | RankedCells:
        return self.ranks


@final
class Tally:
    """Gathers what several metrics need from one pass over the logits, in any number of batches.

    Memory stays bounded, unless a metric needs exact ranks (``RankedSamples``).

    Example:
        >>> from calibrant.metrics import ECE, NLL
        >>> tally = Tally([ECE(), NLL()])
        >>> for batch in [Predictions([[2.0, 0.0]], [0]), Predictions([[0.0, 1.0]], [0])]:
        ...     tally = tally.add(batch)
        >>> {name: round(value, 3) for name, value in tally.values().items()}
        {'ece': 0.425, 'nll': 0.72}
    """

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self.metrics = tuple(metrics)
        statistics = {metric.statistic for metric in self.metrics}
        # Every statistic of the top label follows from the ranked samples, if those are kept anyway.
        ranks = EXACT in statistics
        gathered = [s for s in statistics if s == EXACT or not (ranks and isinstance(s, TopStatistic))]
        self._parts: dict[Statistic, list[State]] = {statistic: [] for statistic in gathered}
        self._derived: dict[Statistic, State | Ranked] = {}
        self._wanted = reduce(or_, (statistic.wanted for statistic in gathered), Wanted())

    def add(self, samples: Predictions | TopLabel) -> Self:
        """Count these samples in."""
        self._derived.clear()
        for block in samples.blocks():
            if isinstance(block, Predictions):
                block.softmax_rows(self._wanted)
            for statistic, parts in self._parts.items():
                parts.append(statistic(block))
                if isinstance(parts[0], Sums):
                    parts[:] = [merge(parts)]
        return self

    def state(self, metric: Metric) -> State | Ranked:
        """Return the state of all samples so far."""
        statistic = metric.statistic
        if isinstance(statistic, TopStatistic) and statistic not in self._parts:
            if statistic not in self._derived:
                keys = self._merged(EXACT)
                assert isinstance(keys, PackedSamples)
                self._derived[statistic] = statistic.of_ranked(keys.ranked)
            return self._derived[statistic]
        return self._merged(statistic)

    def _merged(self, statistic: Statistic) -> State:
        parts = self._parts[statistic]
        if not parts:
            raise InputError("a tally must have counted at least one sample before it is read; got none.")
        if len(parts) > 1:
            parts[:] = [merge(parts)]
        return parts[0]

    def values(self) -> dict[str, float]:
        """Return the value of every metric for all samples so far, by name.

        Raises:
            InputError: If two metrics have the same name, or no samples were counted.
        """
        if len({metric.name for metric in self.metrics}) < len(self.metrics):
            names = ", ".join(metric.name for metric in self.metrics)
            raise InputError(f"metrics read by name must have different names; got {names}. Use value(state(metric)).")
        return {metric.name: float(metric.value(self.state(metric))) for metric in self.metrics}
