"""Many metrics from one pass over the rows."""

from collections.abc import Iterable
from functools import reduce
from operator import or_
from typing import Self, final

from calibrant.errors import InputError
from calibrant.metrics.base import Metric, Statistic, TopStatistic
from calibrant.metrics.ranking import Ranked, Sample
from calibrant.metrics.states import State, Sums, merge
from calibrant.metrics.statistics import RankedRows
from calibrant.numerics.softmax import Wanted
from calibrant.predictions import Predictions, TopLabel

__all__ = ["Tally"]


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
