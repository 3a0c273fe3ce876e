"""What ``NeuralClamping.fit`` does with a network and its rows, from the first look at them to the answer."""

from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import nn

from calibrant.clamping.fit.candidate_fits import fit_candidates
from calibrant.clamping.fit.cross_validated_fit import fit_cross_validated
from calibrant.clamping.fit.fit_run import FitRun
from calibrant.clamping.fit.found import Found
from calibrant.clamping.fit.identity import fit_identity
from calibrant.clamping.fit.journal import Journal
from calibrant.clamping.fit.size_note import note_of_size
from calibrant.clamping.fit.task import ClampingTask
from calibrant.clamping.learning.descent import ExactSolver
from calibrant.clamping.network.first_layer import find_first_layer
from calibrant.clamping.network.input_preparation import InputPreparation
from calibrant.clamping.network.probe import check_network, first_inputs
from calibrant.errors import Caveat
from calibrant.inference import CalibrationSamples, frozen, warn_if_training
from calibrant.numerics.precision import working

if TYPE_CHECKING:
    from calibrant.clamping.neural_clamping import NeuralClamping, Progress

__all__ = ["run_fit"]


def run_fit(
    method: "NeuralClamping",
    model: nn.Module,
    rows: CalibrationSamples,
    *,
    folder: Path | None,
    keep_folder: bool,
    progress: "Progress",
) -> Found:
    """Carry the fit out. The network comes back as it was.

    Args:
        method: What to fit.
        model: From inputs to logits.
        rows: To fit on.
        folder: Where a killed fit left what it had found; None remembers nothing.
        keep_folder: Whether that stays there in the end.
        progress: Told what is being done.
    """
    warn_if_training(model)
    with frozen(model):
        task = _task(method, model, rows)
        journal = Journal(folder, {} if folder is None else fit_identity(method, model, rows))
        run = FitRun(method, task, journal, progress)
        chooses = method.strength == "path" or isinstance(method.strength, tuple)
        by_held_out_rows = chooses and method.choose_by == "cross-validated-nll"
        found = fit_cross_validated(run) if by_held_out_rows else fit_candidates(run)
        if note := note_of_size(found.delta, rows):
            found = found._replace(notes=(*found.notes, note), caveats=(*found.caveats, Caveat.delta_too_large))
        if not keep_folder:
            journal.clear()
        return found


def _task(method: "NeuralClamping", model: nn.Module, rows: CalibrationSamples) -> ClampingTask:
    """The network and its rows, once they are known to go together."""
    step = None if isinstance(method.solver, ExactSolver) else method.solver.batch_size
    n_classes = check_network(model, rows, method.space, batch_size=step)
    inputs = first_inputs(model, rows)
    clips = method.space is not None and method.space.clips
    return ClampingTask(
        model,
        rows,
        method.freedom.basis(inputs[0]),
        method.head,
        n_classes,
        torch.zeros_like(working(inputs[0])),
        InputPreparation(method.space, method.augmentation, method.views, method.seed),
        None if clips else find_first_layer(model, inputs),
        method.batch_size,
        method.solver.precision if isinstance(method.solver, ExactSolver) else "float32",
    )
