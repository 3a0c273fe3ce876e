"""Minimisers with a certificate of the gradient reached: truncated Newton, and limited-memory quasi-Newton."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, final

import torch
from scipy.optimize import minimize
from torch import Tensor

from calibrant.errors import FitError

__all__ = [
    "Certificate",
    "Convex",
    "CurvatureMemory",
    "Minimum",
    "Point",
    "Preconditioner",
    "Settings",
    "minimise",
    "quasi_newton",
]


class Certificate(NamedTuple):
    """Where a minimiser stopped.

    Args:
        objective: The value reached, as a mean over the rows, penalties included.
        gradient: Largest absolute entry of its gradient there, or what it may be at most after a last step that was
            not checked by another look; 0 at an exact optimum.
        steps: Iterations taken.
        passes: How often all rows were read; a subsample counts for its share.
    """

    objective: float
    gradient: float
    steps: int
    passes: float


Preconditioner: TypeAlias = Callable[[Tensor], Tensor]

_MAX_INNER = 500
# Of a step's length, as a share of Newton's.
_SHORTEST = 1e-9
# Where half the squared Newton decrement, the promised fall of the function, asks for double precision.
_COARSE_FALL = 1e-4
# What single precision may hide in a comparison of two values.
_COARSE_NOISE, _NOISE = 1e-6, 1e-13
# Inner steps beyond which a better preconditioner pays.
_MANY_INNER = 20
# How far the last step may have moved a parameter, in their units; how far it must not, so many times in a row, where
# the gradient is negligible; and how many steps more a small enough gradient is worth.
_STILL, _FAR, _FAR_TIMES, _PATIENCE = 1e-3, 0.1, 3, 5


class Point(NamedTuple):
    """A function and its gradient somewhere."""

    value: float
    gradient: Tensor
    separable: bool = False  # the larger a multiple of these parameters, the lower the function


class Convex(Protocol):
    """What the minimiser asks of a function. Curvature is that of the point looked at last."""

    def value_and_gradient(self, theta: Tensor, *, exact: bool) -> Point:
        """Value and gradient, in double or in single precision."""

    def hessian_product(self, direction: Tensor) -> Tensor:
        """Hessian times direction; single precision will do."""

    def preconditioner(self, *, strong: bool) -> Preconditioner:
        """About the inverse of the Hessian: a cheap one, or a strong one that is dearer to make."""


End: TypeAlias = Literal["converged", "separable", "diverging", "stalled"]


class Minimum(NamedTuple):
    """Where the minimiser stopped, and why."""

    theta: Tensor
    certificate: Certificate
    end: End


@final
@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a function is to be minimised.

    Args:
        size: By how much a unit of each parameter moves what the function is made of; broadcasts to the parameters.
            Gradients are measured in these units.
        tolerance: Largest entry of the gradient at the end.
        negligible: Gradient so small that parameters which still move far are running away.
        loose: Share of the residual at which the first steps' conjugate gradients stop: the dearer a product with the
            Hessian is beside a look at the function, the larger.
        steps: Newton steps at most.
        coarse: Whether the end may be known in single precision only.
    """

    size: Tensor
    tolerance: float
    negligible: float = 0.0
    loose: float = 0.3
    steps: int = 100
    coarse: bool = False


def minimise(function: Convex, start: Tensor, settings: Settings) -> Minimum:
    """The parameters at which a convex function is smallest.

    Args:
        function: Smooth and convex; directions in which it does not change are left alone.
        start: First guess, any shape.
        settings: How well, and how.

    Returns:
        ``converged``; ``separable`` if the function decreases along a ray; ``diverging`` if the gradient vanished
        while some parameters kept growing, possibly along such a ray; ``stalled`` otherwise.
    """
    descent = _Descent(function, start, settings)
    for step in range(settings.steps + 1):
        end = descent.verdict()
        if end is not None or step == settings.steps or not descent.advance():
            break
    certificate = Certificate(descent.here.value, descent.steepness, step, descent.passes)
    return Minimum(descent.theta, certificate, end or "stalled")


class _Descent:
    """The point reached, and what is known there."""

    def __init__(self, function: Convex, start: Tensor, settings: Settings) -> None:
        self._function, self._settings = function, settings
        self.theta, self.passes = start, 0.0
        self._exact, self._patience, self._far = False, _PATIENCE, 0
        self._solve: Preconditioner | None = None
        self._strong = False
        # Inner steps of the last direction, and of the first one with the same preconditioner.
        self._inner, self._inner_when_new = 0, 0
        self._arrive(self._look(start), math.inf)
        self._first_steepness = self.steepness

    def verdict(self) -> End | None:
        """Whether to stop here, and why."""
        if self.here.separable:
            return "separable"
        # A parameter that runs away moves by as much in every step, while the gradient falls by as many times.
        self._far = self._far + 1 if self._moved > _FAR and self.steepness <= self._settings.negligible else 0
        if self._far == _FAR_TIMES:
            return "diverging"
        if not (self._exact or self._settings.coarse) or self.steepness > self._settings.tolerance:
            return None
        if self._moved <= _STILL or self.steepness == 0 or self._settings.coarse:
            return "converged"
        self._patience -= 1
        return None if self._patience >= 0 else "converged" if self._moved <= _FAR else "diverging"

    def advance(self) -> bool:
        """Take a step, or look more closely; False if neither helps any more."""
        direction = self._direction()
        slope = float((self.here.gradient * direction).sum())
        value = self.here.value
        if not (self._exact or self._settings.coarse) and -slope / 2 < _COARSE_FALL:
            self._exact, value = True, value + _COARSE_NOISE
        slack, length = _NOISE * max(1.0, abs(value)) if self._exact else _COARSE_NOISE, 1.0
        while length > _SHORTEST:
            there = self._look(self.theta + length * direction)
            if there.value <= value + 1e-4 * length * slope + slack:
                self.theta = self.theta + length * direction
                self._arrive(there, length * _largest(direction * self._settings.size))
                return True
            length /= 2
        if self._exact:
            return False
        self._exact, self._solve = True, None
        self._arrive(self._look(self.theta), math.inf)
        return True

    def _look(self, theta: Tensor) -> Point:
        self.passes += 1
        return self._function.value_and_gradient(theta, exact=self._exact)

    def _arrive(self, here: Point, moved: float) -> None:
        self.here, self._moved = here, moved
        self.steepness = _largest(here.gradient / self._settings.size)

    def _direction(self) -> Tensor:
        renew = self._solve is None or self._inner > 1.5 * self._inner_when_new + 2
        if renew:
            self._strong = self._strong or self._inner > _MANY_INNER
            self._solve = self._function.preconditioner(strong=self._strong)
            self.passes += 1
        assert self._solve is not None
        near_end = self.steepness <= self._settings.tolerance
        enough, small = self._settings.loose, torch.zeros_like(self._settings.size)
        if not near_end:
            enough = min(enough, math.sqrt(self.steepness / self._first_steepness))
            small = 0.2 * self._settings.tolerance * self._settings.size
        direction, self._inner = _newton_direction(self._function, self.here.gradient, self._solve, enough, small)
        self.passes += self._inner
        self._inner_when_new = self._inner if renew else self._inner_when_new
        return direction


def _largest(values: Tensor) -> float:
    return float(values.abs().max())


def _newton_direction(
    function: Convex, gradient: Tensor, precondition: Preconditioner, enough: float, small: Tensor
) -> tuple[Tensor, int]:
    """About ``-H⁻¹ gradient``, by preconditioned conjugate gradients, and how many products with H it took.

    It stops when the residual has fallen to a share that is ``enough``, or to entries that are all ``small``.
    """
    direction, residual = torch.zeros_like(gradient), -gradient
    smoothed = precondition(residual)
    energy = float((residual * smoothed).sum())
    if not energy > 0:  # rounding has made the preconditioner indefinite: go without it
        precondition, smoothed = _as_it_stands, residual
        energy = float(residual.square().sum())
    along = smoothed
    goal = enough * enough * energy
    for inner in range(1, _MAX_INNER + 1):
        bent = function.hessian_product(along)
        curvature = float((along * bent).sum())
        if not curvature > 0:  # rounding hides it: the preconditioner's word is as good as any
            return (direction if inner > 1 else smoothed), inner
        length = energy / curvature
        direction = direction + length * along
        residual = residual - length * bent
        smoothed = precondition(residual)
        energy, before = float((residual * smoothed).sum()), energy
        if not energy > goal or bool((residual.abs() <= small).all()):
            break
        along = smoothed + (energy / before) * along
    return direction, inner


def _as_it_stands(vector: Tensor) -> Tensor:
    return vector


# A step across which the gradient turns tells of no curvature that could be divided by; a cosine, so that the units of
# steps do not matter.
_LEAST_CURVATURE = 1e-10


@final
class CurvatureMemory:
    """The last steps, and how the gradient changed along each.

    A quadratic penalty is kept apart, so that what was learned under one holds under another.

    Args:
        size: Steps remembered.

    Example:
        >>> memory = CurvatureMemory()
        >>> memory.learn(torch.tensor([1.0]), torch.tensor([4.0]))  # f(x) = 2 x²
        >>> memory.direction(torch.tensor([8.0]), ridge=0.0)
        tensor([-2.])
        >>> memory.direction(torch.tensor([8.0]), ridge=4.0)  # f(x) = 2 x² + 2 x²
        tensor([-1.])
    """

    def __init__(self, size: int = 10) -> None:
        self._size = size
        self._steps: list[Tensor] = []
        self._changes: list[Tensor] = []

    def __len__(self) -> int:
        return len(self._steps)

    def learn(self, step: Tensor, change: Tensor) -> None:
        """Remember a step, (p,), and by how much the gradient changed along it, (p,), the penalty's left out."""
        self._steps = [*self._steps, step][-self._size :]
        self._changes = [*self._changes, change][-self._size :]

    def direction(self, gradient: Tensor, *, ridge: float) -> Tensor | None:
        """The step to the minimum of the quadratic that fits what is remembered, (p,); None if nothing fits.

        Args:
            gradient: Gradient of the function with its penalty, (p,).
            ridge: The penalty's curvature, the same in every direction.
        """
        pairs = [
            (step, change + ridge * step, float(step @ change + ridge * (step @ step)))
            for step, change in zip(self._steps, self._changes, strict=True)
        ]
        pairs = [pair for pair in pairs if pair[2] > _LEAST_CURVATURE * float(pair[0].norm() * pair[1].norm())]
        if not pairs:
            return None
        aim, shares = gradient.clone(), []
        for step, change, curvature in reversed(pairs):
            shares.append(float(step @ aim) / curvature)
            aim -= shares[-1] * change
        _, change, curvature = pairs[-1]
        aim *= curvature / float(change @ change)
        for (step, change, curvature), share in zip(pairs, reversed(shares), strict=True):
            aim += step * (share - float(change @ aim) / curvature)
        return -aim

    def state(self) -> dict[str, Tensor]:
        """Everything it knows, for :meth:`restore`."""
        if not self._steps:
            return {}
        return {"steps": torch.stack(self._steps), "changes": torch.stack(self._changes)}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Know what another knew."""
        self._steps = list(state["steps"]) if "steps" in state else []
        self._changes = list(state["changes"]) if "changes" in state else []


# Where steps gain less than this, relative to the function, rounding takes over.
_NO_GAIN = 1e-15
# A gradient this many times the one asked for is still taken for an optimum, where steps gain nothing any more.
_SLACK = 100.0


def quasi_newton(
    function: Callable[[Tensor], tuple[Tensor, Tensor]],
    start: Tensor,
    *,
    least: float | None = None,
    tolerance: float = 1e-7,
    max_steps: int = 1000,
) -> tuple[Tensor, Certificate]:
    """Minimise by L-BFGS-B. The minimum is global where the function is convex, and the nearest one elsewhere.

    Args:
        function: Gives its value, a single number, and its gradient, (p,), both float64, on the device it is asked on.
            One call is one pass over the rows.
        start: Shape (p,), float64.
        least: A bound from below on every number, or None.
        tolerance: Largest entry of the gradient at which the search stops; entries at a bound count only if they
            point inwards.
        max_steps: Steps allowed.

    Raises:
        FitError: If the gradient is still large after ``max_steps``, or the function is not finite.

    Example:
        >>> bowl = lambda x: ((x - 3).square().sum(), 2 * (x - 3))
        >>> point, certificate = quasi_newton(bowl, torch.zeros(2, dtype=torch.float64))
        >>> point.round(decimals=6).tolist(), certificate.gradient < 1e-6
        ([3.0, 3.0], True)
    """

    def asked(point: Any) -> tuple[float, Any]:
        value, gradient = function(torch.from_numpy(point).to(start))
        return float(value), gradient.cpu().numpy()

    found = minimize(
        asked,
        start.cpu().numpy(),
        jac=True,
        method="L-BFGS-B",
        bounds=None if least is None else [(least, None)] * len(start),
        options={"maxiter": max_steps, "maxfun": 10 * max_steps, "maxcor": 20, "gtol": tolerance, "ftol": _NO_GAIN},
    )
    point, gradient = torch.from_numpy(found.x).to(start), torch.from_numpy(found.jac).to(start)
    if least is not None:
        gradient = torch.where(point > least, gradient, gradient.clamp(max=0))
    steepest = float(gradient.abs().max())
    if not steepest <= _SLACK * tolerance:  # also where it is not a number
        raise FitError(
            f"the optimum must have a gradient of at most {_SLACK * tolerance:.0e}; got {steepest:.1e} after "
            f"{found.nit} steps ({found.message}). Regularise more, or look for extreme logits."
        )
    return point, Certificate(float(found.fun), steepest, int(found.nit), float(found.nfev))
