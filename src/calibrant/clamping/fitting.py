"""A fit in progress: its journal, δ and the head at one strength by either solver, and the best of several."""

import hashlib
import json
import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, final

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from calibrant.atomic import atomic_path, save_tensors
from calibrant.calibrators import Calibrator
from calibrant.clamping.inputs import Basis, upgraded_settings
from calibrant.clamping.model import StrengthTrial
from calibrant.clamping.objective import HeadFit, Objective, Penalty
from calibrant.clamping.passes import Passes
from calibrant.clamping.solver import Descent, ExactSolver, StochasticSolver, StochasticState, descend_stochastically
from calibrant.clamping.starts import Start
from calibrant.errors import (
    Argument,
    CalibrantWarning,
    Caveat,
    FileError,
    InputError,
    SeparableError,
    without_our_warnings,
)
from calibrant.inference import CalibrationSamples, network_digest, state_digest
from calibrant.maps import Map, Scale
from calibrant.metrics import ece
from calibrant.numerics.newton import Certificate, CurvatureMemory
from calibrant.predictions import Predictions

__all__ = [
    "FitResult",
    "FitRun",
    "Journal",
    "Progress",
    "StrengthRule",
    "fit_candidates",
    "fit_exactly",
    "fit_identity",
    "samples_digest",
]

StrengthRule: TypeAlias = Literal["path", "tenth-of-loss", "tenth-as-term"]
Progress: TypeAlias = Callable[[str, float], None]

_TENTH = 0.1
_FORMAT, _EARLIER = "calibrant.clamping/3", "calibrant.clamping/2"


def fit_identity(settings: Mapping[str, Any], model: nn.Module, samples: CalibrationSamples) -> dict[str, Any]:
    """Return the fingerprint of a fit: options, weights and data; a fit is resumed only if it matches.

    The batch size is left out: after running out of memory, a fit resumes with smaller batches.
    """
    decisive = {name: value for name, value in settings.items() if name != "batch_size"}
    return {"settings": decisive, "network": network_digest(model), "samples": samples_digest(samples)}


def samples_digest(samples: CalibrationSamples) -> str:
    """Return a fingerprint of all inputs and labels, in their order."""
    digest = hashlib.sha256(f"{len(samples)} {samples.input_shape} {samples.input_dtype}".encode())
    for values in chain([samples.labels], (inputs for inputs, _ in samples.batches(device="cpu"))):
        digest.update(values.contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()[:16]


@final
class Journal:
    """Partial results of a fit in a folder, from which it resumes: named entries of tensors, each written atomically.

    Args:
        folder: Created if necessary; None to write nothing.
        identity: Fingerprint of the fit. A folder of another fit is refused.
        every: Seconds between two writes of an entry that is not final.
    """

    def __init__(self, folder: Path | None, identity: Mapping[str, Any], *, every: float = 30.0) -> None:
        self._folder, self._every = folder, every
        self._identity = json.dumps(dict(identity), sort_keys=True)
        self._written = time.monotonic()
        if folder is None:
            return
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FileError(f"{folder} could not be created: {error.strerror}.") from error
        for path in sorted(folder.glob("*.journal")):
            self._read(path)

    def read(self, name: str) -> dict[str, Tensor] | None:
        """Return the tensors of an entry, or None if there is none."""
        path = self._path(name)
        return None if path is None or not path.exists() else self._read(path)

    def write(self, name: str, tensors: Mapping[str, Tensor], *, final: bool = False) -> None:
        """Write an entry, unless one was written a moment ago and this is not final."""
        path = self._path(name)
        if path is None or not (final or time.monotonic() - self._written >= self._every):
            return
        plain = {key: tensor.detach().cpu().contiguous() for key, tensor in tensors.items()}
        with atomic_path(path) as temporary:
            metadata = {"format": _FORMAT, "identity": self._identity, "digest": state_digest(plain)}
            save_tensors(plain, temporary, metadata)
        self._written = time.monotonic()

    def clear(self) -> None:
        """Delete all entries: the fit is complete."""
        if self._folder is not None:
            for path in self._folder.glob("*.journal"):
                path.unlink(missing_ok=True)

    def _path(self, name: str) -> Path | None:
        return None if self._folder is None else self._folder / f"{name}.journal"

    def _read(self, path: Path) -> dict[str, Tensor]:
        try:
            with safe_open(path, framework="pt") as opened:
                metadata = opened.metadata() or {}
                tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118  # not a mapping
        except (SafetensorError, OSError) as error:
            raise FileError(f"{path} cannot be read ({error}). Delete it, and that step is repeated.") from error
        if _identity_in(metadata) != self._identity:
            raise FileError(
                f"{path.parent} must be new, or hold the journal of this same fit; it holds that of another network, "
                "data or settings. Name another folder, or delete its .journal files."
            )
        if metadata.get("digest") != state_digest(tensors):
            raise FileError(
                f"{path} must hold what was written into it; it does not. Delete it, and that step is repeated."
            )
        return tensors


def _identity_in(metadata: Mapping[str, str]) -> str | None:
    """Return the fingerprint in an entry's metadata, under today's names; None if there is none."""
    if metadata.get("format") != _EARLIER or "identity" not in metadata:
        return metadata.get("identity") if metadata.get("format") == _FORMAT else None
    identity = json.loads(metadata["identity"])
    renamed = {
        "settings": upgraded_settings(identity.get("settings", {})),
        "network": identity.get("network"),
        "samples": identity.get("rows"),
    }
    return json.dumps(renamed, sort_keys=True)


class FitResult(NamedTuple):
    """δ, the head behind it, and how they were fitted."""

    delta: Tensor
    head: Map
    strength: float
    gamma: float
    certificate: Certificate | None
    trials: tuple[StrengthTrial, ...] = ()
    notes: tuple[str, ...] = ()
    caveats: tuple[Caveat, ...] = ()

    def noted(self, *first: str) -> "FitResult":
        """Return the result with other notes before its own."""
        return self._replace(notes=(*first, *self.notes))


@final
@dataclass(frozen=True, eq=False)
class FitRun:
    """One fit in progress: the network and its samples, the options of every kind of fit, journal and progress."""

    passes: Passes
    basis: Basis
    head: Calibrator
    zero: Tensor  # δ = 0, on the network's device
    solver: ExactSolver | StochasticSolver
    start: Start
    penalty: Penalty
    clip: float
    journal: Journal
    progress: Progress

    def objective(self, gamma: float, strength: float = 1.0) -> Objective:
        return Objective(gamma, strength, self.penalty, self.clip)

    def first_delta(self) -> Tensor:
        """Return the first δ, of an input's shape, on the network's device."""
        space, seed = self.passes.preparation.space, self.passes.preparation.seed
        return self.start.delta(self.passes.model, self.passes.samples, space=space, seed=seed).to(self.zero)

    def descent(self, passes: Passes, gamma: float, start: Tensor, known: CurvatureMemory | None = None) -> Descent:
        return Descent(passes, self.basis, HeadFit(self.head, gamma), start, known=known)

    def best_head(self, delta: Tensor, gamma: float) -> Map:
        """Fit the head to all samples at x + δ, without augmentation and in full precision."""
        logits = self.passes.precise_logits(delta)
        return HeadFit(self.head, gamma).fit(logits, self.passes.labels, with_delta=bool(delta.any()))

    def head_alone(self, gamma: float) -> FitResult:
        """Return the result without δ, that of an infinite strength."""
        return FitResult(self.zero, self.best_head(self.zero, gamma), math.inf, gamma, None)


def fit_candidates(run: FitRun, gammas: Sequence[float], strengths: Sequence[float | StrengthRule]) -> FitResult:
    """Fit every γ and strength; of several keep the one with the lowest calibration error, as in the paper."""
    candidates = [
        (gamma, _strength_by_rule(run, strength, gamma) if isinstance(strength, str) else strength)
        for gamma in gammas
        for strength in strengths
    ]
    fit = _fit_stochastically if isinstance(run.solver, StochasticSolver) else fit_exactly
    results = [
        run.head_alone(gamma) if strength == math.inf else fit(run, gamma, strength, run.first_delta(), f"fit-{place}")
        for place, (gamma, strength) in enumerate(candidates)
    ]
    if len(results) == 1:
        return results[0]
    errors = []
    with torch.no_grad():
        for result in results:
            calibrated = result.head(run.passes.precise_logits(result.delta))
            errors.append(float(ece(Predictions.from_logits(calibrated, run.passes.labels))))
    best = errors.index(min(errors))
    note = f"chosen of {len(results)} fits by calibration error on the calibration samples, {errors[best]:.4f}."
    return results[best]._replace(notes=(*results[best].notes, note))


def _strength_by_rule(run: FitRun, rule: StrengthRule, gamma: float) -> float:
    """Return the strength by either reading of the paper's rule: λ, or the whole term, is a tenth of the first loss."""
    start = run.first_delta()
    losses = run.objective(gamma).sample_losses(run.passes.logits(start), run.passes.labels)
    tenth = _TENTH * float(losses.double().mean())
    if rule == "tenth-of-loss":
        return tenth
    term = run.objective(gamma).penalty_of(start)
    if term == 0:
        raise InputError(
            Argument("strength", "tenth-as-term"),
            " divides by the size of the first δ; here it is 0. Give another start.",
        )
    return tenth / term


def fit_exactly(
    run: FitRun, gamma: float, strength: float, start: Tensor, entry: str, *, known: CurvatureMemory | None = None
) -> FitResult:
    """Fit δ at one strength by the exact solver, resuming an interrupted fit from the journal's entry.

    Warns:
        CalibrantWarning: If the passes did not suffice.
    """
    assert isinstance(run.solver, ExactSolver)
    objective, descent = run.objective(gamma, strength), run.descent(run.passes, gamma, start, known)
    if (saved := run.journal.read(entry)) is not None:
        descent.restore(saved)

    def after_step() -> None:
        run.journal.write(entry, descent.state())
        run.progress(f"learning δ at λ = {strength:.3g} per sample, γ = {gamma:g}", descent.passes_taken)

    minimum = descent.minimise(objective, run.solver, after_step=after_step)
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
    run.journal.write(entry, descent.state(), final=True)
    if run.passes.first_layer is not None and not descent.profiled.is_true(descent.here, objective):
        # The network is not linear as far out as δ is, so the shortcut led to another network's optimum.
        without_shortcut = replace(run, passes=replace(run.passes, first_layer=None), journal=Journal(None, {}))
        return fit_exactly(without_shortcut, gamma, strength, start, entry)
    head = run.best_head(descent.delta, gamma)
    result = FitResult(descent.delta, head, strength, gamma, minimum.certificate)
    if minimum.end != "stuck":
        return result
    return result.noted(
        "δ ended at a kink of the objective, where no step leads further down; without it the next would promise "
        f"{minimum.promised:.1e} less."
    )


def _fit_stochastically(run: FitRun, gamma: float, strength: float, start: Tensor, entry: str) -> FitResult:
    """Fit δ and T at one strength by all epochs of stochastic descent, resuming an interrupted fit.

    The certificate's gradient is that in δ behind the T that was reached, which need not be the best one.

    Warns:
        CalibrantWarning: If the objective has risen.
    """
    solver, passes, objective = run.solver, run.passes, run.objective(gamma, strength)
    assert isinstance(solver, StochasticSolver)
    logits = passes.logits(start)
    before = float(objective.sample_losses(logits, passes.labels).double().mean()) + objective.penalty_of(start)

    def note(state: StochasticState, *, final: bool = False) -> None:
        run.journal.write(entry, state._asdict() | {"epochs": torch.tensor(state.epochs)}, final=final)

    def after_epoch(state: StochasticState) -> None:
        note(state)
        run.progress(f"learning δ and T at λ = {strength:.3g} per sample, γ = {gamma:g}", state.epochs)

    one = torch.ones((), dtype=start.dtype, device=start.device)
    first = StochasticState(start, one, torch.zeros_like(start), torch.zeros_like(one), 0)
    if (saved := run.journal.read(entry)) is not None:
        values = {name: saved[name].to(start.device) for name in StochasticState._fields[:4]}
        first = StochasticState(**values, epochs=int(saved["epochs"]))
    state = descend_stochastically(passes, objective, solver, first, after_epoch=after_epoch)
    note(state, final=True)
    head = Scale(state.temperature.double(), n_classes=logits.shape[1])
    slope = passes.slope(state.delta, head, objective)
    loss = objective.mean_loss(head, slope.logits, passes.seen_labels)
    gradient = slope.gradient + objective.penalty_gradient(state.delta.double())
    certificate = Certificate(
        loss + objective.penalty_of(state.delta), float(gradient.abs().max()), solver.epochs, solver.epochs + 1.0
    )
    if not (certificate.objective <= before or passes.augments):
        warnings.warn(
            CalibrantWarning(
                f"the objective rose from {before:.4g} to {certificate.objective:.4g} per sample, so the rate "
                f"{solver.learning_rate:g} is too high for λ = {strength:.3g} per sample. Lower either, or use the "
                "exact solver.",
                caveat=Caveat.objective_rose,
            ),
            stacklevel=2,
        )
    result = FitResult(state.delta, head, strength, gamma, certificate)
    reached = f"T = {float(state.temperature):.4f} after {state.epochs} epochs; the objective's optimum at this δ is"
    try:
        with without_our_warnings():  # about a head that is not used
            best = run.best_head(state.delta, gamma)
    except SeparableError:
        return result.noted(f"{reached} T = 0: every prediction is right there.")
    assert isinstance(best, Scale)
    return result.noted(f"{reached} T = {float(best.temperature):.4f}.")
