"""Base classes of metrics: a statistic gathers a state from samples, and a metric computes its value from the state.

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
    Ranked,
    Sample,
    State,
    Sums,
    merge,
)
from calibrant.numerics.binning import bin_index, sums_by
from calibrant.numerics.softmax import TOP_LABEL, SoftmaxRows, Wanted
from calibrant.paper import Paper
from calibrant.predictions import Arrays, Predictions, TopLabel, as_predictions

__all__ = [
    "EXACT",
    "Averaged",
    "BinMetric",
    "Binned",
    "BinnedByPrediction",
    "BinnedClasswise",
    "BinnedMoments",
    "Family",
    "Gridded",
    "LabelStatistic",
    "Metric",
    "RankMetric",
    "RankedCells",
    "RankedRows",
    "Statistic",
    "Tally",
    "TopStatistic",
    "full_predictions",
]

Family: TypeAlias = Literal["description", "proper", "calibration", "refinement"]


class Statistic(ABC):
    """A recipe that turns rows into a state. Two equal recipes give the same state, and so are computed once."""

    @property
    def wanted(self) -> Wanted:
        """What it reads of the pass over the logits, beyond the top label."""
        return TOP_LABEL

    @abstractmethod
    def __call__(self, rows: Predictions | TopLabel) -> State:
        """Gather the state of these rows."""

    def by_group(self, rows: Predictions, group: Tensor) -> Sums:
        """The states of groups of rows, side by side; for statistics whose state is a sum.

        Args:
            rows: The rows.
            group: The group of each row, 0 to g - 1, none of them empty, (n,).
        """
        members = group.argsort(stable=True).split(torch.bincount(group).tolist())
        states = [self(rows[chosen]) for chosen in members]
        assert isinstance(states[0], Sums), "only sums can be taken by group"
        return type(states[0]).stack(states)  # type: ignore[arg-type]  # all of the kind of the first


class LabelStatistic(Statistic):
    """A statistic of all classes that can tell its state for other labels, without another pass over the logits."""

    @abstractmethod
    def relabelled(self, rows: Predictions, labels: Tensor) -> Sums:
        """The states that these rows would have with each of the given labels, (r, n); a leading dimension r."""


class TopStatistic(Statistic):
    """A statistic of confidence and correctness alone, so that it can also be read off resampled, ranked answers."""

    @abstractmethod
    def of_ranked(self, ranked: Ranked) -> State | Ranked:
        """The same state from ranked answers, whose counts may carry leading dimensions."""


class Metric(ABC):
    """A number about predictions, with an additive state.

    ``value(state(a) + state(b)) == value(state(a + b))``.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    family: ClassVar[Family]
    paper: ClassVar[Paper]
    lower_is_better: ClassVar[bool | None]  # None: neither

    @property
    @abstractmethod
    def statistic(self) -> Statistic:
        """What to gather from the rows."""

    @abstractmethod
    def value(self, state: Any) -> Tensor:
        """Read the number off the state, shape (...)."""

    @final
    def state(self, rows: Predictions | TopLabel) -> State:
        """Gather the state of these rows."""
        return self.statistic(rows)

    @final
    def __call__(self, *predictions: Predictions | TopLabel, **arrays: Unpack[Arrays]) -> float:
        """Return the value of predictions, given as a record or as arrays by keyword (see :class:`Arrays`)."""
        return float(self.value(self.statistic(as_predictions(predictions, self.name, arrays))))


@final
@dataclass(frozen=True)
class Averaged(Statistic):
    """Mean over the rows of one number a row."""

    of: Callable[[SoftmaxRows], Tensor]
    wanted: Wanted = TOP_LABEL

    def __call__(self, rows: Predictions | TopLabel) -> Average:
        total = self.of(full_predictions(rows).softmax_rows(self.wanted)).sum(dtype=torch.float64)
        return Average(torch.full_like(total, len(rows)), total)

    def by_group(self, rows: Predictions, group: Tensor) -> Average:
        """All groups at once."""
        count = torch.bincount(group).double()
        return Average(count, sums_by(group, self.of(rows.softmax_rows(self.wanted)).double(), len(count)))


@final
@dataclass(frozen=True)
class Binned(TopStatistic):
    """Equal-width bins of confidence."""

    n_bins: int = 15

    def __post_init__(self) -> None:
        check_bins(self.n_bins)

    def __call__(self, rows: Predictions | TopLabel) -> Bins:
        return Bins.gather(rows.top, self.n_bins)

    def of_ranked(self, ranked: Ranked) -> Bins:
        return Bins.of_ranked(ranked, self.n_bins)


@final
@dataclass(frozen=True)
class BinnedMoments(TopStatistic):
    """Equal-width bins of confidence with second moments."""

    n_bins: int = 15

    def __post_init__(self) -> None:
        check_bins(self.n_bins)

    def __call__(self, rows: Predictions | TopLabel) -> BinMoments:
        return BinMoments.gather(rows.top, self.n_bins)

    def of_ranked(self, ranked: Ranked) -> BinMoments:
        return BinMoments.of_ranked(ranked, self.n_bins)


@final
@dataclass(frozen=True)
class Gridded(TopStatistic):
    """Answers spread over evenly spaced nodes of confidence, for kernel smoothing."""

    nodes: int = 1025

    def __call__(self, rows: Predictions | TopLabel) -> Grid:
        top = rows.top
        right = top.correct.double()
        return Grid.gather(top.confidence, right, torch.ones_like(right), self.nodes)

    def of_ranked(self, ranked: Ranked) -> Grid:
        return Grid.gather(ranked.confidence.double(), ranked.right.double(), ranked.total.double(), self.nodes)


@final
@dataclass(frozen=True)
class RankedRows(TopStatistic):
    """Exact ranks; the state grows with the rows."""

    def __call__(self, rows: Predictions | TopLabel) -> Sample:
        return Sample.gather(rows.top.log_odds, rows.top.correct)

    def of_ranked(self, ranked: Ranked) -> Ranked:
        return ranked


EXACT = RankedRows()


@final
@dataclass(frozen=True)
class RankedCells(TopStatistic):
    """Ranks in bounded memory: answers in the same cell count as tied (``Cells.auroc_error`` bounds the error)."""

    cells: int = 16384

    def __call__(self, rows: Predictions | TopLabel) -> Cells:
        return Cells.gather(rows.top, self.cells)

    def of_ranked(self, ranked: Ranked) -> Ranked:
        return ranked


@final
@dataclass(frozen=True)
class BinnedClasswise(LabelStatistic):
    """For every class, equal-width bins of its probability over all rows.

    With many classes nearly all probabilities lie in the first bin, so that bin is what remains of the column sums
    after the few entries above it are taken out.
    """

    n_bins: int = 15

    def __post_init__(self) -> None:
        check_bins(self.n_bins)

    @property
    def wanted(self) -> Wanted:
        """Column sums, and the probabilities above the first bin."""
        return Wanted(above=1 / self.n_bins)

    def __call__(self, rows: Predictions | TopLabel) -> ClassBins:
        rows = full_predictions(rows)
        return self._of_entries(rows, None, rows.softmax_rows(self.wanted).other_sums[None])[0]

    def by_group(self, rows: Predictions, group: Tensor) -> ClassBins:
        """All groups at once."""
        sums = torch.zeros(int(group.max()) + 1, rows.n_classes, dtype=rows.probs.dtype, device=group.device)
        sums.index_add_(0, group, rows.probs)
        soft = rows.softmax_rows(self.wanted)
        # The sums of the probabilities that are not the largest of their row.
        sums.view(-1).index_add_(0, soft.top + group * rows.n_classes, -soft.confidence.to(sums.dtype))
        return self._of_entries(rows, group, sums.double())

    def _of_entries(self, rows: Predictions, group: Tensor | None, other_sums: Tensor) -> ClassBins:
        """The bins of every group, from its largest entries, its others above the first bin, and the others' sums."""
        soft, shape = rows.softmax_rows(self.wanted), (*other_sums.shape, self.n_bins)
        other_rows, other_classes, other_probability = soft.other_entries()
        other_group = None if group is None else group.index_select(0, other_rows)
        sizes = other_sums.new_tensor([len(rows)]) if group is None else torch.bincount(group)

        top_cells = self._cells(group, soft.top, soft.confidence, shape)
        other_cells = self._cells(other_group, other_classes, other_probability, shape)
        total = _add_up(other_cells, shape, other_probability)
        total[..., 0] += other_sums - total.sum(dim=-1)
        count = _add_up(top_cells, shape) + _add_up(other_cells, shape)
        count[..., 0] += sizes[:, None] - count.sum(dim=-1)
        hits = _add_up(self._cells(group, rows.labels, soft.label_probability, shape), shape)
        return ClassBins(count, total + _add_up(top_cells, shape, soft.confidence), hits)

    def relabelled(self, rows: Predictions, labels: Tensor) -> ClassBins:
        """Only the hits depend on the labels."""
        state = self(rows)
        probability = rows.probs.T.gather(0, labels)
        cell = labels * self.n_bins + bin_index(probability, self.n_bins)
        hits = _count_rows(cell, rows.n_classes * self.n_bins).view(-1, *state.hits.shape)
        return ClassBins(state.count.expand_as(hits), state.probability.expand_as(hits), hits)

    def _cells(self, group: Tensor | None, classes: Tensor, probability: Tensor, shape: tuple[int, ...]) -> Tensor:
        """Number of the cell (group, class, bin) of every probability."""
        cells = bin_index(probability, self.n_bins)
        if math.prod(shape) >= 2**31:
            cells = cells.long()
        cells.add_(classes.to(cells.dtype), alpha=self.n_bins)
        return cells if group is None else cells.add_(group.to(cells.dtype), alpha=shape[1] * shape[2])


@final
@dataclass(frozen=True)
class BinnedByPrediction(LabelStatistic):
    """For every predicted class, equal-width bins of the confidence of the rows predicted so."""

    n_bins: int = 15

    def __post_init__(self) -> None:
        check_bins(self.n_bins)

    def __call__(self, rows: Predictions | TopLabel) -> ClassBins:
        rows = full_predictions(rows)
        return self.by_group(rows, torch.zeros_like(rows.labels))[0]

    def by_group(self, rows: Predictions, group: Tensor) -> ClassBins:
        """All groups at once."""
        shape = (int(group.max()) + 1, rows.n_classes, self.n_bins)
        cells = torch.add(self._cells(rows), group, alpha=shape[1] * shape[2])
        columns = (None, rows.confidence, rows.correct)
        return ClassBins(*(_add_up(cells, shape, column) for column in columns))

    def relabelled(self, rows: Predictions, labels: Tensor) -> ClassBins:
        """Only the right answers depend on the labels."""
        state = self(rows)
        size = rows.n_classes * self.n_bins
        # Wrong answers are counted in one cell too many, which is then dropped.
        cell = torch.where(labels == rows.predicted, self._cells(rows), size)
        hits = _count_rows(cell, size + 1)[:, :size].reshape(-1, *state.hits.shape)
        return ClassBins(state.count.expand_as(hits), state.probability.expand_as(hits), hits)

    def _cells(self, rows: Predictions) -> Tensor:
        return rows.predicted * self.n_bins + bin_index(rows.confidence, self.n_bins)


def _add_up(cells: Tensor, shape: tuple[int, ...], values: Tensor | None = None) -> Tensor:
    """How often each cell occurs, or the sum of the values in it, in float64."""
    size = math.prod(shape)
    if values is None:
        return torch.bincount(cells, minlength=size).double().view(shape)
    return sums_by(cells, values.double(), size).view(shape)


def _count_rows(cells: Tensor, size: int) -> Tensor:
    """How often each cell number stands in each row of (r, n), giving (r, size) in float64."""
    offsets = torch.arange(0, len(cells) * size, size, device=cells.device)[:, None]
    return torch.bincount((cells + offsets).flatten(), minlength=len(cells) * size).double().view(-1, size)


def full_predictions(rows: Predictions | TopLabel) -> Predictions:
    """The rows, if they have the probability of every class."""
    if isinstance(rows, TopLabel):
        raise InputError(
            "this metric needs the probability of every class; got confidence and correctness only. "
            "Give logits or probabilities, or ask for a top-label metric."
        )
    return rows


@dataclass(frozen=True)
class BinMetric(Metric):
    """A metric read off equal-width bins of confidence."""

    n_bins: int = 15

    @property
    def statistic(self) -> Binned:
        """Equal-width bins."""
        return Binned(self.n_bins)


@dataclass(frozen=True)
class RankMetric(Metric):
    """A metric read off ranked answers: exactly, or with ``ranks=RankedCells()`` in bounded memory."""

    ranks: RankedRows | RankedCells = field(default=EXACT, kw_only=True)

    @property
    def statistic(self) -> RankedRows | RankedCells:
        """Ranked answers."""
        return self.ranks


@final
class Tally:
    """Gathers what several metrics need from one pass over the logits, however many pieces they come in.

    Memory stays bounded, unless a metric needs exact ranks (``RankedRows``).

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
        # All that is about the top label can be read off the ranked rows, if those are kept anyway.
        ranks = RankedRows() in statistics
        gathered = [s for s in statistics if s == RankedRows() or not (ranks and isinstance(s, TopStatistic))]
        self._parts: dict[Statistic, list[State]] = {statistic: [] for statistic in gathered}
        self._derived: dict[Statistic, State | Ranked] = {}
        self._wanted = reduce(or_, (statistic.wanted for statistic in gathered), Wanted())

    def add(self, rows: Predictions | TopLabel) -> Self:
        """Count these rows in."""
        self._derived.clear()
        for block in rows.blocks():
            if isinstance(block, Predictions):
                block.softmax_rows(self._wanted)
            for statistic, parts in self._parts.items():
                parts.append(statistic(block))
                if isinstance(parts[0], Sums):
                    parts[:] = [merge(parts)]
        return self

    def state(self, metric: Metric) -> State | Ranked:
        """The state of all rows so far."""
        statistic = metric.statistic
        if isinstance(statistic, TopStatistic) and statistic not in self._parts:
            sample = self._merged(RankedRows())
            assert isinstance(sample, Sample)
            if statistic not in self._derived:
                self._derived[statistic] = statistic.of_ranked(sample.ranked)
            return self._derived[statistic]
        return self._merged(statistic)

    def _merged(self, statistic: Statistic) -> State:
        parts = self._parts[statistic]
        if not parts:
            raise InputError("a tally must have counted at least one row before it is read; got none.")
        if len(parts) > 1:
            parts[:] = [merge(parts)]
        return parts[0]

    def values(self) -> dict[str, float]:
        """Every metric's number for all rows so far, by name.

        Raises:
            InputError: If two metrics have the same name, or no rows were counted.
        """
        if len({metric.name for metric in self.metrics}) < len(self.metrics):
            names = ", ".join(metric.name for metric in self.metrics)
            raise InputError(f"metrics read by name must have different names; got {names}. Use value(state(metric)).")
        return {metric.name: float(metric.value(self.state(metric))) for metric in self.metrics}
