"""The stochastic solver: δ and T by gradient descent on batches, as in the paper and its authors' toolkit.

Kept to reproduce them: at these rates T often stops short of its optimum, so the result depends on the rate, the
batches and the start. The exact solver has none of these.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple, final

import torch
from torch import Tensor, nn

from calibrant.checks import check_at_least, check_known, check_positive, check_real_number
from calibrant.clamping.inputs import InputPreparation
from calibrant.clamping.objective import Objective
from calibrant.clamping.passes import Passes, check_gradient
from calibrant.errors import CalibrantWarning, FitError, SeparableError
from calibrant.inference import CalibrationSamples, device_of, logits_in
from calibrant.numerics.softmax import working

__all__ = ["StochasticSolver", "StochasticState", "descend_stochastically"]

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

    Raises:
        InputError: If a number is out of range.
    """

    learning_rate: float = 0.001
    momentum: float = 0.0
    batch_size: int = 512
    epochs: int = 100
    reduction: Literal["sum", "mean"] = "sum"

    def __post_init__(self) -> None:
        for name, value in (
            ("learning_rate", check_positive(self.learning_rate, "learning_rate")),
            ("momentum", check_real_number(self.momentum, "momentum", least=0, most=_MOST_MOMENTUM)),
            ("batch_size", check_at_least(self.batch_size, 1, "batch_size")),
            ("epochs", check_at_least(self.epochs, 1, "epochs")),
        ):
            object.__setattr__(self, name, value)  # a NumPy number becomes Python's own, which JSON can hold
        check_known(self.reduction, ("sum", "mean"), "reduction")


class StochasticState(NamedTuple):
    """State of the descent after some epochs."""

    delta: Tensor
    temperature: Tensor
    delta_speed: Tensor
    temperature_speed: Tensor
    epochs: int


@torch.enable_grad()  # also for callers who have it off
def descend_stochastically(
    model: nn.Module,
    samples: CalibrationSamples,
    objective: Objective,
    solver: StochasticSolver,
    state: StochasticState,
    *,
    preparation: InputPreparation,
    after_epoch: Callable[[StochasticState], None] = lambda _state: None,
) -> StochasticState:
    """Train δ and T to the last epoch.

    Args:
        model: Frozen, in evaluation mode.
        samples: Shuffled in each epoch by the seed and the epoch; those of an iterable data set come in their own order
            and batches, so that the result is another.
        objective: Its strength is per sample.
        solver: Rate, batches, epochs.
        state: Where to begin.
        preparation: What is done to the inputs, drawn anew in each epoch; its seed also decides the order.
        after_epoch: Called with the state after each epoch.

    Raises:
        InputError: If the network lets no gradient through, or has no finite logits for a sample.
        FitError: If T is no longer above 0, or δ not finite.

    Warns:
        CalibrantWarning: If the samples are those of an iterable data set.
    """
    if samples.are_streamed:
        warnings.warn(
            f"stochastic descent must see its samples in a new order in each epoch, {solver.batch_size} at a time; "
            "these come in an order and in batches of their own, so the result is not that of the same samples in "
            "tensors. Give tensors, or a map-style Dataset.",
            CalibrantWarning,
            stacklevel=2,
        )
    device, first = device_of(model), state.delta
    labels = samples.labels.to(device)
    for epoch in range(state.epochs, solver.epochs):
        generator = preparation.generator(epoch)
        delta, temperature, *speeds = (tensor.detach().clone() for tensor in state[:4])  # callers may keep the state
        delta.requires_grad_(), temperature.requires_grad_()
        order = torch.randperm(len(samples), generator=generator)
        for inputs, places in samples.batches(order, device=device, batch_size=solver.batch_size):
            logits = logits_in(model(preparation.add_delta(preparation.augmented(inputs, generator), delta)))
            check_gradient(logits)
            losses = objective.sample_losses(working(logits) / temperature, labels[places])
            size = len(places) if solver.reduction == "sum" else 1
            changes = torch.autograd.grad(size * losses.mean(), (delta, temperature))
            with torch.no_grad():
                delta_change = changes[0] + size * objective.penalty_gradient(delta)
                for value, speed, change in zip((delta, temperature), speeds, (delta_change, changes[1]), strict=True):
                    speed.mul_(solver.momentum).add_(change)
                    value.sub_(solver.learning_rate * speed)
        state = StochasticState(delta.detach(), temperature.detach(), speeds[0], speeds[1], epoch + 1)
        if not (float(state.temperature) > 0 and bool(state.delta.isfinite().all())):
            _check_samples(Passes(model, samples, preparation=preparation, batch_size=solver.batch_size), first)
            raise FitError(
                f"T must stay above 0 and δ finite; after {state.epochs} epochs at rate {solver.learning_rate:g} and "
                f"λ = {objective.strength:.3g} per sample they are not (T = {float(state.temperature):.3g}). Lower the "
                "rate or λ, or use the exact solver."
            )
        after_epoch(state)
    return state


def _check_samples(passes: Passes, first: Tensor) -> None:
    """Check whether the samples, with the first δ, would make a descent at any rate diverge."""
    logits = passes.logits(first)
    passes.check_finite(logits)
    if bool((logits.argmax(dim=1) == passes.labels).all()):
        raise SeparableError(
            "some predictions must be wrong for T to have an optimum above 0; at the first δ all are right, and the "
            "loss falls until T = 0, at any rate. Give samples that the network was not trained on."
        )
