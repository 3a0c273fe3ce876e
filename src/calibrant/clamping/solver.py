"""The exact solver, quasi-Newton steps in δ with the head solved exactly for every δ; and the paper's stochastic one.

The loss at a δ with the best head for it is a function of δ alone, as in a profile likelihood. The head follows δ, yet
the gradient is computed with a fixed head: where the head minimises the same sum as δ, its own movement changes that
sum only to second order (the envelope theorem). So the loss here includes the head's own penalty, where it has one.

A temperature is taken from the previous δ, as a pass needs one before it knows the logits. It is then solved for this δ
on the logits, which is cheap, so that the loss is exact and only the gradient lags by the temperature's change. A head
of more parameters would mislead the steps; it is solved first, which takes another half pass.

Steps use the curvature learned from earlier ones. A ReLU network has kinks, where the gradient jumps and no smooth
model holds: there the memory is dropped, and the steepest descent tried.

The stochastic solver, gradient descent on batches, is kept to reproduce the paper and its authors' toolkit: at their
rates T often stops short of its optimum, so the result depends on the rate, the batches and the start.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple, final

import torch
from torch import Tensor

from calibrant.checks import AtLeastOne, AtLeastTwo, Positive, check_options, check_real_number
from calibrant.clamping.inputs import Basis, check_gradient
from calibrant.clamping.objective import HeadFit, Objective, own_penalty, temperature_sensitivity
from calibrant.clamping.passes import Passes, Precision
from calibrant.errors import FitError, SeparableError, warn, without_our_warnings
from calibrant.inference import extract_logits
from calibrant.maps import Map, Scale
from calibrant.numerics.newton import Certificate, CurvatureMemory
from calibrant.numerics.softmax import to_working_precision

__all__ = ["ExactSolver", "StochasticSolver"]

# The first step, before any curvature is known, aims to lower the objective by this fraction.
_FIRST_GAIN = 0.2
# Armijo's condition: a step must bring this fraction of the decrease that the gradient predicts, or it is shortened.
_ARMIJO = 1e-4
# Largest and smallest factor by which a step is shortened; the shortest step with known curvature, and without.
_BACKTRACK_MAX, _BACKTRACK_MIN = 0.5, 0.1
_SHORTEST, _SHORTEST_BLIND = 1e-2, 1e-8
# A temperature this near the best one, in its logarithm, gives the same gradient.
_LAG = 1e-6
# A predicted decrease below this fraction of the objective is lost in rounding, unless a tolerance below 1e-3 asks for
# more, as for networks in float64: then below this fraction of the tolerance.
_NEGLIGIBLE, _NEGLIGIBLE_OF_TOLERANCE = 1e-7, 1e-4
_TINY = 1e-300


@final
@dataclass(frozen=True)
class ExactSolver:
    """Quasi-Newton steps in δ over all samples, the head solved exactly for every δ, until the gradient is small.

    Args:
        tolerance: Largest decrease that the next step predicts at the end, relative to the total decrease so far.
        max_passes: Largest number of passes over the samples for one strength; a fit that needs more warns.
        precision: Type of matrix products on a GPU while δ is learned: ``float32``; ``tensor-float32`` or
            ``bfloat16``, faster and coarser. The final head is fitted to float32 logits.
    """

    tolerance: Positive = 1e-3
    max_passes: AtLeastTwo = 100
    precision: Precision = "float32"

    def __post_init__(self) -> None:
        check_options(self)


class DescentResult(NamedTuple):
    """Where a descent ended."""

    certificate: Certificate  # of the mean loss and both penalties; the gradient in δ, with the head following
    predicted_decrease: float  # by the next step, to first order
    end: Literal["near", "stuck", "out of passes"]  # stuck: at a kink of the network, where no step leads down


@final
class Descent:
    """Descends from δ = ``start``; the penalty may change on the way, as along a path from strong to weak.

    ``known`` is the curvature of nearly the same function, learned by another descent.
    """

    def __init__(
        self, passes: Passes, basis: Basis, head: HeadFit, start: Tensor, *, known: CurvatureMemory | None = None
    ) -> None:
        self.profiled = ProfileLoss(passes, basis, head, start.dtype)
        self.memory = known or CurvatureMemory()  # curvature learned so far
        self.initial_gradient_norm = 0.0  # norm of the loss's gradient at the start
        self._strength = self._initial_value = math.nan  # of the current descent: its strength, its first objective
        self._point: ProfilePoint | None = None
        self._start = basis.transpose(start.double()).flatten()

    @property
    def passes_taken(self) -> float:
        return self.profiled.passes_taken

    @property
    def coefficients(self) -> Tensor:
        """Coefficients of the current δ, (p,)."""
        return self._start if self._point is None else self._point.coefficients

    @property
    def delta(self) -> Tensor:
        """Current δ, of an input's shape and the start's type."""
        return self.profiled.to_delta(self.coefficients)

    @property
    def point(self) -> "ProfilePoint":
        """The current point: the best head for the current δ, and the loss there."""
        assert self._point is not None, "begin first"
        return self._point

    def begin(self, objective: Objective, *, logits: Tensor | None = None) -> None:
        """Evaluate the start: its best head, and the gradient there; logits of a pass without gradient may be known."""
        if self._point is not None:
            return
        point = self.profiled.evaluate(self._start, None, objective, logits=logits)
        if math.isinf(point.loss):
            raise FitError("logits must be finite at the first δ; some are not. Give another start, or full precision.")
        self._point, self.initial_gradient_norm = point, self.initial_gradient_norm or float(point.gradient.norm())

    def minimise(
        self, objective: Objective, solver: ExactSolver, *, after_step: Callable[[], None] = lambda: None
    ) -> DescentResult:
        """Descend to the minimum, or to a kink of the network from which no step leads further down."""
        self.begin(objective)
        before, steps = self.passes_taken, 0
        if self._strength != objective.strength:  # not a resumed descent
            self._strength, self._initial_value = objective.strength, self.point.value(objective)
        highest, negligible = self._initial_value, min(_NEGLIGIBLE, _NEGLIGIBLE_OF_TOLERANCE * solver.tolerance)
        while True:
            point = self.point
            gradient = point.gradient + objective.penalty_gradient(point.coefficients)
            ridge = objective.penalty_curvature(point.coefficients)
            direction = self.memory.direction(gradient, ridge=ridge)
            if direction is None:
                steepest = _FIRST_GAIN * point.value(objective) / max(float(gradient @ gradient), _TINY)
                direction = -gradient * min(steepest, 1 / ridge if ridge else math.inf)
            predicted_decrease = -0.5 * float(gradient @ direction)
            # A pass is reserved for the gradient at the best temperature, where the last one is of another temperature.
            left = int(solver.max_passes - (self.passes_taken - before)) - (point.temperature_lag > _LAG)
            is_near = predicted_decrease <= solver.tolerance * (highest - point.value(objective)) + negligible * highest
            can_step = not is_near and left > 0
            trial = self._step(point, direction, gradient, objective, left) if can_step else None
            if trial is not None:
                self.memory.learn(trial.coefficients - point.coefficients, trial.gradient - point.gradient)
                self._point, steps = trial, steps + 1
                after_step()
            elif point.temperature_lag > _LAG:
                # This gradient was that of another temperature: no step along it need lead down.
                self._point = self.profiled.evaluate(point.coefficients, point.head, objective)
            elif can_step and len(self.memory):
                # Curvature learned on the other side of a kink does not hold on this one.
                self.memory = CurvatureMemory()
            else:
                break
        passes, steepest = self.passes_taken - before, float(gradient.abs().max())
        certificate = Certificate(point.value(objective), steepest, steps, passes)
        return DescentResult(
            certificate, predicted_decrease, "near" if is_near else "stuck" if left > 0 else "out of passes"
        )

    def state(self) -> dict[str, Tensor]:
        """Return what is needed to resume from here."""
        point, tensors = self._point, {"coefficients": self.coefficients, **self.memory.state()}
        numbers: dict[str, Any] = {"steepness": self.initial_gradient_norm, "passes": self.passes_taken}
        numbers["begun_at"] = (self._strength, self._initial_value)
        if point is not None and isinstance(point.head, Scale):
            # Without them the gradient would be recomputed, and not lag: another path to the same optimum.
            tensors |= {"gradient": point.gradient, "temperature": point.head.temperature}
            numbers |= {"loss": point.loss, "lag": point.temperature_lag, "n_classes": point.head.n_classes}
        return tensors | {name: torch.tensor(number, dtype=torch.float64) for name, number in numbers.items()}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Resume from a state; with another head than a temperature, its last point is evaluated again."""
        state = {name: tensor.to(self._start.device) for name, tensor in state.items()}
        self._start, self._point = state["coefficients"], None
        if "gradient" in state:
            head = Scale(state["temperature"], n_classes=int(state["n_classes"]))
            loss, lag = float(state["loss"]), float(state["lag"])
            self._point = ProfilePoint(self._start, head, loss, state["gradient"], lag)
        self.memory.restore(state)
        self.initial_gradient_norm, self.profiled.passes_taken = float(state["steepness"]), float(state["passes"])
        self._strength, self._initial_value = state["begun_at"].tolist()

    def _step(
        self, point: "ProfilePoint", direction: Tensor, gradient: Tensor, objective: Objective, left: int
    ) -> "ProfilePoint | None":
        """Return a lower point, or None if the line search ends without one."""
        value, slope, length = point.value(objective), float(gradient @ direction), 1.0
        shortest = _SHORTEST if len(self.memory) else _SHORTEST_BLIND
        for _ in range(left):
            trial = self.profiled.evaluate(point.coefficients + length * direction, point.head, objective)
            excess = trial.value(objective) - value - length * slope
            if excess <= (_ARMIJO - 1) * length * slope:
                return trial
            # The minimum of the parabola through both values and the slope.
            length *= min(max(-0.5 * length * slope / excess, _BACKTRACK_MIN), _BACKTRACK_MAX)
            if length < shortest:
                break
        return None


class ProfilePoint(NamedTuple):
    """The loss at one δ with the best head."""

    coefficients: Tensor  # (p,), float64
    head: Map
    loss: float  # mean over samples plus the head's own penalty; infinite where logits are not finite
    gradient: Tensor  # gradient of the loss, (p,), float64
    temperature_lag: float = 0.0  # |log T - log T'|: T of the head, T' at which the gradient was computed

    def value(self, objective: Objective) -> float:
        return self.loss + objective.penalty_of(self.coefficients)


@final
class ProfileLoss:
    """Evaluates the loss as a function of δ, of type ``dtype``, with the best head for it; counts the passes."""

    def __init__(self, passes: Passes, basis: Basis, head: HeadFit, dtype: torch.dtype) -> None:
        self._passes, self._basis, self._head_fit, self._dtype = passes, basis, head, dtype
        self.passes_taken = 0.0

    def evaluate(
        self, coefficients: Tensor, head: Map | None, objective: Objective, *, logits: Tensor | None = None
    ) -> ProfilePoint:
        """Evaluate the loss at a δ, given by its coefficients (p,).

        ``head`` is the best head of a δ nearby; None for the first δ, where logits that are not finite are an error.
        ``logits`` are those that the pass for the first head would give, if they are known.
        """
        passes, is_temperature, delta = self._passes, self._head_fit.is_temperature, self.to_delta(coefficients)
        labels, lag, penalty, following = passes.view_labels, 0.0, 0.0, None
        if head is None or not is_temperature:
            if logits is None:
                logits = passes.logits(delta) if is_temperature else passes.view_logits(delta)
                self.passes_taken += 0.5
            if head is None:
                passes.check_finite(logits)
            elif not bool(logits.isfinite().all()):
                return _infinite_point(coefficients, head)
            head = self._fitted(logits, passes.labels if is_temperature else labels, coefficients)
            if not is_temperature:
                penalty = own_penalty(head, logits, labels)
                following = temperature_sensitivity(head, logits, labels, objective)
        logits, gradient = passes.logits_and_gradient(delta, head, objective, following=following)
        self.passes_taken += 1
        if not bool(logits.isfinite().all()):
            return _infinite_point(coefficients, head)
        if is_temperature:
            last, head = head, self._fitted(logits, labels, coefficients, last=head)
            if isinstance(last, Scale) and isinstance(head, Scale):
                lag = abs(math.log(float(head.temperature) / float(last.temperature)))
        loss = objective.mean_loss(head, logits, labels) + penalty
        return ProfilePoint(coefficients, head, loss, self._basis.transpose(gradient).flatten(), lag)

    def plain_head(self, coefficients: Tensor) -> Map:
        """Return the best head without augmentation and in full precision."""
        logits = self._passes.full_precision_logits(self.to_delta(coefficients))
        return self._fitted(logits, self._passes.labels, coefficients)

    def to_delta(self, coefficients: Tensor) -> Tensor:
        return self._basis.to_delta(coefficients.reshape(self._basis.shape)).to(self._dtype)

    def _fitted(self, logits: Tensor, labels: Tensor, coefficients: Tensor, *, last: Map | None = None) -> Map:
        # Silent for intermediate heads; the final one is fitted again, and may warn.
        with without_our_warnings():
            return self._head_fit.fit(logits, labels, last=last, with_delta=bool(coefficients.any()))


def _infinite_point(coefficients: Tensor, head: Map) -> ProfilePoint:
    """Return a point of infinite loss, where logits are not finite; no step ends there."""
    return ProfilePoint(coefficients, head, math.inf, torch.full_like(coefficients, math.nan))


_MOST_MOMENTUM = 0.999


@final
@dataclass(frozen=True)
class StochasticSolver:
    """SGD from T = 1, plain or with momentum.

    Args:
        learning_rate: Learning rate of δ and T.
        momentum: Momentum of the gradient.
        batch_size: Samples per step.
        epochs: Number of passes over the samples.
        reduction: ``sum`` adds up a batch's losses, as eq. 9 does, and gives each batch its share of the penalty;
            ``mean`` averages them, as the toolkit does, and gives each batch the whole penalty.
    """

    learning_rate: Positive = 0.001
    momentum: Annotated[float, partial(check_real_number, least=0, most=_MOST_MOMENTUM)] = 0.0
    batch_size: AtLeastOne = 512
    epochs: AtLeastOne = 100
    reduction: Literal["sum", "mean"] = "sum"

    def __post_init__(self) -> None:
        check_options(self)


class StochasticState(NamedTuple):
    """State of the descent after some epochs."""

    delta: Tensor
    temperature: Tensor
    delta_momentum: Tensor
    temperature_momentum: Tensor
    epochs: int


@torch.enable_grad()  # also for callers who have it off
def descend_stochastically(
    passes: Passes,
    objective: Objective,
    solver: StochasticSolver,
    state: StochasticState,
    *,
    after_epoch: Callable[[StochasticState], None] = lambda _state: None,
) -> StochasticState:
    """Train δ and T from a state to the last epoch, on samples shuffled by the preparation's seed and the epoch.

    Samples of an iterable data set come in an order and batches of their own, which raises a warning.
    """
    model, samples, preparation = passes.model, passes.samples, passes.preparation
    if samples.is_stream:
        warn(
            f"stochastic descent must see its samples in a new order in each epoch, {solver.batch_size} at a time; "
            "these come in an order and in batches of their own, so the result is not that of the same samples in "
            "tensors. Give tensors, or a map-style Dataset."
        )
    first = state.delta
    for epoch in range(state.epochs, solver.epochs):
        generator = preparation.generator(epoch)
        delta, temperature, *momenta = (tensor.detach().clone() for tensor in state[:4])  # callers may keep the state
        delta.requires_grad_(), temperature.requires_grad_()
        order = torch.randperm(len(samples), generator=generator)
        for inputs, places in samples.batches(order, device=passes.device, batch_size=solver.batch_size):
            size, own = len(places) if solver.reduction == "sum" else 1, passes.processes.share_of(len(places))
            changes: tuple[Tensor, ...] = (torch.zeros_like(delta), torch.zeros_like(temperature))
            preparation.skip(own.start, generator)
            if n_own := own.stop - own.start:
                augmented = preparation.augmented(inputs[own], generator)
                logits = extract_logits(model(preparation.add_delta(augmented, delta)))
                check_gradient(logits.requires_grad)
                labels = passes.labels[places[own]]
                losses = objective.sample_losses(to_working_precision(logits) / temperature, labels)
                loss = size * n_own / len(places) * losses.mean()
                changes = torch.autograd.grad(loss, (delta, temperature), allow_unused=True)
                check_gradient(changes[0] is not None)
            preparation.skip(len(places) - own.stop, generator)
            passes.processes.sum_(*changes)
            with torch.no_grad():
                delta_change = changes[0] + size * objective.penalty_gradient(delta)
                moved = zip((delta, temperature), momenta, (delta_change, changes[1]), strict=True)
                for value, momentum, change in moved:
                    momentum.mul_(solver.momentum).add_(change)
                    value.sub_(solver.learning_rate * momentum)
        state = StochasticState(delta.detach(), temperature.detach(), momenta[0], momenta[1], epoch + 1)
        if not (float(state.temperature) > 0 and bool(state.delta.isfinite().all())):
            logits = passes.logits(first)  # samples with which a descent at any rate would diverge?
            passes.check_finite(logits)
            if bool((logits.argmax(dim=1) == passes.labels).all()):
                raise SeparableError(
                    "some predictions must be wrong for T to have an optimum above 0; at the first δ all are right, "
                    "and the loss falls until T = 0, at any rate. Give samples that the network was not trained on."
                )
            raise FitError(
                f"T must stay above 0 and δ finite; after {state.epochs} epochs at rate {solver.learning_rate:g} and "
                f"λ = {objective.strength:.3g} per sample they are not (T = {float(state.temperature):.3g}). Lower the "
                "rate or λ, or use the exact solver."
            )
        after_epoch(state)
    return state
