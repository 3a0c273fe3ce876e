"""One fit under way: the method, its network and rows, what it remembers and whom it tells."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from torch import Tensor

from calibrant.clamping.fit.found import Found
from calibrant.clamping.fit.journal import Journal
from calibrant.clamping.fit.task import ClampingTask
from calibrant.clamping.learning.objective import Objective

if TYPE_CHECKING:
    from calibrant.clamping.neural_clamping import NeuralClamping, Progress

__all__ = ["FitRun"]


@final
@dataclass(frozen=True, eq=False)
class FitRun:
    """What every kind of fit needs."""

    method: "NeuralClamping"
    task: ClampingTask
    journal: Journal
    progress: "Progress"

    def objective(self, gamma: float, strength: float) -> Objective:
        """What is minimised, per row."""
        return Objective(gamma, strength, self.method.penalty, self.method.clip)

    def start(self) -> Tensor:
        """The first δ, of an input's shape, where the network is."""
        method, task = self.method, self.task
        return method.start.delta(task.model, task.rows, space=method.space, seed=method.seed).to(task.nothing)

    def head_alone(self, gamma: float) -> Found:
        """The answer without δ, as an infinite strength gives it.

        Raises:
            FitError: If the head has no optimum on these rows.
        """
        nothing = self.task.nothing
        return Found(nothing, self.task.best_head(nothing, gamma), math.inf, gamma, None)
