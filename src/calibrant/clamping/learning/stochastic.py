"""δ and T by stochastic gradient descent on batches, as the paper and its authors' toolkit have it.

Kept to reproduce them: with these rates T often stops short of its optimum, so the result depends on the rate, the
batches and the start. The exact solver has none of these.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple, final

import torch
from torch import Tensor, nn

from calibrant.checks import check_at_least, check_known, check_positive, check_real_number
from calibrant.clamping.learning.objective import Objective
from calibrant.clamping.network.device import device_of
from calibrant.clamping.network.outputs import logits_in
from calibrant.clamping.network.showing import Showing
from calibrant.clamping.rows.calibration_rows import CalibrationRows
from calibrant.errors import FitError
from calibrant.numerics.precision import working

__all__ = ["StochasticSolver", "StochasticState", "descend_stochastically"]

_MOST_MOMENTUM = 0.999


@final
@dataclass(frozen=True)
class StochasticSolver:
    """Plain or momentum SGD from T = 1.

    Args:
        learning_rate: Of δ and T alike.
        momentum: Of the gradient.
        batch_size: Rows a step.
        epochs: Passes over the rows.
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
        check_positive(self.learning_rate, "learning_rate")
        check_real_number(self.momentum, "momentum", least=0, most=_MOST_MOMENTUM)
        check_at_least(self.batch_size, 1, "batch_size")
        check_at_least(self.epochs, 1, "epochs")
        check_known(self.reduction, ("sum", "mean"), "reduction")


class StochasticState(NamedTuple):
    """Where the descent stands after some epochs."""

    delta: Tensor
    temperature: Tensor
    delta_speed: Tensor
    temperature_speed: Tensor
    epochs: int


@torch.enable_grad()  # also for callers who have it off
def descend_stochastically(
    model: nn.Module,
    rows: CalibrationRows,
    objective: Objective,
    solver: StochasticSolver,
    state: StochasticState,
    *,
    showing: Showing,
    after_epoch: Callable[[StochasticState], None] = lambda _state: None,
) -> StochasticState:
    """Train δ and T to the last epoch.

    Args:
        model: Frozen, in evaluation mode.
        rows: Seen in another order in each epoch, drawn from the seed and the epoch.
        objective: Its strength is per row.
        solver: Rate, batches, epochs.
        state: Where to begin.
        showing: What is done to the inputs, drawn anew in each epoch; its seed is that of the order, too.
        after_epoch: Told where it stands.

    Raises:
        FitError: If T is no longer above 0, or δ not finite.
    """
    device = device_of(model)
    labels = rows.labels.to(device)
    for epoch in range(state.epochs, solver.epochs):
        chance = showing.chance(epoch)
        delta, temperature, *speeds = (each.detach().clone() for each in state[:4])  # the state told before stays
        delta.requires_grad_(), temperature.requires_grad_()
        order = torch.randperm(len(rows), generator=chance)
        for inputs, places in rows.batches(order, device=device, batch_size=solver.batch_size):
            logits = logits_in(model(showing.moved(showing.augmented(inputs, chance), delta)))
            losses = objective.row_losses(working(logits) / temperature, labels[places])
            size = len(places) if solver.reduction == "sum" else 1
            changes = torch.autograd.grad(size * losses.mean(), (delta, temperature))
            with torch.no_grad():
                pulled = changes[0] + size * objective.pull(delta)
                for value, speed, change in zip((delta, temperature), speeds, (pulled, changes[1]), strict=True):
                    speed.mul_(solver.momentum).add_(change)
                    value.sub_(solver.learning_rate * speed)
        state = StochasticState(delta.detach(), temperature.detach(), speeds[0], speeds[1], epoch + 1)
        _check(state, solver)
        after_epoch(state)
    return state


def _check(state: StochasticState, solver: StochasticSolver) -> None:
    if not (float(state.temperature) > 0 and bool(state.delta.isfinite().all())):
        raise FitError(
            f"T must stay above 0 and δ finite; after {state.epochs} epochs at rate {solver.learning_rate:g} they are "
            f"not (T = {float(state.temperature):.3g}). Lower the rate, or use the exact solver."
        )
