"""Neural Clamping: a frozen network calibrated at both ends, by one δ added to every input and a map of its logits."""

import dataclasses
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from numbers import Real
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias, final, get_args

import numpy as np
from torch import nn

from calibrant.calibrators import Calibrator, TemperatureScaling
from calibrant.calibrators.base import gathered_warnings
from calibrant.checks import check_at_least, check_known, check_real_number, check_seed
from calibrant.clamping.clamped.clamped_model import ClampedModel
from calibrant.clamping.clamped.summary import ClampingSummary, caveats_of
from calibrant.clamping.fit.fitting import run_fit
from calibrant.clamping.learning.descent import ExactSolver
from calibrant.clamping.learning.freedom import Freedom, FullFreedom
from calibrant.clamping.learning.heads import HeadFit
from calibrant.clamping.learning.objective import Penalty
from calibrant.clamping.learning.stochastic import StochasticSolver
from calibrant.clamping.network.augmentation import Augmentation
from calibrant.clamping.network.input_space import InputSpace
from calibrant.clamping.theory.starts import RandomStart, Start, ZeroStart
from calibrant.errors import Argument, InputError
from calibrant.inference import CalibrationSamples
from calibrant.paper import Paper

__all__ = ["GAMMA_POOL", "ChooseBy", "NeuralClamping", "Progress", "StrengthRule"]

StrengthRule: TypeAlias = Literal["path", "tenth-of-loss", "tenth-as-term"]
ChooseBy: TypeAlias = Literal["cross-validated-nll", "calibration-ece"]
Progress: TypeAlias = Callable[[str, float], None]

# Beyond this, clipping would bend the loss that a temperature is solved for.
_MOST_CLIP = 1e-3

# The candidates for γ in the paper's Section 3.3.
GAMMA_POOL = tuple(step / 20 for step in range(21))


@final
@dataclass(frozen=True)
class NeuralClamping:
    """Add one learned δ to every input of a frozen network, and calibrate its logits there: softmax(f(x + δ) / T).

    The paper's method with a solver and a choice of λ of our own: T (or another head) is solved exactly for every δ, δ
    goes to its optimum with a certificate, and how tightly it is held is chosen by log-loss on rows it has not seen.
    Where δ helps by no more than chance, the answer is δ = 0, the head alone, and the summary says so. That is the
    usual answer for an image network with a few thousand calibration images: a free δ learns them by heart, and costs
    accuracy on others. Accuracy can change; with δ = 0 and a temperature it cannot.

    Formula: min over δ and T of Σ_i FL_γ(f(x_i + δ) / T, y_i) + λ ‖δ‖²  (eq. 9), λ = n · strength

    Args:
        head: What stands behind the network; solved anew for every δ. It must minimise the log-loss of all classes, and
            a penalty of its own at most (temperature, vector, svs, sms, ets).
        gamma: Of the focal loss; 0 is the cross-entropy. A tuple is tried in separate fits, for ``calibration-ece``.
        strength: Of the penalty, per row; infinity is the head alone. ``path`` tries up to 13, from strong to weak.
            A tuple is tried instead. ``tenth-of-loss`` and ``tenth-as-term`` are the two readings of the paper's rule:
            λ is a tenth of the initial loss, or the whole term is.
        choose_by: How to choose among several: the log-loss of held-out folds, or, as the paper does, the calibration
            error of the very rows that were fitted.
        penalty: ``squared`` as in eq. 9, or ``norm`` as in the authors' toolkit.
        clip: How far the toolkit keeps probabilities from 0 and 1; 0 as in the paper.
        freedom: How δ may vary.
        start: The first δ, where a single strength is fitted; cross-validation starts from 0.
        solver: Exact, or stochastic to reproduce the paper.
        augmentation: What is done to the calibration images while δ is learned; the head is fitted to them as they are.
        views: How many augmented copies of a row the exact solver sees, the same in every pass.
        space: What the network's inputs are, for starts and clipping that need their range.
        folds: Of the cross-validation.
        batch_size: Rows at a time; memory grows with it, and the answer depends on it by rounding only, unless the
            network mixes the rows of a batch, of which a warning tells. None: by their size.
        seed: Of folds, starts and orders.

    Raises:
        InputError: If options are out of range or do not go together.

    Example:
        >>> import torch
        >>> network = torch.nn.Linear(4, 3, dtype=torch.float64).eval()
        >>> inputs = torch.randn(1000, 4, dtype=torch.float64, generator=torch.manual_seed(0))
        >>> truth = network(inputs + 0.5)  # what the network should have been fed
        >>> labels = torch.multinomial(truth.softmax(dim=1), 1, generator=torch.manual_seed(1))[:, 0]
        >>> clamped = NeuralClamping().fit(network, (inputs, labels))
        >>> tuple(clamped(inputs).shape)
        (1000, 3)
    """

    name: ClassVar[str] = "neural_clamping"
    title: ClassVar[str] = "Neural Clamping"
    citation: ClassVar[Paper] = Paper(
        "Tang et al.",
        2024,
        "Neural Clamping: Joint Input Perturbation and Temperature Scaling for Neural Network Calibration",
        "arXiv:2209.11604",
        "eq. 9",
    )

    head: Calibrator = field(default_factory=TemperatureScaling)
    gamma: float | tuple[float, ...] = 0.0
    strength: float | tuple[float, ...] | StrengthRule = "path"
    choose_by: ChooseBy = "cross-validated-nll"
    penalty: Penalty = "squared"
    clip: float = 0.0
    freedom: Freedom = field(default_factory=FullFreedom)
    start: Start = field(default_factory=ZeroStart)
    solver: ExactSolver | StochasticSolver = field(default_factory=ExactSolver)
    augmentation: Augmentation = "none"
    views: int = 4
    space: InputSpace | None = None
    folds: int = 5
    batch_size: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for value, kind, name in (
            (self.head, Calibrator, "head"),
            (self.freedom, get_args(Freedom), "freedom"),
            (self.start, Start, "start"),
            (self.solver, (ExactSolver, StochasticSolver), "solver"),
            (self.space, (InputSpace, type(None)), "space"),
        ):
            if not isinstance(value, kind):
                raise InputError(f"{name} must be one of its kind, such as its default; got {value!r}.")
        for several, name in ((self.gamma, "gamma"), (self.strength, "strength")):
            if not (several if isinstance(several, tuple) else isinstance(several, str | Real)):
                raise InputError(f"{name} must be a number, or a tuple of several to choose from; got {several!r}.")
        gammas = tuple(check_real_number(gamma, "gamma", least=0) for gamma in self.gammas)
        for gamma in gammas:
            HeadFit(self.head, gamma)
        self._keep("gamma", gammas if isinstance(self.gamma, tuple) else gammas[0])
        if isinstance(self.strength, str):
            check_known(self.strength, get_args(StrengthRule), "strength")
        elif isinstance(self.strength, tuple):
            self._keep("strength", tuple(map(_checked_strength, self.strength)))
        else:
            self._keep("strength", _checked_strength(self.strength))
        check_known(self.choose_by, get_args(ChooseBy), "choose_by")
        check_known(self.penalty, get_args(Penalty), "penalty")
        check_known(self.augmentation, get_args(Augmentation), "augmentation")
        self._keep("clip", check_real_number(self.clip, "clip", least=0, most=_MOST_CLIP))
        self._keep("folds", check_at_least(self.folds, 2, "folds"))
        self._keep("views", check_at_least(self.views, 1, "views"))
        self._keep("seed", check_seed(self.seed))
        if self.batch_size is not None:
            self._keep("batch_size", check_at_least(self.batch_size, 1, "batch_size"))
        self._check_together()

    def _keep(self, name: str, value: object) -> None:
        """An option as Python's own number, which a file can hold, where a NumPy one was given."""
        object.__setattr__(self, name, value)

    @classmethod
    def paper(
        cls,
        *,
        gamma: float | tuple[float, ...] = 1.0,
        strength: float | tuple[float, ...] | StrengthRule = "tenth-of-loss",
        start: Start | None = None,
        space: InputSpace | None = None,
        seed: int = 0,
    ) -> "NeuralClamping":
        """The protocol of the paper to the letter: SGD at rate 0.001, batches of 512, 100 epochs, T from 1, sums.

        Args:
            gamma: The paper's default is 1; :data:`GAMMA_POOL` chooses as it does, by calibration error.
            strength: The paper's rule, in either reading, or candidates to choose from as well.
            start: Random if None; the paper does not tell the scale, the toolkit's default is 0.01.
            space: For starts that need it.
            seed: Of the start and the order.
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
        """The objective and settings of the demo of the authors' toolkit, as it is coded.

        Mean loss, the norm not squared, momentum 0.9, rate 0.01, batches of 1,000, λ = 0.01, probabilities clipped. The
        demo also crops, mirrors and cuts out parts of the calibration images; ``crop-flip`` is the nearest here.
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
        """The candidates for γ; usually one."""
        return self.gamma if isinstance(self.gamma, tuple) else (self.gamma,)

    def fit(
        self,
        model: nn.Module,
        data: object,
        *,
        folder: str | os.PathLike[str] | None = None,
        keep_folder: bool = False,
        progress: Progress | None = None,
    ) -> ClampedModel:
        """The network between δ and its head, fitted on rows that it was not trained on.

        The network comes back as it was, also after an error: its weights, modes and which of them take gradients.

        Args:
            model: Any module from inputs (n, ...) to logits (n, k); also to a tuple, or something with ``logits``.
            data: ``(inputs, labels)``, a ``Dataset`` or a ``DataLoader``, with inputs as the network takes them.
            folder: Remembers what was found, so that a fit that is killed goes on. Emptied as the last step before
                this returns.
            keep_folder: Leave what it remembers there, as ``.journal`` files to be deleted once the model is saved: a
                kill in between then costs nothing, and calling this again gives the same model at once.
            progress: Called with what is being done and how many passes over the rows it took so far.

        Raises:
            InputError: If the network does not take the inputs or gives no logits, or labels are out of range.
            FitError: If the head has no optimum (for example because every prediction is right), or a fit diverges.

        Warns:
            CalibrantWarning: If the optimum was not reached in the passes allowed, the start is 0 where it should not
                be, the network is in training mode or mixes the rows of a batch, or a stochastic solver cannot shuffle
                the rows.
        """
        if folder is not None and not isinstance(folder, str | os.PathLike):
            raise InputError(f"folder must be a path, or None to remember nothing; got {folder!r}.")
        if progress is not None and not callable(progress):
            raise InputError(f"progress must be a function of a text and a number; got {progress!r}.")
        begun = time.perf_counter()
        rows = CalibrationSamples.of(data, batch_size=self.batch_size)
        with gathered_warnings() as warned:
            found = run_fit(
                self,
                model,
                rows,
                folder=None if folder is None else Path(folder),
                keep_folder=keep_folder,
                progress=progress or (lambda _what, _passes: None),
            )
        summary = ClampingSummary(
            settings=self.settings(),
            n_samples=len(rows),
            seconds=time.perf_counter() - begun,
            certificate=found.certificate,
            strength=found.strength,
            gamma=found.gamma,
            trials=found.trials,
            notes=(*found.notes, *map(str, warned)),
            caveats=(*found.caveats, *caveats_of(warned)),
        )
        return ClampedModel(model, found.delta, found.head, space=self.space, summary=summary)

    def settings(self) -> dict[str, Any]:
        """The options, as a file can hold them."""
        return {each.name: _plain(getattr(self, each.name)) for each in dataclasses.fields(self)}

    def _check_together(self) -> None:
        several = isinstance(self.gamma, tuple) or isinstance(self.strength, tuple)
        if isinstance(self.gamma, tuple) and self.choose_by != "calibration-ece":
            raise InputError(
                "several gammas can only be chosen from by choose_by='calibration-ece', as in the paper: a held-out "
                "log-loss would always prefer gamma 0, which minimises it."
            )
        if self.strength == "path" and self.choose_by == "calibration-ece":
            raise InputError(
                Argument("strength", "path"), " is chosen by held-out log-loss; give candidates for calibration-ece."
            )
        if self.strength == "path" and self.penalty == "norm":
            raise InputError(
                Argument("strength", "path"),
                " has strengths for the squared penalty only; give some, or penalty='squared'.",
            )
        chooses = self.strength == "path" or isinstance(self.strength, tuple)
        if chooses and self.choose_by == "cross-validated-nll" and not isinstance(self.start, ZeroStart):
            raise InputError("start must be ZeroStart() where strengths are cross-validated, which begins at δ = 0.")
        if self.strength == "tenth-as-term" and isinstance(self.start, ZeroStart):
            raise InputError(
                Argument("strength", "tenth-as-term"),
                " divides by the size of the first δ; give a start that is not 0.",
            )
        if isinstance(self.solver, ExactSolver):
            return
        if self.strength == "path" or (several and self.choose_by == "cross-validated-nll"):
            raise InputError("the stochastic solver cannot be cross-validated; give a strength, or the exact solver.")
        if not isinstance(self.head, TemperatureScaling) or not isinstance(self.freedom, FullFreedom):
            raise InputError("the stochastic solver learns a free δ and a temperature; others need the exact solver.")


def _checked_strength(value: object) -> float:
    is_infinite = isinstance(value, Real) and value == math.inf
    return math.inf if is_infinite else check_real_number(value, "strength", least=0)


def _plain(value: object) -> Any:
    if isinstance(value, Calibrator):
        return {"method": value.name, **value.settings()}
    if isinstance(value, Start):
        return {name: _plain(each) for name, each in value.settings().items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        options = {name: _plain(each) for name, each in dataclasses.asdict(value).items()}
        return {"kind": type(value).__name__, **options}
    if isinstance(value, np.generic):
        return value.item()
    return list(value) if isinstance(value, tuple) else value
