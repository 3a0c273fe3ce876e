"""A fit for each γ and strength given, and of several the one with the lowest calibration error, as in the paper."""

import math

import torch

from calibrant.clamping.fit.exact_fit import fit_exactly
from calibrant.clamping.fit.fit_run import FitRun
from calibrant.clamping.fit.found import Found
from calibrant.clamping.fit.stochastic_fit import fit_stochastically
from calibrant.clamping.fit.strength_rule import strength_by_rule
from calibrant.clamping.learning.stochastic import StochasticSolver
from calibrant.metrics import ece
from calibrant.predictions import Predictions

__all__ = ["fit_candidates"]


def fit_candidates(run: FitRun) -> Found:
    """Fit every candidate, and keep the best; usually there is one.

    Raises:
        InputError: If the paper's rule gives no strength for this start.
        FitError: If a head has no optimum, or a fit diverges.
    """
    given = run.method.strength
    strengths = given if isinstance(given, tuple) else (given,)
    candidates = [
        (gamma, strength_by_rule(run, strength, gamma) if isinstance(strength, str) else strength)
        for gamma in run.method.gammas
        for strength in strengths
    ]
    finds = [_fit(run, gamma, strength, f"fit-{place}") for place, (gamma, strength) in enumerate(candidates)]
    if len(finds) == 1:
        return finds[0]
    errors = [_calibration_error(run, found) for found in finds]
    best = errors.index(min(errors))
    told = f"chosen of {len(finds)} fits by calibration error on the rows they were fitted on, {errors[best]:.4f}."
    return finds[best]._replace(notes=(*finds[best].notes, told))


def _fit(run: FitRun, gamma: float, strength: float, entry: str) -> Found:
    if strength == math.inf:
        return run.head_alone(gamma)
    fit = fit_stochastically if isinstance(run.method.solver, StochasticSolver) else fit_exactly
    return fit(run, gamma, strength, run.start(), entry)


def _calibration_error(run: FitRun, found: Found) -> float:
    passes = run.task.passes()
    with torch.no_grad():
        return float(ece(Predictions.from_logits(found.head(passes.precise_logits(found.delta)), passes.labels)))
