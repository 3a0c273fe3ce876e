"""``NeuralClamping``: calibrate a frozen network by a δ added to its inputs and a map applied to its logits."""

import dataclasses
import json
import math
import os
import time
from dataclasses import dataclass, field, replace
from functools import partial
from numbers import Real
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, final, get_args

import numpy as np
import torch
from torch import Tensor, nn

from calibrant.calibrators import Calibrator, TemperatureScaling
from calibrant.calibrators.base import gathered_warnings
from calibrant.checks import AtLeastOne, AtLeastTwo, Seed, check_known, check_options, check_real_number
from calibrant.clamping import fitting
from calibrant.clamping.fitting import Journal
from calibrant.clamping.inputs import Augmentation, DeltaShape, InputPreparation, InputSpace, PerEntry
from calibrant.clamping.model import ClampedModel, caveats_of
from calibrant.clamping.objective import HeadFit, Objective, Penalty
from calibrant.clamping.passes import Passes
from calibrant.clamping.solver import ExactSolver, StochasticSolver
from calibrant.clamping.start import RandomStart, Start, ZeroStart
from calibrant.errors import Argument, Caveat, InputError
from calibrant.inference import LabelledInputs, check_network, frozen, warn_if_training
from calibrant.paper import TANG, Paper
from calibrant.processes import SINGLE_PROCESS, ProcessGroup

__all__ = ["GAMMA_POOL", "NeuralClamping"]

ChooseBy: TypeAlias = Literal["cross-validated-nll", "calibration-ece"]

# A larger clip would distort the loss that a temperature is solved for.
_MOST_CLIP = 1e-3

# The candidates for γ in the paper's Section 3.3.
GAMMA_POOL = tuple(step / 20 for step in range(21))

# A note on the size of δ looks at so many samples, and allows this fraction of x + δ outside the inputs' range.
_MOST_SAMPLES, _MOST_OUTSIDE = 512, 0.5


@final
@dataclass(frozen=True)
class NeuralClamping:
    """Add one learned δ to every input of a frozen network, and calibrate its logits there: softmax(f(x + δ) / T).

    The paper's method with another solver and choice of strength: T (or another head) is solved exactly for every δ, δ
    is fitted to its optimum with a certificate, and the strength of its penalty is chosen by log-loss on held-out
    samples. Where δ helps by no more than chance, the result is δ = 0, the head alone, and the summary says so. That is
    the usual result for an image network with a few thousand calibration images: a free δ overfits them, and costs
    accuracy on others. Accuracy can change; with δ = 0 and a temperature it cannot.

    Formula: min over δ and T of Σ_i FL_γ(f(x_i + δ) / T, y_i) + λ ‖δ‖²  (eq. 9), λ = n · strength

    Args:
        head: Calibrator of the network's logits, refitted for every δ. It must minimise the log-loss of all classes,
            with at most a penalty of its own (temperature, vector, svs, sms, ets).
        gamma: γ of the focal loss; 0 is the cross-entropy. A tuple is tried in separate fits, for ``calibration-ece``.
        strength: Strength of the penalty, λ per sample; infinity is the head alone. ``path`` tries up to 13, from
            strong to weak. A tuple is tried instead. ``tenth-of-loss`` and ``tenth-as-term`` are two readings of the
            paper's rule: λ is a tenth of the initial loss, or the whole term is.
        choose_by: Criterion among several: the log-loss of held-out folds, or, as in the paper, the calibration error
            of the calibration samples themselves.
        penalty: ``squared`` as in eq. 9, or ``norm`` as in the authors' toolkit.
        clip: Distance of probabilities from 0 and 1 in the toolkit; 0 as in the paper.
        delta_shape: Which numbers of δ are learned: every entry, one per channel, or low frequencies.
        start: The first δ, where a single strength is fitted; cross-validation starts from 0.
        solver: Exact, or stochastic to reproduce the paper.
        augmentation: Augmentation of the calibration images while δ is learned; the head is fitted without.
        views: Number of augmented copies of a sample for the exact solver, the same in every pass.
        space: Range of the network's inputs, for starts and clipping that need it.
        folds: Number of cross-validation folds.
        batch_size: Samples per batch; memory grows with it, and the result depends on it by rounding only, unless the
            network mixes the samples of a batch, which raises a warning. None: by their size.
        seed: Random seed of folds, starts and orders.

    Example:
        >>> import torch
        >>> network = torch.nn.Linear(4, 3, dtype=torch.float64).eval()
        >>> inputs = torch.randn(1000, 4, dtype=torch.float64, generator=torch.manual_seed(0))
        >>> truth = network(inputs + 0.5)  # the inputs it should have had
        >>> labels = torch.multinomial(truth.softmax(dim=1), 1, generator=torch.manual_seed(1))[:, 0]
        >>> clamped = NeuralClamping().fit(network, (inputs, labels))
        >>> tuple(clamped(inputs).shape)
        (1000, 3)
    """

    name: ClassVar[str] = "neural_clamping"
    title: ClassVar[str] = "Neural Clamping"
    paper: ClassVar[Paper] = TANG.at("eq. 9")

    head: Calibrator = field(default_factory=TemperatureScaling)
    gamma: float | tuple[float, ...] = 0.0
    strength: float | tuple[float, ...] | fitting.StrengthRule = "path"
    choose_by: ChooseBy = "cross-validated-nll"
    penalty: Penalty = "squared"
    clip: Annotated[float, partial(check_real_number, least=0, most=_MOST_CLIP)] = 0.0
    delta_shape: DeltaShape = field(default_factory=PerEntry)
    start: Start = field(default_factory=ZeroStart)
    solver: ExactSolver | StochasticSolver = field(default_factory=ExactSolver)
    augmentation: Augmentation = "none"
    views: AtLeastOne = 4
    space: InputSpace | None = None
    folds: AtLeastTwo = 5
    batch_size: AtLeastOne | None = None
    seed: Seed = 0

    def __post_init__(self) -> None:
        for name, kinds in {
            "head": (Calibrator,),
            "delta_shape": get_args(DeltaShape),
            "start": (Start,),
            "solver": (ExactSolver, StochasticSolver),
            "space": (InputSpace, type(None)),
        }.items():
            if not isinstance(value := getattr(self, name), kinds):
                expected = " or ".join("None" if kind is type(None) else kind.__name__ for kind in kinds)
                raise InputError(f"{name} must be of type {expected}; got {value!r}.", argument=name)
        for name, several in (("gamma", self.gamma), ("strength", self.strength)):
            if not (several if isinstance(several, tuple) else isinstance(several, str | Real)):
                raise InputError(
                    f"{name} must be a number, or a tuple of several to choose from; got {several!r}.", argument=name
                )
        gammas = tuple(check_real_number(gamma, "gamma", least=0) for gamma in self.gammas)
        for gamma in gammas:
            HeadFit(self.head, gamma)
        strength: object = self.strength
        if isinstance(strength, str):
            check_known(strength, get_args(fitting.StrengthRule), "strength")
        else:
            check = _checked_strength
            strength = tuple(map(check, strength)) if isinstance(strength, tuple) else check(strength)
        # The checked values: Python numbers, which JSON can hold.
        object.__setattr__(self, "gamma", gammas if isinstance(self.gamma, tuple) else gammas[0])
        object.__setattr__(self, "strength", strength)
        check_options(self)
        self._check_together()

    @classmethod
    def paper_protocol(
        cls,
        *,
        gamma: float | tuple[float, ...] = 1.0,
        strength: float | tuple[float, ...] | fitting.StrengthRule = "tenth-of-loss",
        start: Start | None = None,
        space: InputSpace | None = None,
        seed: int = 0,
    ) -> "NeuralClamping":
        """Return the paper's protocol: SGD at rate 0.001, batches of 512, 100 epochs, T from 1, summed losses.

        Args:
            gamma: The paper's default is 1; :data:`GAMMA_POOL` is chosen from by calibration error, as there.
            strength: The paper's rule, in either reading, or candidates to choose from as well.
            start: Random if None.
            space: Range of the inputs, for starts that need it.
            seed: Random seed of the start and the order.
        """
        return cls(
            gamma=gamma,
            strength=strength,
            choose_by="calibration-ece",
            start=start or RandomStart(),
            solver=StochasticSolver(),
            space=space,
            seed=seed,
        )

    @classmethod
    def toolkit(cls, *, gamma: float = 1.0, augmentation: Augmentation = "none", seed: int = 0) -> "NeuralClamping":
        """Return the objective and settings of the demo of the authors' toolkit, following its code.

        Mean loss, the norm not squared, momentum 0.9, rate 0.01, batches of 1,000, λ = 0.01, probabilities clipped. The
        demo also crops, mirrors and cuts out parts of the calibration images; ``crop-flip`` is the closest here.
        """
        return cls(
            gamma=gamma,
            strength=0.01,
            penalty="norm",
            clip=1e-7,
            choose_by="calibration-ece",
            start=RandomStart(scale=0.001),
            solver=StochasticSolver(learning_rate=0.01, momentum=0.9, batch_size=1000, reduction="mean"),
            augmentation=augmentation,
            seed=seed,
        )

    @property
    def gammas(self) -> tuple[float, ...]:
        """Candidates for γ; usually one."""
        return self.gamma if isinstance(self.gamma, tuple) else (self.gamma,)

    @property
    def _is_cross_validated(self) -> bool:
        chooses = self.strength == "path" or isinstance(self.strength, tuple)
        return chooses and self.choose_by == "cross-validated-nll"

    def fit(
        self,
        model: nn.Module,
        data: object,
        *,
        folder: str | os.PathLike[str] | None = None,
        keep_folder: bool = False,
        progress: fitting.Progress | None = None,
        processes: ProcessGroup = SINGLE_PROCESS,
    ) -> ClampedModel:
        """Fit δ and the head on samples that the network was not trained on.

        The network is restored afterwards, also after an error: its weights, modes and ``requires_grad``. Inside
        ``torch.autocast`` the network alone runs in low precision, as it will be used; δ, head and loss do not.

        Args:
            model: Any module from inputs (n, ...) to logits (n, k); also to a tuple, or something with ``logits``.
            data: ``(inputs, labels)``, a ``Dataset`` or a ``DataLoader``, with inputs as the network takes them.
            folder: Folder of the journal, from which an interrupted fit resumes. Emptied as the last step before this
                returns.
            keep_folder: Whether to keep the ``.journal`` files, to be deleted once the model is saved: an interruption
                in between then costs nothing, and calling this again gives the same model at once.
            progress: Called with a description of the step and the number of passes over the samples so far.
            processes: The processes that fit the same δ, each on a part of every pass; all of them call this with the
                same network and samples, and get the same result. Only the first writes the journal.

        Raises:
            FitError: If the head has no optimum (for example because every prediction is right), or a fit diverges.

        Warns:
            CalibrantWarning: If the optimum was not reached, a data-driven start is 0, the network is in training mode
                or mixes the samples of a batch, or a stochastic solver cannot shuffle the samples.
        """
        if folder is not None and not isinstance(folder, str | os.PathLike):
            raise InputError(f"folder must be a path, or None for no journal; got {folder!r}.", argument="folder")
        if progress is not None and not callable(progress):
            raise InputError(f"progress must be a function of a text and a number; got {progress!r}.")
        began = time.perf_counter()
        with processes.agreed():
            samples = LabelledInputs.of(data, batch_size=self.batch_size)
        if progress is None or not processes.is_first:
            progress = lambda _what, _passes: None  # noqa: E731  # a default
        with gathered_warnings() as warned:
            warn_if_training(model)
            with frozen(model):
                with processes.agreed():
                    run = self._prepare(model, samples, folder, progress, processes)
                if processes.count > 1:
                    identity = json.dumps(fitting.fit_fingerprint(run.settings, model, samples))
                    processes.check_same(identity, "network, samples and options")
                result = self._fit(run)
                if not keep_folder:
                    run.journal.clear()
        summary = replace(result.summary, seconds=time.perf_counter() - began)
        summary = summary.noted(*map(str, warned), caveats=caveats_of(warned))
        return ClampedModel(model, result.delta, result.head, space=self.space, summary=summary)

    def settings(self) -> dict[str, Any]:
        return {option.name: _plain(getattr(self, option.name)) for option in dataclasses.fields(self)}

    def _prepare(
        self, model: nn.Module, samples: LabelledInputs, folder: str | os.PathLike[str] | None,
        progress: fitting.Progress, processes: ProcessGroup,
    ) -> fitting.FitRun:  # fmt: skip
        """Check that the network and the samples go together, and open the journal."""
        step = None if isinstance(self.solver, ExactSolver) else self.solver.batch_size
        if self.space is not None:
            self.space.check_samples(samples)
        check_network(model, samples, batch_size=step)
        passes = Passes(
            model,
            samples,
            preparation=InputPreparation(self.space, self.augmentation, self.views, self.seed),
            batch_size=self.batch_size,
            precision=self.solver.precision if isinstance(self.solver, ExactSolver) else "float32",
            processes=processes,
        )
        settings, objective = self.settings(), Objective(penalty=self.penalty, clip=self.clip)
        journal = Journal(None, {})
        if folder is not None:
            journal = Journal(Path(folder), fitting.fit_fingerprint(settings, model, samples), processes)
        dtype = torch.promote_types(samples.input_dtype, torch.float32)
        zero = torch.zeros(samples.input_shape, dtype=dtype, device=passes.device)
        basis = self.delta_shape.basis(zero)
        return fitting.FitRun(
            passes, basis, self.head, zero, self.solver, self.start, objective, settings, journal, progress
        )

    def _fit(self, run: fitting.FitRun) -> fitting.FitResult:
        if self._is_cross_validated:
            strengths = self.strength if isinstance(self.strength, tuple) else None
            result = fitting.fit_cross_validated(run, self.gammas[0], strengths, folds=self.folds)
        else:
            candidates = self.strength if isinstance(self.strength, tuple) else (self.strength,)
            result = fitting.fit_candidates(run, self.gammas, candidates)
        if note := _size_note(result.delta, run.passes.samples):
            result = result._replace(summary=result.summary.noted(note, caveats=[Caveat.delta_too_large]))
        return result

    def _check_together(self) -> None:
        if isinstance(self.gamma, tuple) and self.choose_by != "calibration-ece":
            raise InputError(
                "several gammas can only be chosen from by choose_by='calibration-ece', as in the paper: a held-out "
                "log-loss would always prefer gamma 0, which minimises it."
            )
        path, term = Argument("strength", "path"), Argument("strength", "tenth-as-term")
        if self.strength == "path" and self.choose_by == "calibration-ece":
            raise InputError(path, " is chosen by held-out log-loss; give candidates for calibration-ece.")
        if self.strength == "path" and self.penalty == "norm":
            raise InputError(path, " has strengths for the squared penalty only; give some, or penalty='squared'.")
        if self._is_cross_validated and not isinstance(self.start, ZeroStart):
            raise InputError("start must be ZeroStart() where strengths are cross-validated, which begins at δ = 0.")
        if self.strength == "tenth-as-term" and isinstance(self.start, ZeroStart):
            raise InputError(term, " divides by the size of the first δ; give a start that is not 0.")
        is_stochastic = isinstance(self.solver, StochasticSolver)
        if is_stochastic and self._is_cross_validated:
            raise InputError("the stochastic solver cannot be cross-validated; give a strength, or the exact solver.")
        is_free = isinstance(self.head, TemperatureScaling) and isinstance(self.delta_shape, PerEntry)
        if is_stochastic and not is_free:
            raise InputError("the stochastic solver learns a free δ and a temperature; others need the exact solver.")


def _checked_strength(value: object) -> float:
    is_infinite = isinstance(value, Real) and value == math.inf
    return math.inf if is_infinite else check_real_number(value, "strength", least=0)


def _plain(value: object) -> Any:
    if isinstance(value, Calibrator):
        return {"method": value.name, **value.settings()}
    if isinstance(value, Start):
        return {name: _plain(option) for name, option in value.settings().items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        options = {name: _plain(option) for name, option in dataclasses.asdict(value).items()}
        return {"kind": type(value).__name__, **options}
    if isinstance(value, np.generic):
        return value.item()
    return list(value) if isinstance(value, tuple) else value


def _size_note(delta: Tensor, samples: LabelledInputs) -> str | None:
    """Return a note on a δ that is so large that it dominates the inputs; usually None."""
    if not bool(delta.any()):
        return None
    chosen = torch.arange(0, len(samples), -(-len(samples) // _MOST_SAMPLES))
    norms, ends, delta = [], [], delta.double().cpu()
    for inputs, _ in samples.batches(chosen, device="cpu"):
        norms.append(inputs.double().flatten(1).norm(dim=1))
        ends.append(torch.stack(inputs.double().aminmax()))
    typical, own = float(torch.cat(norms).median()), float(delta.norm())
    low, high = float(torch.stack(ends).min()), float(torch.stack(ends).max())
    outside = [
        ((inputs.double() + delta < low) | (inputs.double() + delta > high)).flatten(1).double().mean(dim=1)
        for inputs, _ in samples.batches(chosen, device="cpu")
    ]
    share = float(torch.cat(outside).mean())
    reasons = []
    if own > typical:
        reasons.append(f"‖δ‖ = {own:.3g} is more than the norm of a typical input, {typical:.3g}")
    if share > _MOST_OUTSIDE:
        reasons.append(f"{share:.0%} of the numbers in x + δ lie outside the inputs' range, {low:.3g} to {high:.3g}")
    return f"{', and '.join(reasons)}: δ dominates the inputs. Give a larger strength." if reasons else None
