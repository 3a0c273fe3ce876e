"""Repeated fits of Neural Clamping: over γ of the focal loss (Fig. 2 of the paper), and over starts of δ (Fig. 3)."""

import copy
import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, final

import torch
from torch import Tensor, nn

from calibrant.calibrators import TemperatureScaling
from calibrant.clamping import (
    GAMMA_POOL,
    DataDrivenStart,
    ExactSolver,
    HeadFit,
    NetworkPredictions,
    NeuralClamping,
    Objective,
    Progress,
    RandomStart,
    Start,
    ZeroStart,
)
from calibrant.errors import InputError
from calibrant.evidence import estimate
from calibrant.maps import Map, Scale
from calibrant.metrics import ACE, ECE, NLL, SCE, Accuracy, Entropy, Metric, Tally, ece
from calibrant.predictions import Predictions

__all__ = ["STARTS", "GammaSweep", "StartSpread", "gamma_sweep", "start_spread"]

STARTS: dict[str, Start] = {"random": RandomStart(), "data-driven": DataDrivenStart()}
"""Those that the paper compares."""
_MEASURED: tuple[Metric, ...] = (Entropy(), ECE(), ACE(), SCE(), NLL(), Accuracy())


@final
@dataclass(frozen=True, eq=False)
class GammaSweep:
    """One entry per γ, each (m,) in float64; on the test samples unless stated otherwise."""

    gamma: Tensor  # ascending
    ece: Tensor
    ece_low: Tensor  # 95 % interval
    ece_high: Tensor
    ece_floor: Tensor  # of a calibrated model with the same confidences
    calibration_ece: Tensor  # on the calibration samples
    objective: Tensor  # minimised: mean loss and penalty, on the calibration samples
    entropy: Tensor  # nats
    nll: Tensor
    accuracy: Tensor
    temperature: Tensor
    norm: Tensor  # of δ
    strength: Tensor  # of the penalty, per sample; infinity where δ is 0
    n: int
    n_calibration: int

    @property
    def chosen(self) -> int:
        """Index chosen by the paper's rule: the lowest calibration error on the calibration samples."""
        return int(self.calibration_ece.argmin())


@final
@dataclass(frozen=True, eq=False)
class StartSpread:
    """Every number once per start and seed, (starts, seeds) in float64."""

    starts: tuple[str, ...]
    seeds: tuple[int, ...]
    values: dict[str, Tensor]  # by metric, on the test samples
    temperature: Tensor
    norm: Tensor  # of δ
    n: int

    def spread(self, metric: str) -> Tensor:
        """Return the standard deviation over the seeds, (starts,); NaN for a single seed."""
        values = self.values[metric]
        return values.std(dim=1) if len(self.seeds) > 1 else values.new_full((len(self.starts),), float("nan"))


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
    """Fit once per γ of the focal loss, with everything else fixed, and evaluate on test samples.

    The paper's figure shows the test error falling to some γ within the pool and takes that for an advantage of the
    focal loss. A γ above 0 flattens the probabilities, which helps where T would otherwise stop short of its optimum.
    The intervals show how much of a dip is noise; the log-loss, which has no bins, is there as well. Fits are separate,
    as in the paper, and the objective has several optima in δ: steps in the curves can be other optima.

    A strength that is cross-validated is chosen once, at the method's own γ, and is then the same for all.

    Args:
        method: The method to fit; its γ is replaced.
        model: Network from inputs to logits; it is restored afterwards.
        calibration: Samples to fit on, as ``NeuralClamping.fit`` takes them.
        test: Samples to evaluate on.
        gammas: At least one γ.
        resamples: Number of resamples behind the intervals of the test error.
        seed: Random seed of the bootstrap; the fits have their own.
        progress: Called with a description of the step and the passes of the current fit over the samples so far.

    Raises:
        InputError: If there is no γ, or the head is no temperature.
        FitError: If a fit has no optimum, or diverges.

    Example:
        >>> network = nn.Linear(4, 3, dtype=torch.float64).eval()
        >>> inputs = torch.randn(400, 4, dtype=torch.float64, generator=torch.manual_seed(0))
        >>> labels = torch.multinomial(network(inputs + 0.5).softmax(1), 1, generator=torch.manual_seed(1))[:, 0]
        >>> calibration, test = (inputs[:200], labels[:200]), (inputs[200:], labels[200:])
        >>> sweep = gamma_sweep(NeuralClamping(strength=0.1), network, calibration, test, gammas=(0, 0.5, 1))
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
    variants = [dataclasses.replace(method, gamma=gamma) for gamma in gammas]  # refuses what cannot be fitted
    fits = _RepeatedFits(method, model, calibration, test, progress)
    lines: list[dict[str, float]] = []
    for gamma, variant in zip(gammas, variants, strict=True):
        fit = fits.fit(variant, f"γ = {gamma:g}")
        error = estimate(fit.test, [ECE()], resamples=resamples, seed=seed)["ece"]
        lines.append(
            Tally((ECE(), Entropy(), NLL(), Accuracy())).add(fit.test).values()
            | {
                "gamma": gamma,
                "ece_low": error.low,
                "ece_high": error.high,
                "ece_floor": math.nan if error.floor is None else error.floor,
                "calibration_ece": ece(fit.calibration),
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
    """Fit once per start of δ and seed, with everything else fixed, and evaluate on test samples.

    The spread is that of the method, not of the data: all fits see the same samples. It is 0 for a start and a solver
    that draw nothing, so a small one is no merit of a start in itself; with many images the data-driven start is δ = 0.

    A strength that is cross-validated is chosen once and is then the same for all fits; if it turns out that δ does not
    help, they agree at δ = 0.

    Args:
        method: The method to fit; its start and seed are replaced.
        model: Network from inputs to logits; it is restored afterwards.
        calibration: Samples to fit on, as ``NeuralClamping.fit`` takes them.
        test: Samples to evaluate on.
        seeds: Seeds of the starts, and of the orders of a stochastic solver.
        starts: Starts by name. The data-driven one of the theorem needs the method's ``space``.
        progress: Called with a description of the step and the passes of the current fit over the samples so far.

    Raises:
        InputError: If there is no start or no seed, or a start needs a space.
        FitError: If a fit has no optimum, or diverges.

    Warns:
        CalibrantWarning: If the data-driven start is 0.

    Example:
        >>> network = nn.Linear(4, 3, dtype=torch.float64).eval()
        >>> inputs = torch.randn(400, 4, dtype=torch.float64, generator=torch.manual_seed(0))
        >>> labels = torch.multinomial(network(inputs + 0.5).softmax(1), 1, generator=torch.manual_seed(1))[:, 0]
        >>> calibration, test = (inputs[:200], labels[:200]), (inputs[200:], labels[200:])
        >>> starts = {"small": RandomStart(0.01), "large": RandomStart(1.0)}
        >>> method = NeuralClamping(strength=0.1)
        >>> start_spread(method, network, calibration, test, seeds=(0, 1), starts=starts).values["ece"].shape
        torch.Size([2, 2])

    Reference:
        Neural Clamping, Section 4.3 and Fig. 3.
    """
    if not starts or not seeds:
        raise InputError(f"starts and seeds must name at least one each; got {len(starts)} and {len(seeds)}.")
    fits = _RepeatedFits(method, model, calibration, test, progress)
    lines: list[list[list[float]]] = []
    for name, start in starts.items():
        line: list[list[float]] = []
        for seed in seeds:
            variant = dataclasses.replace(method, start=start, seed=seed)
            if line and not _is_random(variant):
                line.append(line[0])
                continue
            fit = fits.fit(variant, f"{name} start, seed {seed}")
            measured = Tally(_MEASURED).add(fit.test).values()
            line.append([*(measured[metric.name] for metric in _MEASURED), fit.temperature, fit.norm])
        lines.append(line)
    *values, temperature, norm = torch.tensor(lines, dtype=torch.float64).unbind(dim=2)
    by_name = {metric.name: value for metric, value in zip(_MEASURED, values, strict=True)}
    return StartSpread(tuple(starts), tuple(seeds), by_name, temperature, norm, n=fits.sizes[0])


def _is_random(method: NeuralClamping) -> bool:
    """Return whether a seed can change the fit."""
    if not isinstance(method.solver, ExactSolver) or method.augmentation != "none":
        return True
    start = method.start
    return not (isinstance(start, ZeroStart) or (isinstance(start, DataDrivenStart) and start.eta != "quantile"))


class _Fit(NamedTuple):
    delta: Tensor
    head: Map  # on the CPU
    objective: float  # minimised, on the calibration samples without augmentation
    strength: float
    calibration: Predictions  # calibrated
    test: Predictions  # calibrated

    @property
    def temperature(self) -> float:
        """T; NaN where the head is another map."""
        return float(self.head.temperature) if isinstance(self.head, Scale) else math.nan

    @property
    def norm(self) -> float:
        """‖δ‖."""
        return float(self.delta.double().norm())


@final
class _RepeatedFits:
    """Fits variants of a method; where δ is 0 the network does not run again.

    A strength that the method cross-validates is chosen once, here, so that the variants differ in nothing else.
    """

    def __init__(
        self, method: NeuralClamping, model: nn.Module, calibration: object, test: object, progress: Progress | None
    ) -> None:
        self._model, self._progress = model, progress or (lambda _what, _passes: None)
        size = method.batch_size
        self._test = NetworkPredictions(model, test, space=method.space, batch_size=size)
        self._calibration = NetworkPredictions(model, calibration, space=method.space, batch_size=size)
        self._strength: float | None = None
        several = method.strength == "path" or isinstance(method.strength, tuple)
        if several and method.choose_by == "cross-validated-nll":
            chosen = method.fit(model, self._calibration.samples, progress=self._progress)
            assert chosen.summary is not None
            self._strength = chosen.summary.strength

    @property
    def sizes(self) -> tuple[int, int]:
        """Numbers of test and calibration samples."""
        return len(self._test), len(self._calibration)

    def fit(self, variant: NeuralClamping, name: str) -> _Fit:
        """Fit one variant; its name precedes every description of progress."""
        if self._strength is not None:
            variant = dataclasses.replace(variant, strength=self._strength)
        if variant.strength == math.inf:
            self._progress(f"{name}: the head alone", 0.0)
            delta = torch.zeros(self._calibration.samples.input_shape)
            without_delta = self._calibration.at(delta)
            gamma, strength = variant.gammas[0], math.inf
            head = HeadFit(variant.head, gamma).fit(without_delta.logits, without_delta.labels)
        else:
            clamped = variant.fit(
                self._model,
                self._calibration.samples,
                progress=lambda what, passes: self._progress(f"{name}: {what}", passes),
            )
            assert clamped.summary is not None
            gamma, strength = clamped.summary.gamma, clamped.summary.strength
            delta, head = clamped.delta, copy.deepcopy(clamped.head).cpu()
        calibration, test = (head.transform(runs.at(delta)) for runs in (self._calibration, self._test))
        objective = Objective(gamma, strength, variant.penalty, variant.clip)
        loss = float(objective.sample_losses(calibration.logits.double(), calibration.labels).mean())
        penalty = objective.penalty_of(delta) if bool(delta.any()) else 0.0  # also at an infinite strength
        return _Fit(delta, head, loss + penalty, strength, calibration, test)
