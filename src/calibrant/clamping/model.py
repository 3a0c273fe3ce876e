"""The clamped model: a frozen network, δ added to its inputs, a map applied to its logits; its summary; its file.

The file is one safetensors file. Its tensors are ``delta``, those of the head's ``state_dict`` after ``head.``, and
optionally those of the network's after ``network.``. The metadata has one JSON document under the key ``calibrant``:
the format's version, the structure of the head, the range of the inputs, the summary of the fit, and a fingerprint of
the network it was fitted for. A digest of all of it is checked on reading. Nothing in a file is executed.
"""

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any, Never, Self, final

import torch
from torch import Tensor, nn

from calibrant import inference
from calibrant.checks import check_at_least, check_bool, existing_file
from calibrant.clamping.inputs import InputSpace, add_delta
from calibrant.errors import CalibrantWarning, Caveat, InputError, reading
from calibrant.files.map_file import Container, check_map, describe, describe_fit, read_fit, rebuild
from calibrant.maps import Map, Scale
from calibrant.numerics.newton import Certificate
from calibrant.numerics.softmax import to_working_precision

__all__ = [
    "ClampedModel", "ClampingOutcome", "ClampingSummary", "StrengthTrial", "caveats_of", "load_clamped", "save_clamped",
]  # fmt: skip


class ClampingOutcome(StrEnum):
    """Whether δ helps on held-out samples."""

    helps = "helps"
    no_help = "no_help"
    cross_validation_failed = "cross_validation_failed"  # so δ is 0
    not_cross_validated = "not_cross_validated"  # the strength was given, or chosen on the samples of the fit


@final
@dataclass(frozen=True)
class StrengthTrial:
    """One strength of the penalty on δ, evaluated on held-out samples."""

    strength: float  # per sample, as in NeuralClamping; infinity: the head alone
    change: float  # change of the cross-validated log-loss against the head alone; below 0 is better
    standard_error: float  # standard error of the change
    norm: float  # ‖δ‖


@final
@dataclass(frozen=True)
class ClampingSummary:
    """Record of a fit of Neural Clamping."""

    settings: dict[str, Any]  # options of the method, as plain values and lists
    n_samples: int  # number of calibration samples
    seconds: float
    certificate: Certificate | None  # where the descent in δ stopped; None where δ was not fitted
    strength: float  # the chosen one, per sample; infinity: δ = 0
    gamma: float  # γ of the focal loss; 0 is the log-loss
    trials: tuple[StrengthTrial, ...] = ()  # every strength that was cross-validated
    notes: tuple[str, ...] = ()  # sentences about the fit; the outcome has its own
    caveats: tuple[Caveat, ...] = ()  # kinds of the notes that change how the result is to be read
    outcome: ClampingOutcome = ClampingOutcome.not_cross_validated
    outcome_note: str = ""  # the outcome in words; empty where strengths were not cross-validated
    head_is_optimal: bool = True  # whether the head minimises the log-loss at δ: not after a focal or stochastic fit

    @property
    def all_notes(self) -> tuple[str, ...]:
        """The outcome in words, if there is one, and the notes."""
        return (self.outcome_note, *self.notes) if self.outcome_note else self.notes

    def noted(self, *notes: str, caveats: Iterable[Caveat] = ()) -> Self:
        """Return the summary with more notes and caveats."""
        return replace(self, notes=(*self.notes, *notes), caveats=(*self.caveats, *caveats))

    def as_dict(self) -> dict[str, Any]:
        """Return plain values; infinities stay numbers."""
        certificate = None if self.certificate is None else self.certificate._asdict()
        trials = [asdict(trial) for trial in self.trials]
        lists = {"trials": trials, "notes": list(self.notes), "caveats": [str(caveat) for caveat in self.caveats]}
        return vars(self) | {"certificate": certificate, "outcome": str(self.outcome)} | lists

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Self:
        """Rebuild a summary from :meth:`as_dict`; numbers below 0 are refused."""
        certificate = plain["certificate"]
        known = {str(caveat): caveat for caveat in Caveat}  # later versions may write others
        trials = tuple(StrengthTrial(**trial) for trial in plain["trials"])
        numbers = [(name, plain[name]) for name in ("n_samples", "seconds", "strength", "gamma")]
        numbers += [(name, getattr(trial, name)) for trial in trials for name in ("strength", "standard_error", "norm")]
        for name, value in numbers:
            if not isinstance(value, int | float) or isinstance(value, bool) or value < 0:
                raise InputError(f"{name} must be a number from 0; got {value!r}.")
        check_bool(plain["head_is_optimal"], "head_is_optimal")
        return cls(
            settings=plain["settings"],
            n_samples=check_at_least(plain["n_samples"], 0, "n_samples"),
            seconds=float(plain["seconds"]),
            certificate=None if certificate is None else Certificate(**certificate),
            strength=float(plain["strength"]),
            gamma=float(plain["gamma"]),
            trials=trials,
            notes=tuple(map(str, plain["notes"])),
            caveats=tuple(known[name] for name in plain["caveats"] if name in known),
            outcome=ClampingOutcome(plain["outcome"]),
            outcome_note=str(plain["outcome_note"]),
            head_is_optimal=plain["head_is_optimal"],
        )


def caveats_of(warned: Sequence[CalibrantWarning]) -> tuple[Caveat, ...]:
    """Return the distinct caveats of the warnings that have one."""
    return tuple(dict.fromkeys(warning.caveat for warning in warned if warning.caveat is not None))


@final
class ClampedModel(nn.Module):
    """A network from inputs to calibrated logits: ``head(model(x + δ))``; the paper's head (section 3.1) divides by T.

    The same δ is added to every input, in the units of the network's inputs. Unlike a map of logits alone it can change
    predictions, and so the accuracy. With δ = 0, also if it becomes 0 later, it is ``nn.Sequential(model, head)`` to
    the last bit, and nothing is clipped.

    The network is the very module given, not copied, whose mode the clamped model takes. In training mode dropout and
    batch statistics change the predictions. δ and the head are buffers; casts to fewer digits than float32, such as
    ``bfloat16()``, leave them alone, and δ takes the inputs' type where it is added. :func:`torch.compile` and
    :func:`torch.export.export` see code without data-dependent branches.

    Args:
        model: Any network that takes one tensor, (n, ...), and gives logits; see
            :func:`~calibrant.inference.extract_logits`.
        delta: δ, of the shape of one input, without a batch axis; finite.
        head: A fitted map of the network's logits.
        space: Range of the inputs; if it clips, x + δ is clipped to it.
        summary: Record of the fit.

    Example:
        >>> network = nn.Linear(2, 3).eval()
        >>> clamped = ClampedModel(network, torch.tensor([0.1, 0.0]), Scale(torch.tensor(2.0), n_classes=3))
        >>> inputs = torch.randn(5, 2)
        >>> torch.equal(clamped(inputs), network(inputs + torch.tensor([0.1, 0.0])) / 2)
        True
        >>> clamped.temperature
        2.0
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
            raise InputError(f"delta must be a tensor of floating point; got {_kind(delta)}.")
        if not delta.isfinite().all():
            raise InputError("delta must be finite; got NaN or infinity in it. The fit that made it diverged.")
        self.model, self.head = model, head.train(inference.is_training(model))
        self._space, self.summary = space, summary
        # A copy in float32 or float64.
        self.register_buffer("delta", to_working_precision(delta.detach()).clone(memory_format=torch.contiguous_format))
        # Computed without clipping too, to check the normalisation's channels.
        ends = (None, None) if space is None else space.bounds(self.delta)
        for name, end in zip(("lowest", "highest"), ends, strict=True):
            self.register_buffer(name, end if space is not None and space.clips else None, persistent=False)
        self.training = inference.is_training(model)

    @property
    def space(self) -> InputSpace | None:
        """Range of the inputs; it cannot be set, as its bounds are computed once."""
        return self._space

    @property
    def temperature(self) -> float:
        """T, where the head is a division by it; an InputError for another head."""
        if not isinstance(self.head, Scale):
            raise InputError(f"the head must be a temperature (Scale) to have one; it is {type(self.head).__name__}.")
        return float(self.head.temperature)

    def perturbed(self, inputs: Tensor) -> Tensor:
        """Return the network's input x + δ, clipped where the space says so; (n, ...) -> the same."""
        if not isinstance(inputs, Tensor) or not inputs.is_floating_point():
            raise InputError(
                f"inputs must be a tensor of floating point, as the network takes them; got {_kind(inputs)}. δ cannot "
                "be added to whole numbers, such as tokens."
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
        """Return calibrated logits, (n, ...) -> (n, k), in the type of the network's logits."""
        return self.head(inference.extract_logits(self.model(self.perturbed(inputs))))

    def probs(self, inputs: Tensor) -> Tensor:
        """Return calibrated probabilities, (n, ...) -> (n, k), in float32 or float64 whatever the network's type."""
        logits: Tensor = self.head(to_working_precision(inference.extract_logits(self.model(self.perturbed(inputs)))))
        return logits.softmax(dim=1)

    def train(self, mode: bool = True) -> Self:
        """Set training mode; of an exported network, which keeps its mode, only the flag changes."""
        self.training = mode
        for part in self.children():
            try:
                part.train(mode)
            except NotImplementedError:  # raised by an exported network
                for module in part.modules():
                    module.training = mode
        return self

    def extra_repr(self) -> str:
        return f"delta={tuple(self.delta.shape)}, norm={float(self.delta.norm()):.4g}"

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Apply ``to``, ``half``, ``cuda`` and the like to every tensor; δ keeps its digits."""
        before = dict(self.named_buffers(recurse=False))
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, values in before.items():
            after = self.get_buffer(name)
            if after.element_size() < 4:  # bytes: fewer are too few digits
                setattr(self, name, values.to(after.device))
        return self


def _kind(value: object) -> str:
    return str(value.dtype) if isinstance(value, Tensor) else type(value).__name__


_CONTAINER = Container("calibrant.clamped", 3, "a clamped model", "Make one with save_clamped.")
_SHOWN = 19  # characters of a fingerprint


def save_clamped(clamped: ClampedModel, path: str | os.PathLike[str], *, with_weights: bool = False) -> None:
    """Write a clamped model to a ``.safetensors`` file that :func:`load_clamped` reads; whole or not at all.

    Args:
        clamped: A fitted clamped model.
        path: Path of the file; the folder must exist, and a file there is replaced.
        with_weights: Whether to store the network's own weights, too. Without them the file is as small as an input,
            and fits only a network with exactly these weights.
    """
    _CONTAINER.check_path(path)
    if not isinstance(clamped, ClampedModel):
        raise InputError(f"only a ClampedModel can be saved; got {type(clamped).__name__}. Call fit first.")
    if isinstance(clamped.model, _MissingNetwork):
        raise InputError("a clamped model must have its network to be saved; this one was loaded without.")
    document = {
        "head": describe(clamped.head),
        "head_fit": describe_fit(clamped.head.summary),
        "space": None if clamped.space is None else clamped.space.settings(),
        "summary": None if clamped.summary is None else clamped.summary.as_dict(),
        "network": inference.network_digest(clamped.model),
        "with_weights": with_weights,
    }
    check_map(clamped.head)
    tensors = {"delta": clamped.delta} | {f"head.{name}": values for name, values in clamped.head.state_dict().items()}
    if with_weights:
        others = [name for name, values in clamped.model.state_dict().items() if not isinstance(values, Tensor)]
        if others:
            raise InputError(
                f"a network whose weights are saved must have only tensors in its state_dict; {others[0]!r} is "
                "something else. Save it yourself, and the clamped model without weights."
            )
        tensors |= {f"network.{name}": values for name, values in inference.network_state(clamped.model).items()}
    _CONTAINER.write(path, _to_json(document), tensors)


def load_clamped(path: str | os.PathLike[str], model: nn.Module | None = None) -> ClampedModel:
    """Load a clamped model around the network it was fitted for, on its device and in evaluation mode.

    Args:
        path: A file of :func:`save_clamped`.
        model: The network, which is not copied. If the file has its weights, they are loaded into it. Without one, the
            result has δ, the head and the summary, and refuses inputs. One that does not fit is left unchanged.
    """
    file = existing_file(path, holding="a clamped model")
    with reading(file, "clamped model saved by calibrant"):
        document, tensors = _CONTAINER.read(file)
        document = _from_json(document)
        clamped, weights = _rebuilt(document, tensors)
        fitted_for = str(document["network"])
    if model is None:
        return clamped.eval()
    if not isinstance(model, nn.Module):
        raise InputError(f"model must be a torch.nn.Module; got {type(model).__name__}.")
    given = inference.network_digest(model)
    problem = f"{file} was fitted for another network"
    if given != fitted_for and weights is None:
        raise InputError(
            f"{problem}: the weights are not those of the model given ({fitted_for[:_SHOWN]}… against "
            f"{given[:_SHOWN]}…). Load its weights into the model first; cast it only afterwards."
        )
    if given != fitted_for and weights is not None:
        try:
            inference.load_weights(model, weights, casts=False)
        except InputError as error:
            raise InputError(f"{problem}: {error} Give a model built as that one was.") from error
    device = next((values.device for values in inference.network_state(model).values()), torch.device("cpu"))
    clamped.to(device).model = model
    return clamped.eval()


@final
class _MissingNetwork(nn.Module):
    """Placeholder for the network of a model that was loaded without one."""

    def forward(self, _inputs: Tensor) -> Never:
        raise InputError("this clamped model was loaded without its network; give it: load_clamped(path, model).")


def _rebuilt(document: dict[str, Any], tensors: dict[str, Tensor]) -> tuple[ClampedModel, dict[str, Tensor] | None]:
    """Return the clamped model without its network, and the network's weights if the file has them."""
    weights, numbers = (inference.tensors_under(prefix, tensors) for prefix in ("network.", "head."))
    check_bool(document["with_weights"], "with_weights")
    if document["with_weights"] and inference.state_digest(weights) != document["network"]:
        raise InputError("the weights in it must be those that were saved; they differ.")
    if len(weights) + len(numbers) + 1 != len(tensors):
        raise InputError("the numbers must be those of delta, head and network; got others.")
    head = rebuild(document["head"], numbers)
    if not isinstance(head, Map):
        raise InputError("the head must be a map of logits alone; it needs features.")
    head.summary = read_fit(document["head_fit"])
    space = None if document["space"] is None else InputSpace.from_settings(document["space"])
    summary = None if document["summary"] is None else ClampingSummary.from_dict(document["summary"])
    clamped = ClampedModel(_MissingNetwork(), tensors["delta"], head, space=space, summary=summary)
    return clamped, weights if document["with_weights"] else None


def _to_json(value: Any) -> Any:
    """Replace numbers that JSON cannot represent, such as infinity."""
    if isinstance(value, dict):
        return {name: _to_json(item) for name, item in value.items()}
    if isinstance(value, tuple | list):
        return [_to_json(item) for item in value]
    return {"float": str(value)} if isinstance(value, float) and not math.isfinite(value) else value


def _from_json(value: Any) -> Any:
    """Undo :func:`_to_json`."""
    if isinstance(value, list):
        return [_from_json(item) for item in value]
    if not isinstance(value, dict):
        return value
    is_number = len(value) == 1 and value.get("float") in ("inf", "-inf", "nan")
    return float(value["float"]) if is_number else {name: _from_json(item) for name, item in value.items()}
