"""Choose the strength of the penalty on δ by the log-loss of held-out samples.

A free δ overfits a few thousand images, and accuracy falls on new ones. So strengths are tried from strong to weak,
each warm-started from the δ before, on all folds but one and evaluated on that one. Infinite strength, δ = 0, is the
head alone; it stays the result unless another is better by more than chance.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, final

import torch
from torch import Tensor

from calibrant.calibrators.base import deal_folds
from calibrant.clamping.fitting import FitResult, FitRun, fit_exactly
from calibrant.clamping.model import StrengthTrial
from calibrant.clamping.passes import Passes
from calibrant.clamping.solver import Descent, ExactSolver
from calibrant.errors import Caveat, FitError, InputError, SeparableError
from calibrant.losses.base import log_losses
from calibrant.numerics.newton import CurvatureMemory

__all__ = ["PathFollower", "fit_cross_validated"]

# Decrease of the fitted samples' log-loss promised by a first-order step, from strong to weak. In these terms the path
# is the same for pixels of 0..1 and of 0..255.
_PROMISED_GAINS = tuple(1e-4 * 10 ** (step / 2) for step in range(13))
# The path ends after so many strengths that are not better than a stronger one by this fraction of a standard error.
_PATIENCE, _BETTER = 2, 0.1
# Standard errors by which δ must be better than none.
_MARGIN = 2.0
# Folds are solved less tightly than the final fit: they choose a strength, not a δ.
_LOOSER, _FEWER_PASSES = 10.0, 20
_ALL_RIGHT = "penalised so weakly, δ makes (almost) every prediction right in its folds, and the head has no optimum."


def fit_cross_validated(run: FitRun, gamma: float, strengths: Sequence[float] | None, *, folds: int) -> FitResult:
    """Choose one of the strengths (None for the default path) or δ = 0 on folds, and fit all samples with it."""
    if len(run.passes) < folds:
        raise InputError(
            f"data must have at least one sample for each of {folds} folds; got {len(run.passes)}. Give more "
            "samples, or a strength."
        )
    try:
        follower = PathFollower(run, gamma, folds=folds)
    except FitError as error:  # mostly because too few predictions are wrong to leave some in every fold
        note = f"δ was not tried: the head alone could not be fitted in every fold ({error}). It is 0."
        return run.head_alone(gamma).noted(note)
    chosen = follower.choose(strengths)
    if math.isinf(chosen.strength):
        result = run.head_alone(gamma).noted(_no_help_note(chosen.trials), *chosen.notes)
    else:
        start = run.basis.to_delta(chosen.start.reshape(run.basis.shape)).to(run.zero)
        result = fit_exactly(run, gamma, chosen.strength, start, "final", known=chosen.known)
        if not chosen.notes and len(chosen.trials) > 1 and chosen.strength <= chosen.trials[-1].strength:
            weakest = "the weakest of the strengths tried is the best one, so a weaker one may be better still."
            result = result.noted(f"{weakest} Give some below {chosen.strength:.3g} as well, as a tuple.")
            result = result._replace(caveats=(*result.caveats, Caveat.weakest_strength))
        result = result.noted(_help_note(chosen), *chosen.notes)
    cut_short = (Caveat.path_cut_short,) if chosen.notes else ()
    return result._replace(trials=chosen.trials, caveats=(*result.caveats, *cut_short))


class ChosenStrength(NamedTuple):
    """The strength, coefficients of a δ to start from, the curvature there, and all strengths tried."""

    strength: float
    start: Tensor
    known: CurvatureMemory
    trials: tuple[StrengthTrial, ...]
    notes: tuple[str, ...] = ()  # why the path ended early, if it did


def _help_note(chosen: ChosenStrength) -> str:
    best = next(trial for trial in chosen.trials if trial.strength == chosen.strength)
    note = (
        f"δ helps: at λ = {best.strength:.3g} per sample it changes the log-loss of held-out samples by "
        f"{best.change:+.5f} ± {best.standard_error:.5f} (standard error)."
    )
    if len(chosen.trials) == 1:
        return note
    return (
        f"{note} That is the best of {len(chosen.trials)} strengths on the same folds, and so optimistic: evaluate it "
        "on other samples."
    )


def _no_help_note(trials: tuple[StrengthTrial, ...]) -> str:
    if not trials:
        return "δ was not tried to the end at any strength. It is 0."
    best = min(trials, key=lambda trial: trial.change)
    return (
        f"δ does not help here: of {len(trials)} strengths the best, λ = {best.strength:.3g} per sample, changes the "
        f"log-loss of held-out samples by {best.change:+.5f} ± {best.standard_error:.5f} (standard error). The result "
        "is δ = 0, the head alone."
    )


class _Fold(NamedTuple):
    descent: Descent
    held_out: Passes
    baseline: Tensor  # log-loss of each held-out sample behind the head alone


@final
class PathFollower:
    """Chooses the strength of a fit by the log-loss of held-out folds; the journal keeps those that are done."""

    def __init__(self, run: FitRun, gamma: float, *, folds: int) -> None:
        assert isinstance(run.solver, ExactSolver)
        self._run, self._objective = run, run.objective(gamma)
        passes = min(run.solver.max_passes, _FEWER_PASSES)
        self._solver = replace(run.solver, tolerance=_LOOSER * run.solver.tolerance, max_passes=passes)
        self._folds: list[_Fold] = []
        fold_of = deal_folds(run.passes.samples.labels, folds, seed=run.passes.preparation.seed)
        run.progress("cross-validation: δ = 0", 0.0)
        # All folds begin at the same δ, and one forward run serves all of them.
        at_zero = run.passes.logits(run.zero) if run.passes.are_plain else None
        self._shared_passes = 0.0 if at_zero is None else 0.5
        for fold in range(folds):
            self._folds.append(self._begun(fold_of == fold, at_zero))

    def choose(self, strengths: Sequence[float] | None = None) -> ChosenStrength:
        """Follow the path from strong to weak.

        All strengths given are tried; the default ones are such that their δ promise from 1e-4 to 100 less log-loss, to
        first order.
        """
        zero = torch.zeros_like(self._folds[0].descent.coefficients)
        best = ChosenStrength(math.inf, zero, CurvatureMemory(), ())
        trials: list[StrengthTrial] = []
        notes: tuple[str, ...] = ()
        lowest, worse = 0.0, 0
        given = [strength for strength in strengths or () if strength != math.inf]
        for strength in sorted(given or self._default_strengths(), reverse=True):
            try:
                trial = self._trial(len(trials), strength)
            except FitError as error:  # earlier trials stand
                reason = _ALL_RIGHT if isinstance(error, SeparableError) else error
                notes = (f"no strength of {strength:.3g} per sample or less was tried to the end: {reason}",)
                break
            trials.append(trial)
            is_better = trial.change < lowest - _BETTER * trial.standard_error
            lowest, worse = (trial.change, 0) if is_better else (lowest, worse + 1)
            if is_better and trial.change + _MARGIN * trial.standard_error < 0:
                mean = torch.stack([fold.descent.coefficients for fold in self._folds]).mean(dim=0)
                best = ChosenStrength(strength, mean, self._folds[0].descent.known_curvature(), ())
            if worse >= _PATIENCE and not given:
                break
        return best._replace(trials=tuple(trials), notes=notes)

    def _default_strengths(self) -> list[float]:
        square = sum(fold.descent.steepness**2 for fold in self._folds) / len(self._folds)
        return [square / (4 * gain) for gain in _PROMISED_GAINS]

    def _begun(self, is_held_out: Tensor, at_zero: Tensor | None) -> _Fold:
        """Return a fold at δ = 0, where the logits of all samples may be known."""
        fitted, others = (torch.nonzero(chosen).flatten() for chosen in (~is_held_out, is_held_out))
        training, held_out = (replace(self._run.passes, chosen=chosen) for chosen in (fitted, others))
        descent = self._run.descent(training, self._objective.gamma, self._run.zero)
        descent.begin(self._objective, logits=None if at_zero is None else at_zero[fitted])
        losses = self._held_out_losses(held_out, descent, logits=None if at_zero is None else at_zero[others])
        self._run.progress("cross-validation: δ = 0", self._passes_taken() + descent.passes_taken)
        return _Fold(descent, held_out, losses)

    def _passes_taken(self) -> float:
        return self._shared_passes + sum(fold.descent.passes_taken for fold in self._folds)

    def _trial(self, number: int, strength: float) -> StrengthTrial:
        objective, changes, norms = replace(self._objective, strength=strength), [], []
        for place, (descent, held_out, baseline) in enumerate(self._folds):
            entry = f"strength-{number}-fold-{place}"
            saved = self._run.journal.read(entry)
            if saved is not None:
                descent.restore(saved)
            else:
                descent.minimise(
                    objective,
                    self._solver,
                    after_step=lambda: self._run.progress(
                        f"cross-validation: λ = {strength:.3g}", self._passes_taken()
                    ),
                )
                saved = descent.state() | {"losses": self._held_out_losses(held_out, descent)}
                self._run.journal.write(entry, saved, final=True)
            changes.append(saved["losses"].to(baseline) - baseline)
            norms.append(float(descent.coefficients.norm()))
        change = torch.cat(changes)
        error = float(change.std()) / len(change) ** 0.5
        return StrengthTrial(strength, float(change.mean()), error, sum(norms) / len(norms))

    def _held_out_losses(self, held_out: Passes, descent: Descent, *, logits: Tensor | None = None) -> Tensor:
        """Return the log-loss of each held-out sample, (m,), float64; never the focal loss, which is not proper."""
        head = descent.here.head if held_out.are_plain else descent.profiled.plain_head(descent.coefficients)
        logits = held_out.precise_logits(descent.delta) if logits is None else logits
        with torch.no_grad():
            return log_losses(head(logits).double(), held_out.labels)
