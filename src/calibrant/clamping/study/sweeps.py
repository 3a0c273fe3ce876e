"""Neural Clamping over and over: what γ does to it (Fig. 2 of the paper), and what the start of δ does (Fig. 3)."""

import dataclasses
import math
from collections.abc import Mapping, Sequence

import torch
from torch import nn

from calibrant.calibrators import TemperatureScaling
from calibrant.clamping.learning.descent import ExactSolver
from calibrant.clamping.neural_clamping import GAMMA_POOL, NeuralClamping, Progress
from calibrant.clamping.study.repeated_fits import RepeatedFits
from calibrant.clamping.theory.starts import DataDrivenStart, RandomStart, Start, ZeroStart
from calibrant.diagrams.gamma_sweep import GammaSweep
from calibrant.diagrams.start_spread import StartSpread
from calibrant.errors import InputError
from calibrant.evidence import estimate
from calibrant.metrics import ACE, ECE, NLL, SCE, Accuracy, Entropy, Metric, Tally, ece

__all__ = ["STARTS", "gamma_sweep", "start_spread"]

STARTS: dict[str, Start] = {"random": RandomStart(), "data-driven": DataDrivenStart()}
"""Those that the paper compares."""
_JUDGED: tuple[Metric, ...] = (Entropy(), ECE(), ACE(), SCE(), NLL(), Accuracy())


def gamma_sweep(
    method: NeuralClamping,
    model: nn.Module,
    calibration: object,
    test: object,
    *,
    gammas: Sequence[float] = GAMMA_POOL,
    resamples: int = 500,
    seed: int = 0,
    progress: Progress | None = None,
) -> GammaSweep:
    """A fit for each γ of the focal loss, everything else being the same, judged on other rows.

    The paper's figure shows the test error falling to some γ within the pool and takes that for an advantage of the
    focal loss. A γ above 0 flattens the probabilities, which helps where T would else stop short of its optimum. The
    intervals tell how much of a dip is noise; the log-loss, which has no bins, is there as well. Fits are separate, as
    in the paper, and the objective has several optima in δ: steps in the curves can be other optima.

    A strength that is cross-validated is chosen once, at the method's own γ, and is then the same for all.

    Args:
        method: What to fit; its γ is replaced.
        model: From inputs to logits; comes back as it was.
        calibration: Rows to fit on, as ``NeuralClamping.fit`` takes them.
        test: Other rows to judge on.
        gammas: At least one.
        resamples: Draws behind the intervals of the test error.
        seed: Of the draws; the fits have their own.
        progress: Called with what is being done and how many passes over the rows the fit at hand took so far.

    Raises:
        InputError: If there is no γ, or the head is no temperature.
        FitError: If a fit has no optimum, or diverges.

    Example:
        >>> network = nn.Linear(4, 3, dtype=torch.float64).eval()
        >>> inputs = torch.randn(400, 4, dtype=torch.float64, generator=torch.manual_seed(0))
        >>> labels = torch.multinomial(network(inputs + 0.5).softmax(1), 1, generator=torch.manual_seed(1))[:, 0]
        >>> rows, others = (inputs[:200], labels[:200]), (inputs[200:], labels[200:])
        >>> sweep = gamma_sweep(NeuralClamping(strength=0.1), network, rows, others, gammas=(0, 0.5, 1))
        >>> bool((sweep.entropy.diff() > 0).all())
        True

    Reference:
        Neural Clamping, Section 3.3 and Fig. 2.
    """
    if not gammas:
        raise InputError("gammas must name at least one γ; got none.")
    if not isinstance(method.head, TemperatureScaling):
        raise InputError(f"only a temperature can follow the focal loss; the head is {method.head.name}.")
    gammas = sorted(float(gamma) for gamma in gammas)
    tried = [dataclasses.replace(method, gamma=gamma) for gamma in gammas]  # refuses what cannot be fitted
    fits = RepeatedFits(method, model, calibration, test, progress)
    lines: list[dict[str, float]] = []
    for gamma, one in zip(gammas, tried, strict=True):
        fit = fits.fit(one, f"γ = {gamma:g}")
        error = estimate(fit.judged, [ECE()], resamples=resamples, seed=seed)["ece"]
        lines.append(
            Tally((ECE(), Entropy(), NLL(), Accuracy())).add(fit.judged).values()
            | {
                "gamma": gamma,
                "ece_low": error.low,
                "ece_high": error.high,
                "ece_floor": math.nan if error.floor is None else error.floor,
                "calibration_ece": ece(fit.fitted),
                "objective": fit.objective,
                "temperature": fit.temperature,
                "norm": fit.norm,
                "strength": fit.strength,
            }
        )
    columns = {name: torch.tensor([line[name] for line in lines], dtype=torch.float64) for name in lines[0]}
    n, n_calibration = fits.sizes
    return GammaSweep(**columns, n=n, n_calibration=n_calibration)


def start_spread(
    method: NeuralClamping,
    model: nn.Module,
    calibration: object,
    test: object,
    *,
    seeds: Sequence[int] = range(5),
    starts: Mapping[str, Start] = STARTS,
    progress: Progress | None = None,
) -> StartSpread:
    """A fit for each start of δ and each seed, everything else being the same, judged on other rows.

    The spread is that of the method, not of the data: all fits see the same rows. It is 0 for a start and a solver that
    draw nothing, so a small one is no merit of a start in itself; with many images the data-driven start is δ = 0.

    A strength that is cross-validated is chosen once and is then the same for all fits, where it may turn out that δ
    does not help: they then agree at δ = 0.

    Args:
        method: What to fit; its start and seed are replaced.
        model: From inputs to logits; comes back as it was.
        calibration: Rows to fit on, as ``NeuralClamping.fit`` takes them.
        test: Other rows to judge on.
        seeds: Of the starts, and of the orders of a stochastic solver.
        starts: By name. The data-driven one of the theorem needs the method's ``space``.
        progress: Called with what is being done and how many passes over the rows the fit at hand took so far.

    Raises:
        InputError: If there is no start or no seed, or a start needs a space.
        FitError: If a fit has no optimum, or diverges.

    Warns:
        CalibrantWarning: If the data-driven start is 0.

    Example:
        >>> network = nn.Linear(4, 3, dtype=torch.float64).eval()
        >>> inputs = torch.randn(400, 4, dtype=torch.float64, generator=torch.manual_seed(0))
        >>> labels = torch.multinomial(network(inputs + 0.5).softmax(1), 1, generator=torch.manual_seed(1))[:, 0]
        >>> rows, others = (inputs[:200], labels[:200]), (inputs[200:], labels[200:])
        >>> starts = {"small": RandomStart(0.01), "large": RandomStart(1.0)}
        >>> spread = start_spread(NeuralClamping(strength=0.1), network, rows, others, seeds=(0, 1), starts=starts)
        >>> spread.values["ece"].shape
        torch.Size([2, 2])

    Reference:
        Neural Clamping, Section 4.3 and Fig. 3.
    """
    if not starts or not seeds:
        raise InputError(f"starts and seeds must name at least one each; got {len(starts)} and {len(seeds)}.")
    fits = RepeatedFits(method, model, calibration, test, progress)
    lines: list[list[list[float]]] = []
    for name, start in starts.items():
        line: list[list[float]] = []
        for seed in seeds:
            one = dataclasses.replace(method, start=start, seed=seed)
            if line and not _draws(one):
                line.append(line[0])
                continue
            fit = fits.fit(one, f"{name} start, seed {seed}")
            judged = Tally(_JUDGED).add(fit.judged).values()
            line.append([*(judged[metric.name] for metric in _JUDGED), fit.temperature, fit.norm])
        lines.append(line)
    *values, temperature, norm = torch.tensor(lines, dtype=torch.float64).unbind(dim=2)
    by_name = {metric.name: value for metric, value in zip(_JUDGED, values, strict=True)}
    return StartSpread(tuple(starts), tuple(seeds), by_name, temperature, norm, n=fits.sizes[0])


def _draws(method: NeuralClamping) -> bool:
    """Whether a seed can change the fit."""
    if not isinstance(method.solver, ExactSolver) or method.augmentation != "none":
        return True
    start = method.start
    return not (isinstance(start, ZeroStart) or (isinstance(start, DataDrivenStart) and start.eta != "quantile"))
