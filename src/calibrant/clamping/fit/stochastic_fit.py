"""δ and T at one strength by stochastic descent, as the paper has it, and how far from the optimum that ends."""

import warnings

import torch
from torch import Tensor

from calibrant.clamping.fit.fit_run import FitRun
from calibrant.clamping.fit.found import Found
from calibrant.clamping.fit.task import ClampingTask
from calibrant.clamping.learning.stochastic import StochasticSolver, StochasticState, descend_stochastically
from calibrant.errors import CalibrantWarning, Caveat, SeparableError, without_our_warnings
from calibrant.maps import Scale
from calibrant.numerics.certificate import Certificate

__all__ = ["fit_stochastically"]


def fit_stochastically(run: FitRun, gamma: float, strength: float, start: Tensor, entry: str) -> Found:
    """Train for all epochs, from where a killed fit stood if there was one.

    The certificate's gradient is that in δ behind the T that was reached, which need not be the best one.

    Args:
        run: The fit that this is a part of.
        gamma: Of the focal loss.
        strength: Per row.
        start: The first δ.
        entry: Its name in the journal.

    Raises:
        FitError: If it diverges.

    Warns:
        CalibrantWarning: If the objective has risen.
    """
    task, solver = run.task, run.method.solver
    assert isinstance(solver, StochasticSolver)
    objective, passes = run.objective(gamma, strength), task.passes()
    before = float(objective.sample_losses(passes.logits(start), passes.labels).double().mean())
    before += objective.penalty_of(start)

    def after_epoch(now: StochasticState) -> None:
        run.journal.note(entry, _as_tensors(now))
        run.progress(f"learning δ and T at λ = {strength:.3g} a row, γ = {gamma:g}", now.epochs)

    state = descend_stochastically(
        task.model,
        task.rows,
        objective,
        solver,
        _resumed(run.journal.recall(entry), start),
        preparation=task.preparation,
        after_epoch=after_epoch,
    )
    run.journal.note(entry, _as_tensors(state), final=True)
    head = Scale(state.temperature.double(), n_classes=task.n_classes)
    slope = passes.slope(state.delta, head, objective)
    with torch.no_grad():
        loss = float(objective.sample_losses(head(slope.logits).double(), passes.seen_labels).mean())
    gradient = slope.gradient + objective.pull(state.delta.double())
    certificate = Certificate(
        loss + objective.penalty_of(state.delta), float(gradient.abs().max()), solver.epochs, solver.epochs + 1.0
    )
    if not (certificate.objective <= before or passes.augments):
        warnings.warn(
            CalibrantWarning(
                f"the objective rose from {before:.4g} to {certificate.objective:.4g} a row, so the rate "
                f"{solver.learning_rate:g} is too high for λ = {strength:.3g} a row. Lower either, or use the exact "
                "solver.",
                caveat=Caveat.objective_rose,
            ),
            stacklevel=2,
        )
    return Found(state.delta, head, strength, gamma, certificate).noted(_optimum_beside(task, state, gamma))


def _optimum_beside(task: ClampingTask, state: StochasticState, gamma: float) -> str:
    """The temperature reached, beside the one that would be best at this δ."""
    reached = f"T = {float(state.temperature):.4f} after {state.epochs} epochs; the objective's optimum at this δ is"
    try:
        with without_our_warnings():  # of a head that is not used
            best = task.best_head(state.delta, gamma)
    except SeparableError:
        return f"{reached} T = 0: every row is right there."
    assert isinstance(best, Scale)
    return f"{reached} T = {float(best.temperature):.4f}."


def _resumed(known: dict[str, Tensor] | None, start: Tensor) -> StochasticState:
    if known is None:
        one = torch.ones((), dtype=start.dtype, device=start.device)
        return StochasticState(start, one, torch.zeros_like(start), torch.zeros_like(one), 0)
    values = {name: known[name].to(start.device) for name in StochasticState._fields[:4]}
    return StochasticState(**values, epochs=int(known["epochs"]))


def _as_tensors(state: StochasticState) -> dict[str, Tensor]:
    return state._asdict() | {"epochs": torch.tensor(state.epochs)}
