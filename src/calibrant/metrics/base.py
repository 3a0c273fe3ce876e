"""Base classes of metrics: a statistic gathers a state from samples, and a value is read off the state.

Metrics that name the same statistic share its state; :class:`calibrant.metrics.Tally` gathers each once.
"""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal, TypeAlias, Unpack, final

import torch
from torch import Tensor

from calibrant.metrics.ranking import Ranked
from calibrant.metrics.states import State, Sums
from calibrant.numerics.softmax import TOP_LABEL, Wanted
from calibrant.paper import Paper
from calibrant.predictions import Arrays, Predictions, TopLabel, as_predictions

__all__ = ["Family", "LabelStatistic", "Metric", "Statistic", "TopStatistic"]

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
