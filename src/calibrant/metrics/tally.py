"""Many metrics from one pass over the rows."""

from collections.abc import Iterable, Sequence
from typing import Self, final

from calibrant.metrics.base import Metric, Statistic
from calibrant.metrics.states import State, merge
from calibrant.predictions import Predictions, TopLabel

__all__ = ["Tally"]


@final
class Tally:
    """Gathers what several metrics need, block by block, each block's softmax worked out once.

    Example:
        >>> from calibrant.metrics import ECE, NLL
        >>> tally = Tally([ECE(), NLL()])
        >>> for batch in batches:
        ...     tally.add(batch)
        >>> {name: round(value, 3) for name, value in tally.values().items()}
        {'ece': 0.198, 'nll': 1.055}
    """

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self.metrics = tuple(metrics)
        self._parts: dict[Statistic, list[State]] = {metric.statistic: [] for metric in self.metrics}

    def add(self, rows: Predictions | TopLabel) -> Self:
        """Count these rows in."""
        for block in rows.blocks():
            if isinstance(block, Predictions):
                block.softmax  # noqa: B018  # worked out here so that every statistic of the block shares it
            for statistic, parts in self._parts.items():
                parts.append(statistic(block))
        return self

    def parts(self, metric: Metric) -> Sequence[State]:
        """The states of the blocks, not yet added up."""
        return self._parts[metric.statistic]

    def state(self, metric: Metric) -> State:
        """The state of all rows so far."""
        parts = self._parts[metric.statistic]
        parts[:] = [merge(parts)]
        return parts[0]

    def values(self) -> dict[str, float]:
        """Every metric's number for all rows so far."""
        return {metric.name: float(metric.value(self.state(metric))) for metric in self.metrics}
