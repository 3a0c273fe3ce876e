"""The δ that minimises the objective, with the head solved exactly for every δ: quasi-Newton steps with a certificate.

Steps follow the curvature learned from those before. A network of ramps has kinks, where the gradient jumps and no
smooth model holds: there the memory is dropped, and the steepest way tried.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple, final, get_args

import torch
from torch import Tensor

from calibrant.checks import check_at_least, check_known, check_positive
from calibrant.clamping.learning.freedom import Basis
from calibrant.clamping.learning.heads import HeadFit
from calibrant.clamping.learning.objective import Objective
from calibrant.clamping.learning.passes import Passes, Precision
from calibrant.clamping.learning.profiled_loss import ProfiledLoss, ProfiledPoint
from calibrant.errors import FitError
from calibrant.maps import Map, Scale
from calibrant.numerics.certificate import Certificate
from calibrant.numerics.curvature_memory import CurvatureMemory

__all__ = ["Descent", "ExactSolver", "Minimum"]

# The first step, before any curvature is known, is meant to lower the objective by this share.
_FIRST_GAIN = 0.2
# A step must bring this share of what the gradient promises (Armijo), or it is tried again at a fraction of its length.
_ENOUGH = 1e-4
# By how much at least and at most a step is shortened, and how short one along remembered curvature, or without any,
# may become.
_LESS_SHORT, _SHORTER = 0.5, 0.1
_SHORTEST, _SHORTEST_BLIND = 1e-2, 1e-8
# A temperature this near the best one, in its logarithm, gives the same gradient.
_LAG = 1e-6
# A promise below this share of the objective is lost in rounding, unless a tolerance below 1e-3 asks for more, as of
# networks in float64: then below this share of the tolerance.
_NOTHING, _NOTHING_OF_TOLERANCE = 1e-7, 1e-4
_TINY = 1e-300


@final
@dataclass(frozen=True)
class ExactSolver:
    """Quasi-Newton steps in δ over all rows, the head solved exactly for every δ, until the gradient is small.

    Args:
        tolerance: What the next step promises, at most, relative to all that was gained so far.
        max_passes: Passes over the rows at most, for one strength of the penalty; a fit that needs more says so.
        precision: What the network multiplies in on a GPU while δ is learned: ``float32``; ``tensor-float32`` or
            ``bfloat16``, faster and coarser. The head is fitted to float32 logits in the end.

    Raises:
        InputError: If a number is out of range.
    """

    tolerance: float = 1e-3
    max_passes: int = 100
    precision: Precision = "float32"

    def __post_init__(self) -> None:
        check_positive(self.tolerance, "tolerance")
        check_at_least(self.max_passes, 2, "max_passes")
        check_known(self.precision, get_args(Precision), "precision")


class Minimum(NamedTuple):
    """Where a descent ended."""

    # Of all that is minimised: the mean loss, the penalty on δ, and the head's own where it has one. Its gradient is
    # that in δ with the head following, behind the head that is returned.
    certificate: Certificate
    promised: float  # how much lower the next step would have led, at most to first order
    end: Literal["near", "stuck", "out of passes"]  # stuck: at a kink of the network, where no step leads down


@final
class Descent:
    """Goes down from where it stands; the penalty may change on the way, as along a path from strong to weak.

    Args:
        passes: Over the rows to fit.
        basis: How δ may vary.
        head: Fits the map behind the network.
        start: δ to begin with, of an input's shape.
        known: The curvature of about the same function, if another descent has learned it.
    """

    def __init__(
        self, passes: Passes, basis: Basis, head: HeadFit, start: Tensor, *, known: CurvatureMemory | None = None
    ) -> None:
        self._profiled = ProfiledLoss(passes, basis, head, start.dtype)
        self._memory = known or CurvatureMemory()
        self._steepness = 0.0
        self._begun_at = math.nan, math.nan  # a strength, and the objective where its descent began
        self._here: ProfiledPoint | None = None
        self._start = basis.gathered(start.double()).flatten()

    @property
    def passes_taken(self) -> float:
        """How often it has read the rows so far."""
        return self._profiled.passes_taken

    @property
    def coefficients(self) -> Tensor:
        """Where it stands, (p,)."""
        return self._start if self._here is None else self._here.coefficients

    @property
    def delta(self) -> Tensor:
        """δ where it stands, of an input's shape and the start's type."""
        return self._profiled.spread(self.coefficients)

    @property
    def head(self) -> Map:
        """The best head for it."""
        assert self._here is not None, "begin first"
        return self._here.head

    def value(self, objective: Objective) -> float:
        """The objective where it stands."""
        assert self._here is not None, "begin first"
        return self._here.value(objective)

    def is_true(self, objective: Objective) -> bool:
        """Whether the loss here is the network's own, and not one that a short way through it made up."""
        assert self._here is not None, "begin first"
        return self._profiled.is_true(self._here, objective)

    def plain_head(self) -> Map:
        """The best head for the rows as they are, where passes see them augmented or coarsely."""
        return self._profiled.plain_head(self.coefficients)

    def known_curvature(self) -> CurvatureMemory:
        """A copy of what it has learned of the function so far."""
        known = CurvatureMemory()
        known.restore(self._memory.state())
        return known

    @property
    def steepness(self) -> float:
        """Norm of the loss's gradient where it began."""
        return self._steepness

    def begin(self, objective: Objective, *, logits: Tensor | None = None) -> None:
        """Look at the start: its best head, and the gradient there.

        Args:
            objective: Its strength does not matter here.
            logits: Of the rows there, (n, k), as a pass without a gradient gives them, if they are known.

        Raises:
            FitError: If the head has no optimum there, or logits are not finite.
        """
        if self._here is not None:
            return
        here = self._profiled.at(self._start, None, objective, logits=logits)
        if math.isinf(here.loss):
            raise FitError("logits must be finite at the first δ; some are not. Give another start, or full precision.")
        self._here = here
        self._steepness = self._steepness or float(self._here.gradient.norm())

    def minimise(
        self, objective: Objective, solver: ExactSolver, *, after_step: Callable[[], None] = lambda: None
    ) -> Minimum:
        """Go to the minimum, or to a kink of the network from which no step leads further down.

        Raises:
            FitError: If a head has no optimum, or logits are not finite to begin with.
        """
        self.begin(objective)
        assert self._here is not None
        before, steps = self.passes_taken, 0
        if self._begun_at[0] != objective.strength:  # rather than gone on with after a kill
            self._begun_at = objective.strength, self._here.value(objective)
        highest, nothing = self._begun_at[1], min(_NOTHING, _NOTHING_OF_TOLERANCE * solver.tolerance)
        while True:
            here = self._here
            gradient = here.gradient + objective.pull(here.coefficients)
            direction = self._direction(here, gradient, objective)
            promised = -0.5 * float(gradient @ direction)
            # A pass is kept for the gradient at the best temperature, where that of the last step lags behind it.
            left = int(solver.max_passes - (self.passes_taken - before)) - (here.lag > _LAG)
            is_near = promised <= solver.tolerance * (highest - here.value(objective)) + nothing * highest
            there = None
            if not is_near and left > 0:
                there = self._step(here, direction, gradient, objective, left)
            if there is not None:
                self._memory.learn(there.coefficients - here.coefficients, there.gradient - here.gradient)
                self._here, steps = there, steps + 1
                after_step()
            elif here.lag > _LAG:
                # This gradient was that of another temperature: no step down by it need be one, nor its end an optimum.
                self._here = self._profiled.at(here.coefficients, here.head, objective)
            elif left > 0 and not is_near and len(self._memory):
                # What was learned of the curvature on the other side of a kink is of no use on this one.
                self._memory = CurvatureMemory()
            else:
                break
        passes = self.passes_taken - before
        certificate = Certificate(here.value(objective), float(gradient.abs().max()), steps, passes)
        return Minimum(certificate, promised, "near" if is_near else "stuck" if left > 0 else "out of passes")

    def state(self) -> dict[str, Tensor]:
        """What is needed to go on from here."""
        held = {"coefficients": self.coefficients, **self._memory.state()}
        numbers = {"steepness": self._steepness, "passes": self.passes_taken, "begun_at": self._begun_at}
        if self._here is not None and isinstance(self._here.head, Scale):
            # Without them the gradient would be looked for again, and not lag: another way down to the same place.
            held |= {"gradient": self._here.gradient, "temperature": self._here.head.temperature}
            numbers |= {"loss": self._here.loss, "lag": self._here.lag, "n_classes": self._here.head.n_classes}
        return held | {name: torch.tensor(number, dtype=torch.float64) for name, number in numbers.items()}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Stand where another stood; behind other heads than a temperature, its last look is taken again."""
        state = {name: tensor.to(self._start.device) for name, tensor in state.items()}
        self._start, self._here = state["coefficients"], None
        if "gradient" in state:
            head = Scale(state["temperature"], n_classes=int(state["n_classes"]))
            lag, loss = float(state["lag"]), float(state["loss"])
            self._here = ProfiledPoint(self._start, head, loss, state["gradient"], lag)
        self._memory.restore(state)
        self._steepness, self._profiled.passes_taken = float(state["steepness"]), float(state["passes"])
        self._begun_at = float(state["begun_at"][0]), float(state["begun_at"][1])

    def _direction(self, here: ProfiledPoint, gradient: Tensor, objective: Objective) -> Tensor:
        ridge = objective.ridge(here.coefficients)
        direction = self._memory.direction(gradient, ridge=ridge)
        if direction is not None:
            return direction
        steepest = _FIRST_GAIN * here.value(objective) / max(float(gradient @ gradient), _TINY)
        return -gradient * min(steepest, 1 / ridge if ridge else math.inf)

    def _step(
        self, here: ProfiledPoint, direction: Tensor, gradient: Tensor, objective: Objective, left: int
    ) -> ProfiledPoint | None:
        """A point that is lower, or None if none is found."""
        value, slope, length = here.value(objective), float(gradient @ direction), 1.0
        shortest = _SHORTEST if len(self._memory) else _SHORTEST_BLIND
        for _ in range(left):
            there = self._profiled.at(here.coefficients + length * direction, here.head, objective)
            excess = there.value(objective) - value - length * slope
            if excess <= (_ENOUGH - 1) * length * slope:
                return there
            # The lowest point of the parabola through both values and the slope.
            length *= min(max(-0.5 * length * slope / excess, _SHORTER), _LESS_SHORT)
            if length < shortest:
                break
        return None
