"""A fit in progress: its journal, δ and the head at one strength by either solver, and the choice among several.

A free δ overfits a few thousand images, and accuracy falls on new ones. So by default strengths of its penalty are
tried from strong to weak, each warm-started from the δ before, on all folds but one and evaluated by the log-loss of
that one. Infinite strength, δ = 0, is the head alone; it stays the result unless another is better by more than chance.
"""

import copy
import hashlib
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, final

import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from calibrant.calibrators import Calibrator
from calibrant.calibrators.base import assign_folds
from calibrant.clamping.inputs import Basis
from calibrant.clamping.model import ClampingOutcome, ClampingSummary, StrengthTrial
from calibrant.clamping.objective import HeadFit, Objective
from calibrant.clamping.passes import Passes
from calibrant.clamping.solver import Descent, ExactSolver, StochasticSolver, StochasticState, descend_stochastically
from calibrant.clamping.start import Start
from calibrant.errors import (
    Argument,
    Caveat,
    FileError,
    FitError,
    InputError,
    SeparableError,
    warn,
    without_our_warnings,
)
from calibrant.files.map_file import Container
from calibrant.inference import LabelledInputs, network_digest
from calibrant.losses.base import log_losses
from calibrant.maps import Map, Scale
from calibrant.metrics import ece
from calibrant.numerics.newton import Certificate, CurvatureMemory
from calibrant.predictions import Predictions
from calibrant.processes import SINGLE_PROCESS, ProcessGroup

__all__ = ["Progress", "StrengthRule", "samples_digest"]

StrengthRule: TypeAlias = Literal["path", "tenth-of-loss", "tenth-as-term"]
Progress: TypeAlias = Callable[[str, float], None]

_ENTRY = Container("calibrant.clamping", 5, "an entry of a journal", "Delete it, and that step is repeated.")


def fit_fingerprint(settings: Mapping[str, Any], model: nn.Module, samples: LabelledInputs) -> dict[str, Any]:
    """Return the fingerprint of a fit: options, weights and data; a fit is resumed only if it matches.

    The batch size is left out: after running out of memory, a fit resumes with smaller batches.
    """
    decisive = {name: value for name, value in settings.items() if name != "batch_size"}
    return {"settings": decisive, "network": network_digest(model), "samples": samples_digest(samples)}


def samples_digest(samples: LabelledInputs) -> str:
    """Return a fingerprint of all inputs and labels, in their order."""
    digest = hashlib.sha256(f"{len(samples)} {samples.input_shape} {samples.input_dtype}".encode())
    for values in chain([samples.labels], (inputs for inputs, _ in samples.batches(device="cpu"))):
        digest.update(values.contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()[:16]


@final
class Journal:
    """Partial results of a fit in a folder, from which it resumes: named entries of tensors, each written atomically.

    ``identity`` is the fit's fingerprint: a folder of another fit is refused. Without a folder nothing is written.
    Between two writes of entries that are not final there are at least ``every`` seconds. Of several processes the
    first writes and reads for all.
    """

    def __init__(
        self, folder: Path | None, identity: Mapping[str, Any], processes: ProcessGroup = SINGLE_PROCESS,
        *, every: float = 30.0,
    ) -> None:  # fmt: skip
        self._folder, self._every, self._written = folder if processes.is_first else None, every, time.monotonic()
        self._identity, self._processes = json.dumps(dict(identity), sort_keys=True), processes
        if folder is None or self._folder is None:
            return
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FileError(f"{folder} could not be created: {error.strerror}.") from error
        for path in sorted(folder.glob("*.journal")):
            self._read(path)

    def read(self, name: str) -> dict[str, Tensor] | None:
        """Return the tensors of an entry, or None if there is none."""

        def read() -> dict[str, Tensor] | None:
            path = None if self._folder is None else self._folder / f"{name}.journal"
            return None if path is None or not path.exists() else self._read(path)

        return self._processes.from_first(read)

    def write(self, name: str, tensors: Mapping[str, Tensor], *, final: bool = False) -> None:
        """Write an entry; one that is not final is skipped if another was written less than ``every`` seconds ago."""
        if self._folder is None or not (final or time.monotonic() - self._written >= self._every):
            return
        _ENTRY.write(self._folder / f"{name}.journal", {"identity": self._identity}, tensors)
        self._written = time.monotonic()

    def clear(self) -> None:
        """Delete all entries: the fit is complete."""
        if self._folder is not None:
            for path in self._folder.glob("*.journal"):
                path.unlink(missing_ok=True)

    def _read(self, path: Path) -> dict[str, Tensor]:
        try:
            document, tensors = _ENTRY.read(path)
        except (SafetensorError, OSError) as error:
            raise FileError(f"{path} cannot be read ({error}). {_ENTRY.advice}") from error
        if document["identity"] != self._identity:
            raise FileError(
                f"{path.parent} must be new, or hold the journal of this same fit; it holds that of another network, "
                "data or settings. Name another folder, or delete its .journal files."
            )
        return tensors


class FitResult(NamedTuple):
    """δ, the head, and the record of their fit, whose time is not measured yet."""

    delta: Tensor
    head: Map
    summary: ClampingSummary


@final
@dataclass(frozen=True, eq=False)
class FitRun:
    """One fit in progress: the network and its samples, the options of every kind of fit, journal and progress."""

    passes: Passes
    basis: Basis
    head: Calibrator
    zero_delta: Tensor  # δ = 0, on the network's device
    solver: ExactSolver | StochasticSolver
    start: Start
    objective: Objective  # its γ and strength are those of each fit
    settings: dict[str, Any]  # of the method, for the summary
    journal: Journal
    progress: Progress

    def initial_delta(self) -> Tensor:
        """Return the first δ, of an input's shape, on the network's device."""
        space, seed = self.passes.preparation.space, self.passes.preparation.seed
        return self.start.delta(self.passes.model, self.passes.samples, space=space, seed=seed).to(self.zero_delta)

    def descent(self, passes: Passes, gamma: float, start: Tensor, known: CurvatureMemory | None = None) -> Descent:
        return Descent(passes, self.basis, HeadFit(self.head, gamma), start, known=known)

    def best_head(self, delta: Tensor, gamma: float) -> Map:
        """Fit the head to all samples at x + δ, without augmentation and in full precision."""
        logits = self.passes.full_precision_logits(delta)
        return HeadFit(self.head, gamma).fit(logits, self.passes.labels, with_delta=bool(delta.any()))

    def result(
        self, delta: Tensor, head: Map, gamma: float, strength: float, certificate: Certificate | None, *notes: str
    ) -> FitResult:
        is_optimal = isinstance(self.solver, ExactSolver) and gamma == 0
        record = (self.settings, len(self.passes), 0.0, certificate, strength, gamma)
        return FitResult(delta, head, ClampingSummary(*record, notes=notes, head_is_optimal=is_optimal))

    def head_alone(self, gamma: float) -> FitResult:
        """Return the result without δ, that of an infinite strength."""
        return self.result(self.zero_delta, self.best_head(self.zero_delta, gamma), gamma, math.inf, None)


def fit_candidates(run: FitRun, gammas: Sequence[float], strengths: Sequence[float | StrengthRule]) -> FitResult:
    """Fit every γ and strength; of several keep the one with the lowest calibration error, as in the paper."""
    candidates = [
        (gamma, _strength_by_rule(run, strength, gamma) if isinstance(strength, str) else strength)
        for gamma in gammas
        for strength in strengths
    ]
    fit = _fit_stochastically if isinstance(run.solver, StochasticSolver) else _fit_exactly
    results = [
        run.head_alone(gamma)
        if strength == math.inf
        else fit(run, gamma, strength, run.initial_delta(), f"fit-{place}")
        for place, (gamma, strength) in enumerate(candidates)
    ]
    if len(results) == 1:
        return results[0]
    errors = []
    with torch.no_grad():
        for delta, head, _ in results:
            calibrated = head(run.passes.full_precision_logits(delta))
            errors.append(ece(Predictions.from_logits(calibrated, run.passes.labels)))
    best = errors.index(min(errors))
    note = f"chosen of {len(results)} fits by calibration error on the calibration samples, {errors[best]:.4f}."
    return results[best]._replace(summary=results[best].summary.noted(note))


def _strength_by_rule(run: FitRun, rule: StrengthRule, gamma: float) -> float:
    """Return the strength by either reading of the paper's rule: λ, or the whole term, is a tenth of the first loss."""
    start, objective = run.initial_delta(), replace(run.objective, gamma=gamma)
    tenth = 0.1 * float(objective.sample_losses(run.passes.logits(start), run.passes.labels).double().mean())
    if rule == "tenth-of-loss":
        return tenth
    term = objective.penalty_of(start)
    if term == 0:
        problem = " divides by the size of the first δ; here it is 0. Give another start."
        raise InputError(Argument("strength", "tenth-as-term"), problem)
    return tenth / term


def _fit_exactly(
    run: FitRun, gamma: float, strength: float, start: Tensor, entry: str, *, known: CurvatureMemory | None = None
) -> FitResult:
    """Fit δ at one strength by the exact solver, resuming an interrupted fit from the journal's entry."""
    assert isinstance(run.solver, ExactSolver)
    objective = replace(run.objective, gamma=gamma, strength=strength)
    descent = run.descent(run.passes, gamma, start, known)
    if (saved := run.journal.read(entry)) is not None:
        descent.restore(saved)

    def after_step() -> None:
        run.journal.write(entry, descent.state())
        run.progress(f"learning δ at λ = {strength:.3g} per sample, γ = {gamma:g}", descent.passes_taken)

    certificate, decrease, end = descent.minimise(objective, run.solver, after_step=after_step)
    if end == "out of passes":
        problem = (
            f"δ is not quite at its optimum after {certificate.passes:.0f} passes: the next step should lower the "
            f"objective, {certificate.objective:.4f}, by {decrease:.1e}. Allow more max_passes, or give a larger "
            "strength."
        )
        warn(problem, caveat=Caveat.not_at_optimum)
    run.journal.write(entry, descent.state(), final=True)
    kink = (
        "δ ended at a kink of the objective, where no step leads further down; without it the next step would "
        f"lower it by {decrease:.1e}."
    )
    head, notes = run.best_head(descent.delta, gamma), [kink] if end == "stuck" else []
    return run.result(descent.delta, head, gamma, strength, certificate, *notes)


def _fit_stochastically(run: FitRun, gamma: float, strength: float, start: Tensor, entry: str) -> FitResult:
    """Fit δ and T at one strength by all epochs of stochastic descent, resuming an interrupted fit.

    The certificate's gradient is that in δ at the T that was reached, which need not be the best one.
    """
    solver, passes, objective = run.solver, run.passes, replace(run.objective, gamma=gamma, strength=strength)
    assert isinstance(solver, StochasticSolver)
    logits = passes.logits(start)
    before = float(objective.sample_losses(logits, passes.labels).double().mean()) + objective.penalty_of(start)

    def after_epoch(state: StochasticState) -> None:
        epochs = torch.tensor(state.epochs)
        run.journal.write(entry, {**state._asdict(), "epochs": epochs}, final=state.epochs == solver.epochs)
        run.progress(f"learning δ and T at λ = {strength:.3g} per sample, γ = {gamma:g}", state.epochs)

    one = torch.ones((), dtype=start.dtype, device=start.device)
    first = StochasticState(start, one, torch.zeros_like(start), torch.zeros_like(one), 0)
    if (saved := run.journal.read(entry)) is not None:
        tensors = {name: tensor.to(start.device) for name, tensor in saved.items() if name != "epochs"}
        first = StochasticState(**tensors, epochs=int(saved["epochs"]))
    state = descend_stochastically(passes, objective, solver, first, after_epoch=after_epoch)
    head = Scale(state.temperature.double(), n_classes=logits.shape[1])
    logits, gradient = passes.logits_and_gradient(state.delta, head, objective)
    after = objective.mean_loss(head, logits, passes.view_labels) + objective.penalty_of(state.delta)
    steepest = float((gradient + objective.penalty_gradient(state.delta.double())).abs().max())
    certificate = Certificate(after, steepest, solver.epochs, solver.epochs + 1.0)
    if not (after <= before or passes.augments):
        problem = (
            f"the objective rose from {before:.4g} to {after:.4g} per sample, so the rate {solver.learning_rate:g} is "
            f"too high for λ = {strength:.3g} per sample. Lower either, or use the exact solver."
        )
        warn(problem, caveat=Caveat.objective_rose)
    try:
        with without_our_warnings():  # about a head that is not used
            best = run.best_head(state.delta, gamma)
        assert isinstance(best, Scale)
        optimum = f"{float(best.temperature):.4f}."
    except SeparableError:
        optimum = "0: every prediction is right there."
    reached = f"T = {float(state.temperature):.4f} after {state.epochs} epochs; the objective's optimum at this δ is T"
    return run.result(state.delta, head, gamma, strength, certificate, f"{reached} = {optimum}")


# Decreases of the fitted samples' log-loss that a first-order step predicts, from strong to weak, which define the
# path of strengths. In these terms it is the same for pixels of 0..1 and of 0..255.
_PREDICTED_GAINS = tuple(1e-4 * 10 ** (step / 2) for step in range(13))
# The path ends after so many strengths that are not better than a stronger one by this fraction of a standard error.
_PATIENCE, _BETTER = 2, 0.1
# Standard errors by which δ must be better than none. It only chooses a strength, so it is simpler than the rule by
# which test samples decide whether δ helps.
_STANDARD_ERRORS = 2.0
# Folds are solved less tightly than the final fit: they choose a strength, not a δ.
_LOOSER, _FEWER_PASSES = 10.0, 20
_ALL_RIGHT = "penalised so weakly, δ makes (almost) every prediction right in its folds, and the head has no optimum."


def fit_cross_validated(run: FitRun, gamma: float, strengths: Sequence[float] | None, *, folds: int) -> FitResult:
    """Choose one of the strengths (None for the default path) or δ = 0 on folds, and fit all samples with it."""
    if len(run.passes) < folds:
        raise InputError(
            f"data must have {folds} samples or more, one a fold; got {len(run.passes)}. Give more, or a strength."
        )
    try:
        validation = StrengthCrossValidation(run, gamma, folds=folds)
    except FitError as error:  # mostly because too few predictions are wrong to leave some in every fold
        result, failed = run.head_alone(gamma), ClampingOutcome.cross_validation_failed
        note = f"δ was not tried: the head alone could not be fitted in every fold ({error}). It is 0."
        return result._replace(summary=replace(result.summary, outcome=failed, outcome_note=note))
    chosen = validation.choose(strengths)
    notes, caveats = chosen.notes, (Caveat.path_cut_short,) if chosen.notes else ()
    if math.isinf(chosen.strength):
        outcome = ClampingOutcome.no_help if chosen.trials else ClampingOutcome.cross_validation_failed
        result = run.head_alone(gamma)
    else:
        outcome = ClampingOutcome.helps
        start = run.basis.to_delta(chosen.start.reshape(run.basis.shape)).to(run.zero_delta)
        result = _fit_exactly(run, gamma, chosen.strength, start, "final", known=chosen.known)
        if not notes and len(chosen.trials) > 1 and chosen.strength <= chosen.trials[-1].strength:
            weakest = "the weakest of the strengths tried is the best one, so a weaker one may be better still."
            notes = (f"{weakest} Try strengths below {chosen.strength:.3g} as well.",)
            caveats = (Caveat.weakest_strength,)
    summary = replace(
        result.summary,
        trials=chosen.trials,
        notes=(*notes, *result.summary.notes),
        caveats=caveats,
        outcome=outcome,
        outcome_note=_outcome_note(chosen),
    )
    return result._replace(summary=summary)


class ChosenStrength(NamedTuple):
    """The strength, coefficients of a δ to start from, the curvature there, and all strengths tried."""

    strength: float
    start: Tensor
    known: CurvatureMemory
    trials: tuple[StrengthTrial, ...]
    notes: tuple[str, ...] = ()  # why the path ended early, if it did


def _outcome_note(chosen: ChosenStrength) -> str:
    if not chosen.trials:
        return "δ could not be fitted at any strength, so it is 0."
    n, own = len(chosen.trials), [trial for trial in chosen.trials if trial.strength == chosen.strength]
    best = own[0] if own else min(chosen.trials, key=lambda trial: trial.change)
    change = f"the log-loss of held-out samples by {best.change:+.5f} ± {best.standard_error:.5f} (standard error)."
    if not own:
        return (
            f"δ does not help here: of {n} strengths the best, λ = {best.strength:.3g} per sample, changes {change} "
            "The result is δ = 0, the head alone."
        )
    optimistic = f" That is the best of {n} strengths on the same folds, so optimistic: evaluate it on other samples."
    return f"δ helps: at λ = {best.strength:.3g} per sample it changes {change}{optimistic if n > 1 else ''}"


class _Fold(NamedTuple):
    descent: Descent
    held_out: Passes
    baseline: Tensor  # log-loss of each held-out sample with the head alone


@final
class StrengthCrossValidation:
    """Chooses the strength of a fit by the log-loss of held-out folds; the journal keeps finished folds."""

    def __init__(self, run: FitRun, gamma: float, *, folds: int) -> None:
        assert isinstance(run.solver, ExactSolver)
        self._run, self._objective = run, replace(run.objective, gamma=gamma)
        passes = min(run.solver.max_passes, _FEWER_PASSES)
        self._solver = replace(run.solver, tolerance=_LOOSER * run.solver.tolerance, max_passes=passes)
        self._folds: list[_Fold] = []
        labels = run.passes.samples.labels
        fold_of = assign_folds(len(labels), folds, run.passes.preparation.seed, labels.device)
        run.progress("cross-validation: δ = 0", 0.0)
        # All folds begin at the same δ, and one forward run serves all of them.
        at_zero = run.passes.logits(run.zero_delta) if run.passes.is_exact else None
        self._shared_passes = 0.0 if at_zero is None else 0.5
        for fold in range(folds):
            self._folds.append(self._start_fold(fold_of == fold, at_zero))

    def choose(self, strengths: Sequence[float] | None = None) -> ChosenStrength:
        """Follow the path from strong to weak; of the strengths given, if any, all are tried."""
        zero = torch.zeros_like(self._folds[0].descent.coefficients)
        best = ChosenStrength(math.inf, zero, CurvatureMemory(), ())
        notes: tuple[str, ...] = ()
        trials, best_change, n_without_gain = list[StrengthTrial](), 0.0, 0
        given = [strength for strength in strengths or () if strength != math.inf]
        square = sum(fold.descent.initial_gradient_norm**2 for fold in self._folds) / len(self._folds)
        for strength in sorted(given or (square / (4 * gain) for gain in _PREDICTED_GAINS), reverse=True):
            try:
                trial = self._trial(len(trials), strength)
            except FitError as error:  # earlier trials stand
                reason = _ALL_RIGHT if isinstance(error, SeparableError) else error
                notes = (f"no strength of {strength:.3g} per sample or less was tried to the end: {reason}",)
                break
            trials.append(trial)
            is_better = trial.change < best_change - _BETTER * trial.standard_error
            best_change, n_without_gain = (trial.change, 0) if is_better else (best_change, n_without_gain + 1)
            if is_better and trial.change + _STANDARD_ERRORS * trial.standard_error < 0:
                mean = torch.stack([fold.descent.coefficients for fold in self._folds]).mean(dim=0)
                best = ChosenStrength(strength, mean, copy.deepcopy(self._folds[0].descent.memory), ())
            if n_without_gain >= _PATIENCE and not given:
                break
        return best._replace(trials=tuple(trials), notes=notes)

    def _start_fold(self, is_held_out: Tensor, at_zero: Tensor | None) -> _Fold:
        """Return a fold at δ = 0; ``at_zero`` are the logits of all samples there, if they are known."""
        fitted, others = (torch.nonzero(chosen).flatten() for chosen in (~is_held_out, is_held_out))
        training, held_out = (replace(self._run.passes, chosen=chosen) for chosen in (fitted, others))
        descent = self._run.descent(training, self._objective.gamma, self._run.zero_delta)
        descent.begin(self._objective, logits=None if at_zero is None else at_zero[fitted])
        losses = self._held_out_losses(held_out, descent, logits=None if at_zero is None else at_zero[others])
        self._run.progress("cross-validation: δ = 0", self._passes_taken() + descent.passes_taken)
        return _Fold(descent, held_out, losses)

    def _passes_taken(self) -> float:
        return self._shared_passes + sum(fold.descent.passes_taken for fold in self._folds)

    def _trial(self, number: int, strength: float) -> StrengthTrial:
        def after_step() -> None:
            self._run.progress(f"cross-validation: λ = {strength:.3g}", self._passes_taken())

        objective, changes, norms = replace(self._objective, strength=strength), [], []
        for place, (descent, held_out, baseline) in enumerate(self._folds):
            entry = f"strength-{number}-fold-{place}"
            saved = self._run.journal.read(entry)
            if saved is not None:
                descent.restore(saved)
            else:
                descent.minimise(objective, self._solver, after_step=after_step)
                saved = descent.state() | {"losses": self._held_out_losses(held_out, descent)}
                self._run.journal.write(entry, saved, final=True)
            changes.append(saved["losses"].to(baseline) - baseline)
            norms.append(float(descent.coefficients.norm()))
        change = torch.cat(changes)
        error = float(change.std()) / len(change) ** 0.5
        return StrengthTrial(strength, float(change.mean()), error, sum(norms) / len(norms))

    def _held_out_losses(self, held_out: Passes, descent: Descent, *, logits: Tensor | None = None) -> Tensor:
        """Return the log-loss of each held-out sample, (m,), float64; never the focal loss, which is not proper."""
        head = descent.point.head if held_out.is_exact else descent.profiled.plain_head(descent.coefficients)
        logits = held_out.full_precision_logits(descent.delta) if logits is None else logits
        with torch.no_grad():
            return log_losses(head(logits).double(), held_out.labels)
