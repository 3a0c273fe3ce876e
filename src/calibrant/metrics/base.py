"""Metrics compute their value from the state that a statistic gathers; a tally gathers several states in one pass.

For ECE the statistic is ``Binned``, its state ``Bins`` holds sums per bin, and the metric averages their gaps.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import Field, dataclass, field
from functools import reduce
from operator import or_
from typing import Any, ClassVar, Literal, Self, TypeAlias, Unpack, final

from torch import Tensor

from calibrant.checks import BinCount, check_options, set_facts, with_devices_of_inputs
from calibrant.errors import InputError
from calibrant.metrics import states
from calibrant.numerics.softmax import Wanted
from calibrant.paper import Paper
from calibrant.predictions import Arrays, Predictions, TopLabel, as_predictions, check_unweighted

Family: TypeAlias = Literal["description", "proper", "calibration", "refinement"]
IntervalMethod: TypeAlias = Literal["bootstrap", "wilson", "influence", "threshold"]
Facts: TypeAlias = dict[str, object]  # keywords of the class of a metric

DESCRIPTION: Facts = {"family": "description", "lower_is_better": None}


class Metric(ABC):
    """A number about predictions, with an additive state: ``value(state(a) + state(b)) == value(state(a + b))``.

    Its facts are keywords of the class: ``class NLL(Metric, name="nll", title="Log-loss", ...)``. Options of a
    dataclass are checked against their types (:func:`~calibrant.checks.check_options`).
    """

    name: ClassVar[str]
    title: ClassVar[str]
    family: ClassVar[Family]
    paper: ClassVar[Paper]
    lower_is_better: ClassVar[bool | None] = True  # None: neither
    smallest_effect: ClassVar[float | None] = None  # smallest difference that matters; None: 1 % of the baseline
    largest: ClassVar[float] = math.inf  # possible value; one that has it is at least 0
    may_be_negative: ClassVar[bool] = False  # for calibration errors: the others lie in 0..1
    noise: ClassVar[Literal["absolute", "positive", "largest", "subtracted"]] = "absolute"  # gaps that noise raises
    interval_method: ClassVar[IntervalMethod] = "bootstrap"
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def __init_subclass__(cls, **facts: object) -> None:
        super().__init_subclass__()
        set_facts(cls, facts)

    def __post_init__(self) -> None:
        check_options(self)

    @property
    @abstractmethod
    def statistic(self) -> states.Statistic:
        """Statistic that gathers the state."""

    @abstractmethod
    def value(self, state: Any) -> Tensor:
        """Compute the number from the state, shape (...)."""

    @final
    @with_devices_of_inputs
    def state(self, samples: Predictions | TopLabel) -> states.State:
        return _gather(self.statistic, samples)

    @final
    @with_devices_of_inputs
    def __call__(self, *predictions: Predictions | TopLabel, **arrays: Unpack[Arrays]) -> float:
        return float(self.value(_gather(self.statistic, as_predictions(predictions, self.name, arrays))))


def _gather(statistic: states.Statistic, samples: Predictions | TopLabel) -> states.State:
    if not statistic.takes_weights:
        check_unweighted(samples, type(statistic).__name__)
    return statistic(samples)


def check_metrics(metrics: Iterable[Metric]) -> tuple[Metric, ...]:
    """Return the metrics as a tuple; an InputError if one is a name or anything else that is not a metric."""
    given = (metrics,) if isinstance(metrics, Metric | str) or not isinstance(metrics, Iterable) else tuple(metrics)
    for metric in given:
        if not isinstance(metric, Metric):
            raise InputError(f"metrics must be metrics, such as ECE() of calibrant.metrics; got {metric!r}.")
    return given


class MeanMetric(Metric):
    """A mean over the samples of one number per sample."""

    def value(self, state: states.Average) -> Tensor:
        return state.total / state.count


@dataclass(frozen=True)
class BinMetric(Metric, family="calibration", smallest_effect=0.001, largest=1.0):
    """A calibration error over equal-width bins, of confidence unless ``bins`` says otherwise."""

    bins: ClassVar[type[states.BinStatistic]] = states.Binned
    n_bins: BinCount = 15

    @property
    def statistic(self) -> states.BinStatistic:
        return self.bins(self.n_bins)


class GridMetric(Metric, family="calibration", smallest_effect=0.001, largest=1.0):
    """A calibration error of smoothed confidences, on evenly spaced nodes."""

    statistic = states.Gridded()


@dataclass(frozen=True)
class RankMetric(Metric, family="refinement"):
    """A metric of ranked confidences: exact, or with ``ranks=RankedCells()`` in bounded memory."""

    # Whether any sample, right or wrong, moves it by no more than about 1/n, however few errors there are.
    counts_all_samples: ClassVar[bool] = False
    ranks: states.RankedSamples | states.RankedCells = field(default=states.EXACT, kw_only=True)

    @property
    def statistic(self) -> states.RankedSamples | states.RankedCells:
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
        ranks = states.EXACT in statistics
        gathered = [s for s in statistics if s == states.EXACT or not (ranks and isinstance(s, states.TopStatistic))]
        self._parts: dict[states.Statistic, list[states.State]] = {statistic: [] for statistic in gathered}
        self._derived: dict[states.Statistic, states.State | states.Ranked] = {}
        self._wanted = reduce(or_, (statistic.wanted for statistic in gathered), Wanted())

    @with_devices_of_inputs
    def add(self, samples: Predictions | TopLabel) -> Self:
        self._derived.clear()
        for block in samples.blocks():
            if isinstance(block, Predictions):
                block.softmax_rows(self._wanted)
            for statistic, parts in self._parts.items():
                parts.append(_gather(statistic, block))
                if isinstance(parts[0], states.Sums):
                    parts[:] = [states.merge(parts)]
        return self

    def state(self, metric: Metric) -> states.State | states.Ranked:  # of all samples so far
        statistic = metric.statistic
        if isinstance(statistic, states.TopStatistic) and statistic not in self._parts:
            if statistic not in self._derived:
                keys = self._merged(states.EXACT)
                assert isinstance(keys, states.PackedSamples)
                self._derived[statistic] = statistic.of_ranked(keys.ranked)
            return self._derived[statistic]
        return self._merged(statistic)

    def _merged(self, statistic: states.Statistic) -> states.State:
        parts = self._parts[statistic]
        if not parts:
            raise InputError("a tally must have counted at least one sample before it is read; got none.")
        if len(parts) > 1:
            parts[:] = [states.merge(parts)]
        return parts[0]

    def values(self) -> dict[str, float]:
        """Return the value of every metric for all samples so far, by name."""
        if len({metric.name for metric in self.metrics}) < len(self.metrics):
            names = ", ".join(metric.name for metric in self.metrics)
            raise InputError(f"metrics read by name must have different names; got {names}. Use value(state(metric)).")
        return {metric.name: float(metric.value(self.state(metric))) for metric in self.metrics}
