"""The clamped model: a frozen network with δ before it and a map behind it; the summary of its fit; its predictions."""

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Self, final

import torch
from torch import Tensor, nn

from calibrant.checks import check_at_least
from calibrant.clamping.inputs import InputPreparation, InputSpace, add_delta, upgraded_settings
from calibrant.clamping.passes import Passes
from calibrant.errors import CalibrantWarning, Caveat, InputError
from calibrant.inference import CalibrationSamples, check_network, frozen, is_training, logits_in
from calibrant.maps import Map, Scale
from calibrant.numerics.newton import Certificate
from calibrant.numerics.softmax import working
from calibrant.predictions import Predictions

__all__ = ["ClampedModel", "ClampingOutcome", "ClampingSummary", "ForwardRuns", "StrengthTrial", "caveats_of"]

_COARSE = 4  # bytes per number; fewer are too few digits for δ


class ClampingOutcome(StrEnum):
    """Whether δ helps, on samples that δ had not seen."""

    helps = "helps"
    no_help = "no_help"
    untried = "untried"  # cross-validation was not possible, so δ is 0
    not_asked = "not_asked"  # the strength was given, or chosen on the samples of the fit


@final
@dataclass(frozen=True)
class StrengthTrial:
    """One strength λ of the penalty on δ, evaluated on held-out samples.

    Args:
        strength: λ, per mean loss; infinity is temperature scaling.
        change: Change of the cross-validated log-loss against λ = ∞; below 0 is better.
        standard_error: Standard error of the change.
        norm: ‖δ‖.
    """

    strength: float
    change: float
    standard_error: float
    norm: float


@final
@dataclass(frozen=True)
class ClampingSummary:
    """Record of a fit of Neural Clamping.

    Args:
        settings: Options of the method, as plain values and lists.
        n_samples: Number of samples it was fitted on.
        seconds: Duration of the fit.
        certificate: Certificate of the optimum over δ; None where there was nothing to minimise.
        strength: The λ chosen; infinity if δ did not help.
        gamma: γ of the focal loss; 0 is the log-loss.
        trials: Every λ tried.
        notes: Remarks on the result, in sentences. Where strengths were cross-validated, the first states the outcome.
        caveats: Kinds of the notes that change how the result is to be read.
    """

    settings: dict[str, Any]
    n_samples: int
    seconds: float
    certificate: Certificate | None
    strength: float
    gamma: float
    trials: tuple[StrengthTrial, ...] = ()
    notes: tuple[str, ...] = ()
    caveats: tuple[Caveat, ...] = ()

    @property
    def outcome(self) -> ClampingOutcome:
        """Whether δ helps, as far as the calibration samples show it."""
        given = self.settings.get("strength")
        cross_validated = given == "path" or isinstance(given, list)
        if not cross_validated or self.settings.get("choose_by", "cross-validated-nll") != "cross-validated-nll":
            return ClampingOutcome.not_asked
        if not self.trials:
            return ClampingOutcome.untried
        return ClampingOutcome.no_help if math.isinf(self.strength) else ClampingOutcome.helps

    def as_dict(self) -> dict[str, Any]:
        """Return plain values; infinities stay numbers.

        Example:
            >>> summary = ClampingSummary({}, 100, 1.5, None, strength=3.0, gamma=0.0)
            >>> ClampingSummary.from_dict(summary.as_dict()) == summary
            True
        """
        certificate = None if self.certificate is None else self.certificate._asdict()
        trials = [asdict(trial) for trial in self.trials]
        lists = {"trials": trials, "notes": list(self.notes), "caveats": [str(caveat) for caveat in self.caveats]}
        return vars(self) | {"certificate": certificate} | lists

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Self:
        """Rebuild a summary from :meth:`as_dict`, also of earlier versions.

        Raises:
            InputError: If a number is missing, or below 0.
        """
        plain = {"n_samples": plain.get("rows"), **plain}  # the name in files of version 2 and before
        certificate = plain["certificate"]
        known = {str(caveat): caveat for caveat in Caveat}  # earlier versions wrote none, later ones may write others
        trials = tuple(StrengthTrial(**trial) for trial in plain["trials"])
        for name in ("n_samples", "seconds", "strength", "gamma"):
            _check_from_zero(plain[name], name)
        for trial in trials:
            for name in ("strength", "standard_error", "norm"):
                _check_from_zero(getattr(trial, name), name)
        return cls(
            settings=upgraded_settings(plain["settings"]),
            n_samples=check_at_least(plain["n_samples"], 0, "n_samples"),
            seconds=float(plain["seconds"]),
            certificate=None if certificate is None else Certificate(**certificate),
            strength=float(plain["strength"]),
            gamma=float(plain["gamma"]),
            trials=trials,
            notes=tuple(map(str, plain["notes"])),
            caveats=tuple(known[name] for name in plain.get("caveats", ()) if name in known),
        )


def caveats_of(warned: Sequence[CalibrantWarning]) -> tuple[Caveat, ...]:
    """Return the kinds of the warnings that have one, each once."""
    return tuple(dict.fromkeys(warning.caveat for warning in warned if warning.caveat is not None))


def _check_from_zero(value: object, name: str) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool) or value < 0:
        raise InputError(f"{name} must be a number from 0; got {value!r}.")


@final
class ClampedModel(nn.Module):
    """Inputs in, calibrated logits out: ``head(model(x + δ))``, where the head of Neural Clamping is a division by T.

    The same δ is added to every input, in the units of the network's inputs. Unlike a map of logits alone it can change
    predictions, and so the accuracy. With δ = 0, also if it becomes 0 later, it is ``nn.Sequential(model, head)`` to
    the last bit: the sum changes nothing, and nothing is clipped.

    The network is the very module given, not copied, and keeps its mode; the clamped model takes that mode. ``train()``
    and ``eval()`` then work as for any module, and in training mode dropout and batch statistics change the
    predictions. δ and the head are buffers, in the ``state_dict`` together with the network; casts to fewer digits than
    float32, such as ``bfloat16()``, leave them alone, and δ takes the inputs' type where it is added.
    :func:`torch.compile` and :func:`torch.export.export` see code without data-dependent branches.

    Args:
        model: Any network that takes one tensor, (n, ...), and gives logits; see
            :func:`~calibrant.inference.logits_in`.
        delta: δ, of the shape of one input, without a batch axis; finite.
        head: A fitted map of the network's logits.
        space: Range of the inputs; if it clips, x + δ is clipped to it.
        summary: Record of the fit.

    Raises:
        InputError: If any of that does not hold.

    Example:
        >>> network = nn.Linear(2, 3).eval()
        >>> clamped = ClampedModel(network, torch.tensor([0.1, 0.0]), Scale(torch.tensor(2.0), n_classes=3))
        >>> inputs = torch.randn(5, 2)
        >>> torch.equal(clamped(inputs), network(inputs + torch.tensor([0.1, 0.0])) / 2)
        True
        >>> clamped.temperature
        2.0

    Reference:
        Neural Clamping, section 3.1.
    """

    delta: Tensor
    lowest: Tensor | None
    highest: Tensor | None

    def __init__(
        self,
        model: nn.Module,
        delta: Tensor,
        head: Map,
        *,
        space: InputSpace | None = None,
        summary: ClampingSummary | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(model, nn.Module):
            raise InputError(f"model must be a torch.nn.Module; got {type(model).__name__}.")
        if not isinstance(head, Map):
            raise InputError(f"head must be a fitted map of logits (calibrant.maps); got {type(head).__name__}.")
        if not isinstance(delta, Tensor) or not delta.is_floating_point():
            got = delta.dtype if isinstance(delta, Tensor) else type(delta).__name__
            raise InputError(f"delta must be a tensor of floating point; got {got}.")
        if not delta.isfinite().all():
            raise InputError("delta must be finite; got NaN or infinity in it. The fit that made it diverged.")
        self.model, self.head = model, head.train(is_training(model))
        self._space, self.summary = space, summary
        # A copy in float32 or float64.
        self.register_buffer("delta", working(delta.detach()).clone(memory_format=torch.contiguous_format))
        # Computed without clipping too, to check the normalisation's channels.
        low, high = (None, None) if space is None else space.bounds(self.delta)
        clips = space is not None and space.clips
        self.register_buffer("lowest", low if clips else None, persistent=False)
        self.register_buffer("highest", high if clips else None, persistent=False)
        self.training = is_training(model)

    @property
    def space(self) -> InputSpace | None:
        """Range of the inputs; it cannot be set, as its bounds are computed once."""
        return self._space

    @property
    def temperature(self) -> float:
        """T, where the head is a division by it.

        Raises:
            InputError: If the head is another map.
        """
        if not isinstance(self.head, Scale):
            raise InputError(
                f"only a head that divides by a temperature (Scale) has one; this one is {type(self.head).__name__}. "
                "Look at its own buffers."
            )
        return float(self.head.temperature)

    def perturbed(self, inputs: Tensor) -> Tensor:
        """Return the network's input x + δ, clipped where the space says so; (n, ...) -> the same.

        Raises:
            InputError: If the inputs are of another shape than δ, or not of floating point.
        """
        if not isinstance(inputs, Tensor) or not inputs.is_floating_point():
            got = inputs.dtype if isinstance(inputs, Tensor) else type(inputs).__name__
            raise InputError(
                f"inputs must be a tensor of floating point, as the network takes them; got {got}. δ cannot be added "
                "to whole numbers, such as tokens."
            )
        if inputs.shape[1:] != self.delta.shape:
            raise InputError(
                f"inputs must have the shape (n, {', '.join(map(str, self.delta.shape))}) of the δ that is added to "
                f"each; got {tuple(inputs.shape)}."
            )
        if self.lowest is None or self.highest is None:
            return add_delta(inputs, self.delta)
        is_zero = ~self.delta.any()
        ends = self.lowest.masked_fill(is_zero, -math.inf), self.highest.masked_fill(is_zero, math.inf)
        return add_delta(inputs, self.delta, ends)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return calibrated logits, (n, ...) -> (n, k), in the type of the network's."""
        logits: Tensor = self.head(logits_in(self.model(self.perturbed(inputs))))
        return logits

    def probs(self, inputs: Tensor) -> Tensor:
        """Return calibrated probabilities, (n, ...) -> (n, k), in float32 or float64 whatever the network's type."""
        logits: Tensor = self.head(working(logits_in(self.model(self.perturbed(inputs)))))
        return logits.softmax(dim=1)

    def train(self, mode: bool = True) -> Self:
        """Set training mode. An exported network keeps its mode; only the flag changes."""
        self.training = mode
        for part in self.children():
            try:
                part.train(mode)
            except NotImplementedError:  # raised by an exported network
                for module in part.modules():
                    module.training = mode
        return self

    def extra_repr(self) -> str:
        """Return what is shown inside the brackets of the module's name."""
        return f"delta={tuple(self.delta.shape)}, norm={float(self.delta.norm()):.4g}"

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Apply ``to``, ``half``, ``cuda`` and the like to every tensor; δ keeps its digits."""
        before = dict(self.named_buffers(recurse=False))
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, values in before.items():
            after = self.get_buffer(name)
            if after.element_size() < _COARSE:
                setattr(self, name, values.to(after.device))
        return self


@final
class ForwardRuns:
    """Predictions of a network for the same samples at one δ after another.

    Logits come to the CPU, in full precision, and a head is applied to them there: however many heads are evaluated at
    one δ, the network runs once. Those of δ = 0 are kept. A few samples are tried at the beginning, so that a test set
    that does not fit the network is found before a long fit and not after it.

    Args:
        model: Network from inputs to logits; it is restored afterwards.
        data: As ``NeuralClamping.fit`` takes them.
        space: Range of the inputs; if it clips, x + δ is clipped, but not where δ is 0.
        batch_size: Samples per batch; None for the data's default.
        class_names: One per class, for the predictions.

    Raises:
        InputError: If the network does not take the inputs or gives no logits for the labels, or inputs lie outside the
            space.

    Example:
        >>> runs = ForwardRuns(nn.Linear(2, 3), (torch.rand(5, 2), [0, 1, 2, 1, 0]))
        >>> runs.at(torch.zeros(2)).logits.shape
        torch.Size([5, 3])
    """

    def __init__(
        self,
        model: nn.Module,
        data: object,
        *,
        space: InputSpace | None = None,
        batch_size: int | None = None,
        class_names: Sequence[str] | None = None,
    ) -> None:
        self.samples = CalibrationSamples.of(data, batch_size=batch_size)
        self._model, self._space, self._class_names = model, space, class_names
        self._without_delta: Predictions | None = None
        with frozen(model):
            if space is not None:
                space.check_samples(self.samples)
            check_network(model, self.samples)

    def __len__(self) -> int:
        return len(self.samples)

    def at(self, delta: Tensor) -> Predictions:
        """Return the network's own logits at x + δ, before any head, with the labels.

        Raises:
            InputError: If δ is not of the inputs' shape, or a logit is not finite.
        """
        if tuple(delta.shape) != self.samples.input_shape:
            raise InputError(
                f"inputs must have the shape of δ, {tuple(delta.shape)}; got {self.samples.input_shape}. Prepare both "
                "sets of samples in the same way."
            )
        if bool(delta.any()):
            return self._run(delta, self._space)
        if self._without_delta is None:
            self._without_delta = self._run(delta, None)  # a clamped model whose δ is 0 clips nothing either
        return self._without_delta

    def at_zero(self) -> Predictions:
        """Return the network's own logits.

        Raises:
            InputError: If one is not finite.
        """
        return self.at(torch.zeros(self.samples.input_shape))

    def behind(self, clamped: ClampedModel) -> Predictions:
        """Return the calibrated logits of a clamped model around this network.

        Raises:
            InputError: As :meth:`at`.
        """
        return copy.deepcopy(clamped.head).cpu().transform(self.at(clamped.delta))

    def _run(self, delta: Tensor, space: InputSpace | None) -> Predictions:
        with frozen(self._model), torch.no_grad():
            passes = Passes(self._model, self.samples, preparation=InputPreparation(space))
            logits = passes.precise_logits(delta.to(passes.device)).cpu()
        return Predictions.from_logits(logits, self.samples.labels, class_names=self._class_names)
