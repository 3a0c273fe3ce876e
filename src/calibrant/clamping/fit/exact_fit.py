"""δ at one strength by the exact solver, to its optimum."""

import warnings
from dataclasses import replace

from torch import Tensor

from calibrant.clamping.fit.fit_run import FitRun
from calibrant.clamping.fit.found import Found
from calibrant.clamping.fit.journal import Journal
from calibrant.clamping.learning.descent import ExactSolver
from calibrant.errors import CalibrantWarning, Caveat
from calibrant.numerics.curvature_memory import CurvatureMemory

__all__ = ["fit_exactly"]


def fit_exactly(
    run: FitRun, gamma: float, strength: float, start: Tensor, entry: str, *, known: CurvatureMemory | None = None
) -> Found:
    """Go down to the optimum, from where a killed fit stood if there was one.

    Args:
        run: The fit that this is a part of.
        gamma: Of the focal loss.
        strength: Per row.
        start: The first δ.
        entry: Its name in the journal.
        known: The curvature of about the same function.

    Raises:
        FitError: If the head has no optimum on the way, as where δ makes every row right.

    Warns:
        CalibrantWarning: If the passes did not suffice.
    """
    solver, task = run.method.solver, run.task
    assert isinstance(solver, ExactSolver)
    objective, descent = run.objective(gamma, strength), task.descent(gamma, start=start, known=known)
    if (noted := run.journal.recall(entry)) is not None:
        descent.restore(noted)

    def after_step() -> None:
        run.journal.note(entry, descent.state())
        run.progress(f"learning δ at λ = {strength:.3g} a row, γ = {gamma:g}", descent.passes_taken)

    minimum = descent.minimise(objective, solver, after_step=after_step)
    if minimum.end == "out of passes":
        warnings.warn(
            CalibrantWarning(
                f"δ is not quite at its optimum after {minimum.certificate.passes:.0f} passes: the next step promises "
                f"{minimum.promised:.1e} less of an objective of {minimum.certificate.objective:.4f}. Allow more "
                "max_passes, or give a larger strength.",
                caveat=Caveat.not_at_optimum,
            ),
            stacklevel=2,
        )
    run.journal.note(entry, descent.state(), final=True)
    if task.first_layer is not None and not descent.is_true(objective):
        # The network is not linear as far out as δ has come, so the short way led to another network's optimum.
        plainly = replace(run, task=replace(task, first_layer=None), journal=Journal(None, {}))
        return fit_exactly(plainly, gamma, strength, start, entry)
    head = task.best_head(descent.delta, gamma)
    found = Found(descent.delta, head, strength, gamma, minimum.certificate)
    return found.noted(_at_a_kink(minimum.promised)) if minimum.end == "stuck" else found


def _at_a_kink(promised: float) -> str:
    return (
        f"δ ended at a kink of the objective, where no step leads further down; without it the next would promise "
        f"{promised:.1e} less."
    )
