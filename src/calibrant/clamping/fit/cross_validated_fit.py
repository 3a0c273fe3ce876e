"""The default: how tightly δ is held is chosen by log-loss on rows it has not seen, and then it is fitted on all."""

import math

from calibrant.clamping.clamped.summary import StrengthTrial
from calibrant.clamping.fit.exact_fit import fit_exactly
from calibrant.clamping.fit.fit_run import FitRun
from calibrant.clamping.fit.found import Found
from calibrant.clamping.fit.strength_path import Chosen, PathFollower
from calibrant.clamping.learning.descent import ExactSolver
from calibrant.clamping.learning.objective import Objective
from calibrant.errors import Caveat, FitError, InputError

__all__ = ["fit_cross_validated"]


def fit_cross_validated(run: FitRun) -> Found:
    """Choose among the method's strengths, δ = 0 among them, and fit with the one chosen.

    Raises:
        InputError: If there are fewer rows than folds.
        FitError: If the head has no optimum.
    """
    method, task, gamma = run.method, run.task, run.method.gammas[0]
    assert isinstance(method.solver, ExactSolver)
    if len(task.rows) < method.folds:
        raise InputError(
            f"data must have at least a row for each of {method.folds} folds; got {len(task.rows)}. Give more rows, or "
            "a strength."
        )
    try:
        follower = PathFollower(
            task,
            Objective(gamma, penalty=method.penalty, clip=method.clip),
            method.solver,
            folds=method.folds,
            journal=run.journal,
            told=run.progress,
        )
    except FitError as error:  # mostly because too few rows are wrong to leave some in every fold
        told = f"δ was not tried: the head alone could not be fitted in every fold ({error}). It is 0."
        return run.head_alone(gamma).noted(told)
    chosen = follower.choose(method.strength if isinstance(method.strength, tuple) else None)
    if math.isinf(chosen.strength):
        return _after_path(run.head_alone(gamma).noted(_no_help(chosen.trials), *chosen.notes), chosen)
    start = task.basis.spread(chosen.start.reshape(task.basis.shape)).to(task.nothing)
    found = fit_exactly(run, gamma, chosen.strength, start, "final", known=chosen.known)
    if not chosen.notes and len(chosen.trials) > 1 and chosen.strength <= chosen.trials[-1].strength:
        weakest = "the weakest of the strengths tried is the best one, so a weaker one may be better still."
        found = found.noted(f"{weakest} Give some below {chosen.strength:.3g} as well, as a tuple.")
        found = found._replace(caveats=(*found.caveats, Caveat.weakest_strength))
    return _after_path(found.noted(_helps(chosen), *chosen.notes), chosen)


def _helps(chosen: Chosen) -> str:
    best = next(trial for trial in chosen.trials if trial.strength == chosen.strength)
    told = (
        f"δ helps: at λ = {best.strength:.3g} a row it changes the log-loss of held-out rows by {best.change:+.5f} "
        f"± {best.standard_error:.5f} (standard error)."
    )
    if len(chosen.trials) > 1:
        told += (
            f" That is the best of {len(chosen.trials)} strengths on the same folds, and so optimistic: judge it on "
            "other rows."
        )
    return told


def _after_path(found: Found, chosen: Chosen) -> Found:
    """The result with what is known about the strengths that were tried."""
    cut_short = (Caveat.path_cut_short,) if chosen.notes else ()
    return found._replace(trials=chosen.trials, caveats=(*found.caveats, *cut_short))


def _no_help(trials: tuple[StrengthTrial, ...]) -> str:
    if not trials:
        return "δ was not tried to the end at any strength. It is 0."
    best = min(trials, key=lambda trial: trial.change)
    return (
        f"δ does not help here: of {len(trials)} strengths the best, λ = {best.strength:.3g} a row, changes the "
        f"log-loss of held-out rows by {best.change:+.5f} ± {best.standard_error:.5f} (standard error). The answer is "
        "δ = 0, the head alone."
    )
