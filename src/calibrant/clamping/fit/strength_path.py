"""How tightly to hold δ: the strength of the penalty, by log-loss on rows that δ has not seen.

A free δ learns a few thousand images by heart, and accuracy falls on new ones. So strengths are tried from strong to
weak, each from the δ of the one before, on all folds but one and judged on that one. Infinite strength, δ = 0, is the
head alone; it stays the answer unless another is better by more than chance.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple, final

import torch
from torch import Tensor

from calibrant.calibrators.folds import deal_folds
from calibrant.clamping.clamped.summary import StrengthTrial
from calibrant.clamping.fit.journal import Journal
from calibrant.clamping.fit.task import ClampingTask
from calibrant.clamping.learning.descent import Descent, ExactSolver
from calibrant.clamping.learning.objective import Objective
from calibrant.clamping.learning.passes import Passes
from calibrant.errors import FitError, SeparableError
from calibrant.losses.base import log_losses
from calibrant.numerics.curvature_memory import CurvatureMemory

__all__ = ["Chosen", "PathFollower"]

# By how much a first-order step would lower the log-loss of the rows it is fitted on, from strong to weak. In these
# terms the path is the same for pixels of 0..1 and of 0..255.
_PROMISED_GAINS = tuple(1e-4 * 10 ** (step / 2) for step in range(13))
# Strengths in a row that do no better than a stronger one, by this share of a standard error, until weaker ones are
# not tried.
_PATIENCE, _BETTER = 2, 0.1
# Standard errors by which δ must be better than none.
_MARGIN = 2.0
# Folds are solved less tightly than the answer: what is asked there is which strength, not which δ.
_LOOSER, _FEWER_PASSES = 10.0, 20
_ALL_RIGHT = "held so loosely, δ makes (almost) every row right that it is fitted to, and the head has no optimum."


class Chosen(NamedTuple):
    """The strength, a good δ to start from (its coefficients), the curvature there, and all that was tried."""

    strength: float
    start: Tensor
    known: CurvatureMemory
    trials: tuple[StrengthTrial, ...]
    notes: tuple[str, ...] = ()  # why the path ended early, if it did


class _Fold(NamedTuple):
    descent: Descent
    held_out: Passes
    baseline: Tensor  # log-loss of each held-out row behind the head alone


@final
class PathFollower:
    """Chooses the strength for one task.

    Args:
        task: Network and rows.
        objective: Its strength is what is looked for.
        solver: How precisely.
        folds: How many parts the rows are dealt into.
        journal: Remembers strengths that are done.
        told: Called with what is being done and the passes so far.
    """

    def __init__(
        self,
        task: ClampingTask,
        objective: Objective,
        solver: ExactSolver,
        *,
        folds: int,
        journal: Journal,
        told: Callable[[str, float], None],
    ) -> None:
        self._task, self._objective, self._journal, self._told = task, objective, journal, told
        passes = min(solver.max_passes, _FEWER_PASSES)
        self._solver = replace(solver, tolerance=_LOOSER * solver.tolerance, max_passes=passes)
        self._folds: list[_Fold] = []
        fold = deal_folds(task.rows.labels, folds, seed=task.preparation.seed)
        self._told("cross-validation: looking at δ = 0", 0.0)
        # The folds begin at the same δ, and one forward run serves all of them.
        still = task.passes().logits(task.nothing) if task.sees_rows_plainly else None
        self._shared_passes = 0.0 if still is None else 0.5
        for each in range(folds):
            self._folds.append(self._begun(fold == each, still))

    def choose(self, strengths: Sequence[float] | None = None) -> Chosen:
        """Follow the path.

        Args:
            strengths: To be tried, all of them; by default such that their δ promise from 1e-4 to 100 less log-loss, to
                first order.
        """
        nowhere = torch.zeros_like(self._folds[0].descent.coefficients)
        best = Chosen(math.inf, nowhere, CurvatureMemory(), ())
        trials: list[StrengthTrial] = []
        notes: tuple[str, ...] = ()
        lowest, worse = 0.0, 0
        given = [strength for strength in strengths or () if strength != math.inf]
        for strength in sorted(given or self._default_strengths(), reverse=True):
            try:
                trial = self._tried(len(trials), strength)
            except SeparableError:
                notes = (f"no strength of {strength:.3g} a row or less was tried to the end: {_ALL_RIGHT}",)
                break
            except FitError as error:  # what was tried before it stands
                notes = (f"no strength of {strength:.3g} a row or less was tried to the end: {error}",)
                break
            trials.append(trial)
            is_better = trial.change < lowest - _BETTER * trial.standard_error
            lowest, worse = (trial.change, 0) if is_better else (lowest, worse + 1)
            if is_better and trial.change + _MARGIN * trial.standard_error < 0:
                mean = torch.stack([each.descent.coefficients for each in self._folds]).mean(dim=0)
                best = Chosen(strength, mean, self._folds[0].descent.known_curvature(), ())
            if worse >= _PATIENCE and not given:
                break
        return best._replace(trials=tuple(trials), notes=notes)

    def _default_strengths(self) -> list[float]:
        square = sum(each.descent.steepness**2 for each in self._folds) / len(self._folds)
        return [square / (4 * gain) for gain in _PROMISED_GAINS]

    def _begun(self, is_held_out: Tensor, still: Tensor | None) -> _Fold:
        """A fold that stands at δ = 0, where the logits of all rows may be known."""
        fitted, others = (torch.nonzero(chosen).flatten() for chosen in (~is_held_out, is_held_out))
        descent, held_out = self._task.descent(self._objective.gamma, fitted), self._task.passes(others)
        descent.begin(self._objective, logits=None if still is None else still[fitted])
        losses = self._held_out_losses(held_out, descent, logits=None if still is None else still[others])
        self._told("cross-validation: looking at δ = 0", self._passes_taken() + descent.passes_taken)
        return _Fold(descent, held_out, losses)

    def _passes_taken(self) -> float:
        return self._shared_passes + sum(each.descent.passes_taken for each in self._folds)

    def _tried(self, number: int, strength: float) -> StrengthTrial:
        objective, changes, norms = replace(self._objective, strength=strength), [], []
        for place, (descent, held_out, baseline) in enumerate(self._folds):
            entry = f"strength-{number}-fold-{place}"
            known = self._journal.recall(entry)
            if known is not None:
                descent.restore(known)
            else:
                descent.minimise(
                    objective,
                    self._solver,
                    after_step=lambda: self._told(f"cross-validation: λ = {strength:.3g}", self._passes_taken()),
                )
                known = descent.state() | {"losses": self._held_out_losses(held_out, descent)}
                self._journal.note(entry, known, final=True)
            changes.append(known["losses"].to(baseline) - baseline)
            norms.append(float(descent.coefficients.norm()))
        change = torch.cat(changes)
        error = float(change.std()) / len(change) ** 0.5
        return StrengthTrial(strength, float(change.mean()), error, sum(norms) / len(norms))

    def _held_out_losses(self, held_out: Passes, descent: Descent, *, logits: Tensor | None = None) -> Tensor:
        """The log-loss of each held-out row, (m,), float64; never the focal loss, which is not proper."""
        head = descent.head if self._task.sees_rows_plainly else descent.plain_head()
        logits = held_out.precise_logits(descent.delta) if logits is None else logits
        with torch.no_grad():
            return log_losses(head(logits).double(), held_out.labels)
