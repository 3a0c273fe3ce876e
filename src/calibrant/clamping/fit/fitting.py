"""What ``NeuralClamping.fit`` does with a network and its rows: choose γ and λ, and learn δ and the head for them."""

import math
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, final

import torch
from torch import Tensor, nn

from calibrant.clamping.clamped.summary import StrengthTrial
from calibrant.clamping.fit.identity import fit_identity
from calibrant.clamping.fit.journal import Journal
from calibrant.clamping.fit.strength_path import PathFollower
from calibrant.clamping.fit.task import ClampingTask
from calibrant.clamping.learning.descent import ExactSolver
from calibrant.clamping.learning.heads import HeadFit
from calibrant.clamping.learning.objective import Objective
from calibrant.clamping.learning.stochastic import StochasticSolver, StochasticState, descend_stochastically
from calibrant.clamping.network.first_layer import find_first_layer
from calibrant.clamping.network.frozen import frozen
from calibrant.clamping.network.probe import first_inputs, looked_through
from calibrant.clamping.network.showing import Showing
from calibrant.clamping.rows.calibration_rows import CalibrationRows
from calibrant.errors import CalibrantWarning, FitError, InputError
from calibrant.maps import Map, Scale
from calibrant.metrics import ece
from calibrant.numerics.certificate import Certificate
from calibrant.numerics.curvature_memory import CurvatureMemory
from calibrant.numerics.precision import working
from calibrant.predictions import Predictions

if TYPE_CHECKING:
    from calibrant.clamping.neural_clamping import NeuralClamping, Progress

__all__ = ["Found", "fitted"]

# Of the initial loss, which the paper's rule gives to the penalty.
_TENTH = 0.1


class Found(NamedTuple):
    """What a fit leaves."""

    delta: Tensor
    head: Map
    strength: float
    gamma: float
    certificate: Certificate | None
    trials: tuple[StrengthTrial, ...] = ()
    notes: tuple[str, ...] = ()


def fitted(
    method: "NeuralClamping", model: nn.Module, rows: CalibrationRows, folder: Path | None, progress: "Progress"
) -> Found:
    """Carry the fit out. The network comes back as it was."""
    if isinstance(model, nn.Module) and model.training:
        warnings.warn(
            "the network is in training mode, and is left so; it was calibrated in evaluation mode. Call eval() on the "
            "clamped model before you use it.",
            CalibrantWarning,
            stacklevel=3,
        )
    with frozen(model):
        n_classes = looked_through(model, rows, method.space)
        inputs = first_inputs(model, rows)
        clips = method.space is not None and method.space.clips
        task = ClampingTask(
            model,
            rows,
            method.freedom.basis(inputs[0]),
            method.head,
            n_classes,
            torch.zeros_like(working(inputs[0])),
            Showing(method.space, method.augmentation, method.views, method.seed),
            None if clips else find_first_layer(model, inputs),
            method.batch_size,
            method.solver.precision if isinstance(method.solver, ExactSolver) else "float32",
        )
        journal = Journal(folder, {} if folder is None else fit_identity(method, model, rows))
        found = _Fitting(method, task, journal, progress).found()
        journal.close()
        return found


@final
@dataclass(frozen=True, eq=False)
class _Fitting:
    """One fit under way."""

    method: "NeuralClamping"
    task: ClampingTask
    journal: Journal
    progress: "Progress"

    def found(self) -> Found:
        method = self.method
        strength = method.strength
        chooses = strength == "path" or isinstance(strength, tuple)
        if chooses and method.choose_by == "cross-validated-nll":
            return self._cross_validated()
        candidates = [
            (gamma, self._settled(one, gamma))
            for gamma in method.gammas
            for one in (strength if isinstance(strength, tuple) else (strength,))
        ]
        finds = [self._one(gamma, value, place) for place, (gamma, value) in enumerate(candidates)]
        if len(finds) == 1:
            return finds[0]
        errors = [self._calibration_error(found) for found in finds]
        best = errors.index(min(errors))
        told = f"chosen of {len(finds)} fits by calibration error on the rows they were fitted on, {errors[best]:.4f}."
        return finds[best]._replace(notes=(*finds[best].notes, told))

    def _cross_validated(self) -> Found:
        method, gamma = self.method, self.method.gammas[0]
        assert isinstance(method.solver, ExactSolver)
        if len(self.task.rows) < method.folds:
            raise InputError(
                f"data must have at least a row for each of {method.folds} folds; got {len(self.task.rows)}. Give more "
                "rows, or a strength."
            )
        try:
            follower = PathFollower(
                self.task,
                Objective(gamma, penalty=method.penalty, clip=method.clip),
                method.solver,
                folds=method.folds,
                journal=self.journal,
                told=self.progress,
            )
        except FitError as error:  # mostly because too few rows are wrong to leave some in every fold
            told = f"δ was not tried: the head alone could not be fitted in every fold ({error}). It is 0."
            return self._head_alone(gamma, ())._replace(notes=(told,))
        chosen = follower.choose(method.strength if isinstance(method.strength, tuple) else None)
        if math.isinf(chosen.strength):
            return self._head_alone(gamma, chosen.trials)._replace(notes=(_no_help(chosen.trials), *chosen.notes))
        best = next(trial for trial in chosen.trials if trial.strength == chosen.strength)
        told = (
            f"δ helps: at λ = {best.strength:.3g} a row it changes the log-loss of held-out rows by {best.gain:+.5f} "
            f"± {best.error:.5f} (standard error)."
        )
        start = self.task.basis.spread(chosen.start.reshape(self.task.basis.shape)).to(self.task.nothing)
        found = self._exact(gamma, chosen.strength, start, "final", known=chosen.known)
        return found._replace(trials=chosen.trials, notes=(told, *chosen.notes, *found.notes))

    def _one(self, gamma: float, strength: float, place: int) -> Found:
        if strength == math.inf:
            return self._head_alone(gamma, ())
        if isinstance(self.method.solver, StochasticSolver):
            return self._stochastic(gamma, strength, self._start(), f"fit-{place}")
        return self._exact(gamma, strength, self._start(), f"fit-{place}")

    def _exact(
        self, gamma: float, strength: float, start: Tensor, entry: str, *, known: CurvatureMemory | None = None
    ) -> Found:
        solver = self.method.solver
        assert isinstance(solver, ExactSolver)
        objective = self._objective(gamma, strength)
        descent = self.task.descent(gamma, start=start, known=known)
        if (noted := self.journal.recall(entry)) is not None:
            descent.restore(noted)

        def after_step() -> None:
            self.journal.note(entry, descent.state())
            self.progress(f"learning δ at λ = {strength:.3g} a row, γ = {gamma:g}", descent.passes_taken)

        minimum = descent.minimise(objective, solver, after_step=after_step)
        if minimum.end == "out of passes":
            warnings.warn(
                f"δ is not quite at its optimum after {minimum.certificate.passes:.0f} passes: the next step promises "
                f"{minimum.promised:.1e} less of an objective of {minimum.certificate.objective:.4f}. Allow more "
                "max_passes, or give a larger strength.",
                CalibrantWarning,
                stacklevel=4,
            )
        self.journal.note(entry, descent.state(), final=True)
        if self.task.first is not None and not descent.is_true(objective):
            # The network is not linear as far out as δ has come, so the short way led to another network's optimum.
            plainly = replace(self, task=replace(self.task, first=None), journal=Journal(None, {}))
            return plainly._exact(gamma, strength, start, entry)
        told = () if minimum.end != "stuck" else (_at_a_kink(minimum.promised),)
        head = self._best_head(descent.delta, gamma)
        return Found(descent.delta, head, strength, gamma, minimum.certificate, notes=told)

    def _stochastic(self, gamma: float, strength: float, start: Tensor, entry: str) -> Found:
        task, solver = self.task, self.method.solver
        assert isinstance(solver, StochasticSolver)
        objective, one = self._objective(gamma, strength), torch.ones((), dtype=start.dtype, device=start.device)
        state = StochasticState(start, one, torch.zeros_like(start), torch.zeros_like(one), 0)
        passes = task.passes()
        first = float(objective.row_losses(passes.logits(start), passes.labels).double().mean())
        first += objective.penalty_of(start)
        if (known := self.journal.recall(entry)) is not None:
            values = {name: known[name].to(start.device) for name in StochasticState._fields[:4]}
            state = StochasticState(**values, epochs=int(known["epochs"]))

        def after_epoch(now: StochasticState) -> None:
            self.journal.note(entry, _noted(now))
            self.progress(f"learning δ and T at λ = {strength:.3g} a row, γ = {gamma:g}", now.epochs)

        state = descend_stochastically(
            task.model,
            task.rows,
            objective,
            solver,
            state,
            showing=task.showing,
            after_epoch=after_epoch,
        )
        self.journal.note(entry, _noted(state), final=True)
        head = Scale(state.temperature.double(), n_classes=task.n_classes)
        slope = passes.slope(state.delta, head, objective)
        with torch.no_grad():
            loss = float(objective.row_losses(head(slope.logits).double(), passes.seen_labels).mean())
        gradient = slope.gradient + objective.pull(state.delta.double())
        certificate = Certificate(
            loss + objective.penalty_of(state.delta), float(gradient.abs().max()), solver.epochs, solver.epochs + 1.0
        )
        if not (certificate.objective <= first or passes.augments):
            warnings.warn(
                f"the objective rose from {first:.4g} to {certificate.objective:.4g} a row, so the rate "
                f"{solver.learning_rate:g} is too high for λ = {strength:.3g} a row. Lower either, or use the exact "
                "solver.",
                CalibrantWarning,
                stacklevel=4,
            )
        return Found(state.delta, head, strength, gamma, certificate, notes=(self._optimum_beside(state, gamma),))

    def _optimum_beside(self, state: StochasticState, gamma: float) -> str:
        """The temperature reached, beside the one that would be best at this δ."""
        reached = (
            f"T = {float(state.temperature):.4f} after {state.epochs} epochs; the objective's optimum at this δ is"
        )
        try:
            with warnings.catch_warnings():  # of a head that is not used
                warnings.simplefilter("ignore", CalibrantWarning)
                best = self._best_head(state.delta, gamma)
        except FitError:
            return f"{reached} T = 0: every row is right there."
        assert isinstance(best, Scale)
        return f"{reached} T = {float(best.temperature):.4f}."

    def _head_alone(self, gamma: float, trials: tuple[StrengthTrial, ...]) -> Found:
        nothing = self.task.nothing
        return Found(nothing, self._best_head(nothing, gamma), math.inf, gamma, None, trials)

    def _best_head(self, delta: Tensor, gamma: float) -> Map:
        passes = self.task.passes()
        return HeadFit(self.task.head, gamma).fit(passes.precise_logits(delta), passes.labels)

    def _start(self) -> Tensor:
        method, task = self.method, self.task
        return method.start.delta(
            task.model, task.rows, space=method.space, seed=method.seed, device=task.nothing.device
        ).to(task.nothing)

    def _objective(self, gamma: float, strength: float) -> Objective:
        return Objective(gamma, strength, self.method.penalty, self.method.clip)

    def _settled(self, strength: float | str, gamma: float) -> float:
        """A number for each reading of the paper's rule."""
        if not isinstance(strength, str):
            return strength
        start, passes = self._start(), self.task.passes()
        losses = self._objective(gamma, 0.0).row_losses(passes.logits(start), passes.labels)
        tenth = _TENTH * float(losses.double().mean())
        if strength == "tenth-of-loss":
            return tenth
        term = self._objective(gamma, 1.0).penalty_of(start)
        if term == 0:
            raise InputError("strength='tenth-as-term' divides by the size of the first δ; here it is 0. Take another.")
        return tenth / term

    def _calibration_error(self, found: Found) -> float:
        passes = self.task.passes()
        with torch.no_grad():
            return float(ece(Predictions.from_logits(found.head(passes.precise_logits(found.delta)), passes.labels)))


def _at_a_kink(promised: float) -> str:
    return (
        f"δ ended at a kink of the objective, where no step leads further down; without it the next would promise "
        f"{promised:.1e} less."
    )


def _no_help(trials: tuple[StrengthTrial, ...]) -> str:
    if not trials:
        return "δ was not tried to the end at any strength. It is 0."
    best = min(trials, key=lambda trial: trial.gain)
    return (
        f"δ does not help here: of {len(trials)} strengths the best, λ = {best.strength:.3g} a row, changes the "
        f"log-loss of held-out rows by {best.gain:+.5f} ± {best.error:.5f} (standard error). The answer is δ = 0, the "
        "head alone."
    )


def _noted(state: StochasticState) -> dict[str, Tensor]:
    return state._asdict() | {"epochs": torch.tensor(state.epochs)}
