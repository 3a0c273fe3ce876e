"""Minimisers with a certificate of the gradient reached: truncated Newton, and limited-memory quasi-Newton."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, final

import torch
from torch import Tensor

from calibrant.errors import FitError


class Certificate(NamedTuple):
    """How well a minimiser has converged."""

    objective: float  # a mean over the samples, penalties included
    gradient: float  # largest absolute entry, or a bound on it after a last step that was not evaluated
    steps: int
    passes: float  # how often all samples were read; a subsample counts for its share


Preconditioner: TypeAlias = Callable[[Tensor], Tensor]

_MAX_INNER, _MANY_INNER = 500, 20  # inner steps at most, and beyond which a better preconditioner pays
_SHORTEST = 1e-9  # shortest step tried, relative to Newton's
_COARSE_FALL = 1e-4  # predicted decrease (half the squared Newton decrement) below which double precision is needed
_COARSE_NOISE, _NOISE = 1e-6, 1e-13  # rounding in a comparison of two values, in single and in double precision
# Largest move of a parameter in the last step of a converged fit; the move, repeated so many times while the gradient
# is negligible, of a diverging one; and steps allowed after the gradient is small enough.
_STILL, _FAR, _FAR_TIMES, _PATIENCE = 1e-3, 0.1, 3, 5


class Point(NamedTuple):
    """Value and gradient of a function at some parameters."""

    value: float
    gradient: Tensor
    separable: bool = False  # larger multiples of these parameters always have a lower value


class Convex(Protocol):
    """A function to minimise, exact in double precision, or else in single. Curvature is that of the last point."""

    def value_and_gradient(self, theta: Tensor, *, exact: bool) -> Point: ...

    def hessian_product(self, direction: Tensor) -> Tensor: ...

    def preconditioner(self, *, strong: bool) -> Preconditioner:
        """Return an approximate inverse of the Hessian: a cheap one, or a strong one that costs more to build."""


End: TypeAlias = Literal["converged", "separable", "diverging", "stalled"]


class Minimum(NamedTuple):
    """Parameters at which the minimiser stopped, and why."""

    theta: Tensor
    certificate: Certificate
    end: End


@final
@dataclass(frozen=True, kw_only=True)
class Settings:
    """Options of the minimiser."""

    size: Tensor  # by how much a unit of each parameter changes a logit: the unit of gradients
    tolerance: float  # largest entry of the gradient at the end
    negligible: float = 0.0  # gradient so small that parameters which still move far are diverging
    # Relative residual at which the conjugate gradients of the first steps stop: larger where a Hessian product costs
    # much beside an evaluation.
    loose: float = 0.3
    steps: int = 100  # at most
    coarse: bool = False  # single precision is enough at the end


def minimise(function: Convex, start: Tensor, settings: Settings) -> Minimum:
    """Minimise a smooth convex function; directions in which it does not change are left alone.

    The end is ``converged``; ``separable`` if the function decreases along a ray; ``diverging`` if the gradient
    vanished while some parameters kept growing, possibly along such a ray; ``stalled`` otherwise.
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
        self._arrive(self._evaluate(start), math.inf)
        self._first_steepness = self.steepness

    def verdict(self) -> End | None:
        """Return the reason to stop; None to continue."""
        if self.here.separable:
            return "separable"
        # A diverging parameter moves by as much in every step, while the gradient shrinks.
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
        """Take a step, or switch to double precision; False if neither helps any more."""
        direction = self._direction()
        slope = float((self.here.gradient * direction).sum())
        value = self.here.value
        if not (self._exact or self._settings.coarse) and -slope / 2 < _COARSE_FALL:
            self._exact, value = True, value + _COARSE_NOISE
        slack, length = _NOISE * max(1.0, abs(value)) if self._exact else _COARSE_NOISE, 1.0
        while length > _SHORTEST:
            there = self._evaluate(self.theta + length * direction)
            if there.value <= value + 1e-4 * length * slope + slack:
                self.theta = self.theta + length * direction
                self._arrive(there, length * _largest(direction * self._settings.size))
                return True
            length /= 2
        if self._exact:
            return False
        self._exact, self._solve = True, None
        self._arrive(self._evaluate(self.theta), math.inf)
        return True

    def _evaluate(self, theta: Tensor) -> Point:
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
        direction, self._inner = newton_direction(self._function, self.here.gradient, self._solve, enough, small)
        self.passes += self._inner
        self._inner_when_new = self._inner if renew else self._inner_when_new
        return direction


def _largest(values: Tensor) -> float:
    return float(values.abs().max())


def newton_direction(
    function: Convex, gradient: Tensor, precondition: Preconditioner, enough: float, small: Tensor
) -> tuple[Tensor, int]:
    """Approximate ``-H⁻¹ gradient`` by preconditioned conjugate gradients; also return the number of Hessian products.

    It stops when the residual has fallen to the share ``enough``, or when its entries are all ``small``.
    """
    direction, residual = torch.zeros_like(gradient), -gradient
    smoothed = precondition(residual)
    energy = float((residual * smoothed).sum())
    if not energy > 0:  # rounding has made the preconditioner indefinite: go without it
        precondition, smoothed = (lambda vector: vector), residual
        energy = float(residual.square().sum())
    along = smoothed
    goal = enough * enough * energy
    for inner in range(1, _MAX_INNER + 1):
        product = function.hessian_product(along)
        curvature = float((along * product).sum())
        if not curvature > 0:  # hidden by rounding: fall back on the preconditioner
            return (direction if inner > 1 else smoothed), inner
        length = energy / curvature
        direction = direction + length * along
        residual = residual - length * product
        smoothed = precondition(residual)
        energy, before = float((residual * smoothed).sum()), energy
        if not energy > goal or bool((residual.abs() <= small).all()):
            break
        along = smoothed + (energy / before) * along
    return direction, inner


_LEAST_CURVATURE = 1e-10  # cosine between a step and its change of gradient below which the pair is not used


@final
class CurvatureMemory:
    """The memory of L-BFGS: the last steps, and how the gradient changed along each.

    A quadratic penalty is kept separate, so that what was learned under one holds under another.

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
        """Add a step, (p,), and the change of the gradient along it, (p,), without the penalty's."""
        self._steps = [*self._steps, step][-self._size :]
        self._changes = [*self._changes, change][-self._size :]

    def direction(self, gradient: Tensor, *, ridge: float, solve: Preconditioner | None = None) -> Tensor | None:
        """Return the step to the minimum of the quadratic that fits the memory, (p,); None if nothing fits.

        ``gradient`` includes the penalty's, (p,); ``ridge`` is the penalty's curvature in every direction. ``solve`` is
        the inverse of the curvature known without the memory, if any is.
        """
        pairs = [
            (step, change + ridge * step, float(step @ change + ridge * (step @ step)))
            for step, change in zip(self._steps, self._changes, strict=True)
        ]
        pairs = [pair for pair in pairs if pair[2] > _LEAST_CURVATURE * float(pair[0].norm() * pair[1].norm())]
        if not pairs:
            return None if solve is None else -solve(gradient)
        q, alphas = gradient.clone(), []  # the two-loop recursion, Nocedal & Wright (2006), algorithm 7.4
        for step, change, curvature in reversed(pairs):
            alphas.append(float(step @ q) / curvature)
            q -= alphas[-1] * change
        _, change, curvature = pairs[-1]
        q = q * (curvature / float(change @ change)) if solve is None else solve(q)
        for (step, change, curvature), alpha in zip(pairs, reversed(alphas), strict=True):
            q += step * (alpha - float(change @ q) / curvature)
        return -q

    def state(self) -> dict[str, Tensor]:
        """Return all steps and changes, for :meth:`restore`."""
        if not self._steps:
            return {}
        return {"steps": torch.stack(self._steps), "changes": torch.stack(self._changes)}

    def restore(self, state: dict[str, Tensor]) -> None:
        self._steps, self._changes = list(state.get("steps", ())), list(state.get("changes", ()))


_NO_GAIN = 1e-15  # relative gain of a step below which rounding takes over
_MAX_STEPS = 1000
_SLACK = 100.0  # multiple of the tolerance that is accepted where steps gain nothing any more


def quasi_newton(
    function: Callable[[Tensor], tuple[Tensor, Tensor]],
    start: Tensor,
    *,
    least: float | None = None,
    tolerance: float = 1e-7,
) -> tuple[Tensor, Certificate]:
    """Minimise by L-BFGS-B: globally where the function is convex, else to the nearest minimum.

    The function returns its value and its gradient, (p,), both float64; one call is one pass. ``least`` bounds every
    parameter from below. The largest entry of the gradient ends below ``tolerance``, or a :class:`FitError` is raised;
    entries at a bound count only if they point inwards.

    Example:
        >>> bowl = lambda x: ((x - 3).square().sum(), 2 * (x - 3))
        >>> point, certificate = quasi_newton(bowl, torch.zeros(2, dtype=torch.float64))
        >>> point.round(decimals=6).tolist(), certificate.gradient < 1e-6
        ([3.0, 3.0], True)
    """
    from scipy.optimize import minimize  # as slow to import as a third of torch, and few fits need it

    def evaluate(point: Any) -> tuple[float, Any]:
        value, gradient = function(torch.from_numpy(point).to(start))
        return float(value), gradient.cpu().numpy()

    best = minimize(
        evaluate,
        start.cpu().numpy(),
        jac=True,
        method="L-BFGS-B",
        bounds=None if least is None else [(least, None)] * len(start),
        options={"maxiter": _MAX_STEPS, "maxfun": 10 * _MAX_STEPS, "maxcor": 20, "gtol": tolerance, "ftol": _NO_GAIN},
    )
    point, gradient = torch.from_numpy(best.x).to(start), torch.from_numpy(best.jac).to(start)
    if least is not None:
        gradient = torch.where(point > least, gradient, gradient.clamp(max=0))
    steepest = float(gradient.abs().max())
    if not steepest <= _SLACK * tolerance:  # also where it is not a number
        raise FitError(
            f"the optimum must have a gradient of at most {_SLACK * tolerance:.0e}; got {steepest:.1e} after "
            f"{best.nit} steps ({best.message}). Regularise more, or look for extreme logits."
        )
    return point, Certificate(float(best.fun), steepest, int(best.nit), float(best.nfev))


_DAMPING, _MOST_DAMPING, _FACTOR = 1e-2, 1e4, 4.0  # relative to the largest curvature: at first, at most; its changes
_SLOW_STEPS = 2  # in a row, after which only steep directions are left to improve
_NEWTON_STEPS = 60
_TILTS = 8


def newton_by_part(
    whole: Callable[[Tensor], tuple[Tensor, Tensor]],
    part: Callable[[Tensor], tuple[Tensor, Tensor]],
    curvature: Callable[[Tensor], Tensor],
    start: Tensor,
    *,
    share: float,
    tolerance: float,
    gain: float,
) -> tuple[Tensor, Certificate]:
    """Minimise a mean over many samples by Levenberg-Marquardt steps whose curvature is that of a part of them.

    The gradient is always that of all samples, so the part decides how fast a minimum is reached and not which. A step
    is tried on the part first, whose loss is tilted by what its gradient lacks: a pass over all samples is spent on a
    step that helps. Once two steps in a row gain less than ``gain``, the next ones are short in flat directions, as
    long as they at least halve the gradient, until its largest entry is at most ``tolerance``. A search that ends
    otherwise returns its best point, with the gradient there.

    Args:
        whole: Returns value and gradient, (p,), of all samples; one call is one pass.
        part: Returns the same of a part of them, drawn at random.
        curvature: Returns a positive definite approximation of the part's Hessian, (p, p).
        start: Initial parameters, (p,), float64.
        share: Share of the samples in the part.
        tolerance: Largest entry of the gradient at the end.
        gain: Least decrease of the value that is worth a pass.

    Example:
        >>> bowl = lambda x: ((x - 3).square().sum(), 2 * (x - 3))
        >>> start, bent = torch.zeros(2, dtype=torch.float64), lambda x: torch.eye(2, dtype=torch.float64)
        >>> newton_by_part(bowl, bowl, bent, start, share=1, tolerance=1e-6, gain=1e-6)[0].round(decimals=4).tolist()
        [3.0, 3.0]
    """
    point, damping, slow, steps = start, _DAMPING, 0, 0
    (value, gradient), passes = whole(point), 1.0
    while steps < _NEWTON_STEPS and damping < _MOST_DAMPING:
        if slow >= _SLOW_STEPS:
            if _largest(gradient) <= tolerance:
                break
            damping = max(damping, _DAMPING)
        bent, (own, slope) = curvature(point), part(point)
        unit = torch.full_like(point, float(bent.diagonal().max()))
        passes += 2 * share
        while damping < _MOST_DAMPING:
            factor = torch.linalg.cholesky(bent + torch.diag(damping * unit))
            step = -torch.cholesky_solve(gradient[:, None], factor)[:, 0]
            expected = -float(gradient @ step + step @ bent @ step / 2)
            fall = float(own - part(point + step)[0] - (gradient - slope) @ step)
            passes += share
            if fall >= expected / 4:
                break
            damping *= _FACTOR
        there, steepness = whole(point + step)
        passes, steps = passes + 1, steps + 1
        if not there <= value + _COARSE_NOISE:
            damping *= _FACTOR**2
            continue
        slow = slow + 1 if value - there < gain else 0
        if slow > _SLOW_STEPS and _largest(steepness) > _largest(gradient) / 2:
            slow, damping = 0, damping / _FACTOR**2  # the gradient is that of flat directions: continue along these
        point, value, gradient = point + step, there, steepness
        damping = damping / _FACTOR if fall > 0.75 * expected else damping
    return point, Certificate(float(value), _largest(gradient), steps, passes)


def quasi_newton_by_part(
    whole: Callable[[Tensor], tuple[Tensor, Tensor]],
    part: Callable[[Tensor], tuple[Tensor, Tensor]],
    start: Tensor,
    *,
    share: float,
    least: float,
    tolerance: float = 1e-7,
) -> tuple[Tensor, Certificate]:
    """Minimise a convex mean over many samples, as :func:`quasi_newton` does, in few passes.

    The mean over a part of the samples (a ``share`` of them) is minimised in place of that over all, tilted so that
    both have one gradient at the point reached, from where it is tilted anew. The last word has the search on all.

    Reference: Shamir, Srebro & Zhang (2014), Communication-Efficient Distributed Optimization using an Approximate
    Newton-type Method, ICML.

    Example:
        >>> bowl = lambda x: ((x - 3).square().sum(), 2 * (x - 3))
        >>> point, _ = quasi_newton_by_part(bowl, bowl, torch.zeros(2, dtype=torch.float64), share=1, least=0.0)
        >>> point.round(decimals=6).tolist()
        [3.0, 3.0]
    """
    point, passes, steps = start, 0.0, 0
    for _ in range(_TILTS):
        gradient, own = whole(point)[1], part(point)[1]
        passes += 1 + share
        if _largest(torch.where(point > least, gradient, gradient.clamp(max=0))) <= tolerance:
            break
        tilt = gradient - own

        def tilted(at: Tensor, tilt: Tensor = tilt) -> tuple[Tensor, Tensor]:
            value, slope = part(at)
            return value + tilt @ at, slope + tilt

        point, of_part = quasi_newton(tilted, point, least=least, tolerance=tolerance)
        passes, steps = passes + share * of_part.passes, steps + 1
    point, certificate = quasi_newton(whole, point, least=least, tolerance=tolerance)
    return point, certificate._replace(steps=steps + certificate.steps, passes=passes + certificate.passes)
