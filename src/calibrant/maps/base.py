"""Fitted calibrators: modules from logits to logits, with their fit summary; scaling, affine maps and mixtures."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self, TypeAlias, cast, final

import torch
from torch import Tensor, nn

from calibrant.checks import check_bool
from calibrant.errors import InputError
from calibrant.numerics.newton import Certificate
from calibrant.numerics.softmax import argmax_rows, working
from calibrant.numerics.uniform_share import floored
from calibrant.predictions import Predictions

__all__ = [
    "Affine",
    "ChainMap",
    "FitSummary",
    "FittedModule",
    "Identity",
    "LogMixture",
    "Map",
    "Mixture",
    "Scale",
    "Setting",
    "as_result",
    "require",
    "rises",
    "with_predicted_ahead",
]


class FittedModule(nn.Module):
    """A module whose buffers keep at least float32.

    ``model.bfloat16()`` and ``model.half()`` cast all that a model holds. The edge of a step with two or three digits
    lies elsewhere, and rows get another step's probability; so such casts leave these buffers as they are.
    """

    may_be_infinite: ClassVar[tuple[str, ...]] = ()  # names of buffers

    @final
    def keep(self, **values: Tensor) -> None:
        """Keep what was learned as float64 buffers."""
        for name, value in values.items():
            self.register_buffer(name, torch.as_tensor(value).detach().double())

    @final
    def check(self) -> None:
        """See that all numbers, those of the parts too, can be what they are for; files are checked by this.

        Raises:
            InputError: If one is NaN or infinite where it must not be, out of range, or of a size that does not fit.
        """
        for part in reversed(list(self.modules())):  # parts before what they are parts of
            if isinstance(part, FittedModule):
                for name, values in part.named_buffers(recurse=False):
                    bad = values.isnan() if name in part.may_be_infinite else ~values.isfinite()
                    require(not bad.any(), f"{name} must be finite", values)
                part.check_numbers()

    def check_numbers(self) -> None:
        """See that the sizes of its own numbers fit together, and that the numbers are in their range.

        Raises:
            InputError: If they are not.
        """

    @final
    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """What torch does to every buffer for ``to``, ``float``, ``half``, ``cuda`` and the like."""

        def with_enough_digits(values: Tensor) -> Tensor:
            changed = fn(values)
            blunted = changed.is_floating_point() and changed.element_size() < 4
            return values.to(changed.device) if blunted else changed

        return super()._apply(with_enough_digits, recurse)  # type: ignore[no-untyped-call]


def require(holds: Tensor | bool, what: str, got: Tensor) -> None:
    """Refuse numbers of which something does not hold.

    Raises:
        InputError: Then; with what must hold and, of the numbers, their shape and range.
    """
    if holds:
        return
    shown = f"shape {tuple(got.shape)}"
    if got.numel() == 1:
        shown = f"{got.item():.6g}"
    elif got.numel():
        low, high = got.double().aminmax()
        shown += f", from {float(low):.6g} to {float(high):.6g}"
    raise InputError(f"{what}; got {shown}.")


def rises(values: Tensor) -> Tensor:
    """Whether no number along the last axis is below the one before it, a single truth value."""
    return (values[..., 1:] >= values[..., :-1]).all()


def with_predicted_ahead(values: Tensor, logits: Tensor) -> Tensor:
    """The same numbers, in which the class of the largest logit comes first.

    Rows in which it does are left alone. In the others, where rounding made it tie with a class before it, it is put
    ahead of the largest by the least that the type can hold, and beside small numbers by its ``eps``.

    Args:
        values: What a map makes of the logits, (..., k), finite, in the type it is returned in.
        logits: Shape (..., k).
    """
    if _is_plain(values) and _is_plain(logits):
        flat = values.shape[-1]
        if torch.equal(argmax_rows(logits.detach().reshape(-1, flat)), argmax_rows(values.detach().reshape(-1, flat))):
            return values  # nearly always: rounding seldom makes a tie
    _, predicted = logits.max(dim=-1, keepdim=True)
    highest, first = values.max(dim=-1, keepdim=True)
    lost = first != predicted
    limits = torch.finfo(values.dtype)
    step = highest.abs().clamp(min=1) * limits.eps
    ahead = (highest + step).clamp(max=limits.max)
    # Ahead of the largest finite number there is no room: the others step back.
    others = values.minimum((ahead - step).where(lost, limits.max))
    return others.scatter(-1, predicted, ahead.where(lost, values.gather(-1, predicted)))


def _is_plain(values: Tensor) -> bool:
    """Whether there are numbers in the tensor now, on a CPU, that numpy can read."""
    return (
        not torch.compiler.is_compiling()
        and torch._C._get_tracing_state() is None
        and not torch._C._are_functorch_transforms_active()
        and type(values) in (Tensor, torch.nn.Parameter)
        and values.device.type == "cpu"
        and values.dtype in (torch.float32, torch.float64)
    )


Setting: TypeAlias = bool | int | float | str | None


@final
@dataclass(frozen=True)
class FitSummary:
    """How a map came about: the method and its options, how much data it saw, and how well its optimum is known.

    ``before`` and ``after`` are log-loss (``nll``), ``brier`` and ``accuracy`` on the samples of the fit, without the
    map and with it: means over ``compared`` of them, some hundreds drawn at random where these show nothing worse, else
    up to 10,000. They flatter the map. 0 and empty where they were not computed.
    """

    method: str
    settings: dict[str, Setting] = field(default_factory=dict)
    rows: int = 0
    seconds: float = 0.0
    certificate: Certificate | None = None
    notes: tuple[str, ...] = ()
    compared: int = 0
    before: dict[str, float] = field(default_factory=dict)
    after: dict[str, float] = field(default_factory=dict)


class Map(FittedModule, ABC):
    """Logits in, calibrated logits out; ``nn.Sequential(network, fitted)`` is the deployed model.

    What was learned lies in float64 buffers, and so in the ``state_dict``; it is cast to the logits' type where it is
    used. (A device without float64 wants ``fitted.float()`` first; casts to fewer digits than float32, such as
    ``model.bfloat16()``, leave it alone.) The arithmetic is done in float32, or in float64 if the logits are; the
    result has the logits' own type, or float32 if they are whole numbers, and is finite.

    A map that keeps the predicted class does so in the type it returns: where the class would tie with one before it
    after rounding, to bfloat16 say, it is put ahead by the least that the type can hold.

    A map fitted on probabilities with zeros in them has a ``uniform_share`` a: its first step is to mix the uniform
    distribution in, ``(1 - a) p + a / k``. So it answers logits and probabilities of any type alike.

    A subclass is built by keyword from ``n_classes``, its buffers, its settings and its parts (other modules), under
    the names it keeps them by: that is how a file is read back.

    Args:
        n_classes: Length of a row of logits.
        gives_log_probs: Whether the result is log-probabilities; None: if the logits are.
        keeps_predicted: Whether the class of the largest logit, the first on a tie, stays that.
    """

    kind: ClassVar[str]  # its name in files
    # Attributes beside what the constructor takes: plain values, buffers or modules, or None. They are kept in files
    # where they are not None, and set after the construction when a file is read.
    extras: ClassVar[tuple[str, ...]] = ("uniform_share",)
    uniform_share: Tensor | None

    def __init__(self, n_classes: int, *, gives_log_probs: bool | None = False, keeps_predicted: bool = False) -> None:
        super().__init__()
        self.n_classes = n_classes
        # Log-probabilities keep equal confidences equal to the last bit.
        self.gives_log_probs = gives_log_probs
        self.keeps_predicted = keeps_predicted
        self.summary: FitSummary | None = None
        self.register_buffer("uniform_share", None)

    @final
    def mix_in(self, uniform_share: Tensor) -> None:
        """Mix a share of the uniform distribution, a single number in 0..1, into the probabilities before all else."""
        self.keep(uniform_share=uniform_share)
        self.check_share()

    @final
    def check_share(self) -> None:
        """See that the uniform share, if there is one, can be one.

        Raises:
            InputError: If it is not a single number above 0 and below 1.
        """
        share = self.uniform_share
        if share is not None:
            single = share.numel() == 1 and bool((share > 0) & (share < 1))
            require(single, "uniform_share must be a single number above 0 and below 1", share)

    @abstractmethod
    def calibrated(self, logits: Tensor) -> Tensor:
        """The calibrated logits, (..., k) in float32 or float64 -> the same."""

    def settings(self) -> dict[str, Setting]:
        """What the constructor needs beside the buffers."""
        return {}

    @final  # type: ignore[misc]  # torch declares it as an attribute
    def forward(self, logits: Tensor) -> Tensor:
        """Calibrated logits, (..., k) -> (..., k) of the same type; of whole numbers, in float32."""
        if logits.shape[-1] != self.n_classes:
            raise InputError(
                f"this map was fitted for {self.n_classes} classes; got logits of {logits.shape[-1]}. "
                "Fit it on predictions of the same model."
            )
        precise = working(logits)
        if self.uniform_share is not None:
            precise = floored(precise, self.uniform_share.to(precise))
        return as_result(self.calibrated(precise), logits, keeps_predicted=self.keeps_predicted)

    @final
    @torch.no_grad()
    def transform(self, predictions: Predictions) -> Predictions:
        """The same rows and labels with calibrated logits.

        Example:
            >>> from calibrant.maps import Scale
            >>> predictions = Predictions.from_logits([[2.0, 0.0], [0.0, 4.0]], [0, 1])
            >>> Scale(temperature=torch.tensor(2.0), n_classes=2).transform(predictions).logits.tolist()
            [[1.0, 0.0], [0.0, 2.0]]
        """
        calibrated = torch.cat([self(block.logits) for block in predictions.blocks()])
        return predictions.with_logits(calibrated, normalised=self.gives_log_probs)

    def predict_proba(self, *, logits: Any = None, probs: Any = None) -> Any:
        """Return calibrated probabilities, (n, k): a NumPy array for arrays and lists, a tensor for tensors.

        Args:
            logits: Logits of the model, (n, k).
            probs: Its probabilities, (n, k), instead of logits.

        Raises:
            InputError: If not exactly one is given, or it has another number of classes than the map.

        Example:
            >>> from calibrant.maps import Scale
            >>> halved = Scale(torch.tensor(2.0), n_classes=2)
            >>> halved.predict_proba(probs=[[0.5, 0.5], [0.8, 0.2]]).round(3).tolist()
            [[0.5, 0.5], [0.667, 0.333]]
        """
        given = [scores for scores in (logits, probs) if scores is not None]
        if len(given) != 1:
            raise InputError("predict_proba must be given logits=… or probs=…, one of them.")
        unlabelled = torch.zeros(len(given[0]), dtype=torch.long)
        make = Predictions.from_logits if probs is None else Predictions.from_probs
        calibrated = self.transform(make(given[0], unlabelled)).probs
        return calibrated if isinstance(given[0], Tensor) else calibrated.numpy()

    def extra_repr(self) -> str:
        """Shown inside the brackets of the module's name."""
        shapes = {name: tuple(buffer.shape) for name, buffer in self.named_buffers(recurse=False)}
        small = {
            name: f"{float(buffer):.6g}" for name, buffer in self.named_buffers(recurse=False) if buffer.numel() == 1
        }
        return ", ".join([f"classes={self.n_classes}", *(f"{name}={small.get(name, shapes[name])}" for name in shapes)])


def as_result(calibrated: Tensor, logits: Tensor, *, keeps_predicted: bool) -> Tensor:
    """What a map returns: finite, in the logits' own type, with the predicted class where it was if that is kept.

    Args:
        calibrated: What the map made of the logits, (..., k), float32 or float64.
        logits: As they were given, (..., k); of whole numbers the result stays float32.
        keeps_predicted: Whether the class of the largest logit, the first on a tie, stays that.
    """
    dtype = logits.dtype if logits.is_floating_point() else calibrated.dtype
    result = calibrated.clamp(torch.finfo(dtype).min, torch.finfo(dtype).max).to(dtype)
    return with_predicted_ahead(result, logits) if keeps_predicted else result


@final
class Identity(Map):
    """Logits as they came."""

    kind: ClassVar[str] = "identity"

    def __init__(self, *, n_classes: int) -> None:
        super().__init__(n_classes, gives_log_probs=None, keeps_predicted=True)

    def calibrated(self, logits: Tensor) -> Tensor:
        return logits


@final
class ChainMap(Map):
    """Each map on what the one before it gave.

    Args:
        maps: At least one, all for the same classes.
        n_classes: Length of a row of logits.
    """

    kind: ClassVar[str] = "chain"

    def __init__(self, maps: Sequence[Map], *, n_classes: int) -> None:
        told = [part.gives_log_probs for part in maps if part.gives_log_probs is not None]
        super().__init__(
            n_classes,
            gives_log_probs=told[-1] if told else None,
            keeps_predicted=all(part.keeps_predicted for part in maps),
        )
        self.maps = nn.ModuleList(maps)

    def check_numbers(self) -> None:
        require(len(self.maps) > 0, "a chain must have at least one map", torch.tensor(len(self.maps)))

    def calibrated(self, logits: Tensor) -> Tensor:
        for part in self.maps:
            logits = part(logits)
        return logits


@final
class Scale(Map):
    """Logits divided by one number; above 1 it softens, below 1 it sharpens, and infinity gives equal probabilities.

    Args:
        temperature: Above 0, a single number.
        n_classes: Length of a row of logits.
    """

    kind: ClassVar[str] = "scale"
    may_be_infinite: ClassVar[tuple[str, ...]] = ("temperature",)
    temperature: Tensor

    def __init__(self, temperature: Tensor, *, n_classes: int) -> None:
        super().__init__(n_classes, keeps_predicted=True)
        self.keep(temperature=temperature)

    def check_numbers(self) -> None:
        require(self.temperature.numel() == 1, "temperature must be a single number", self.temperature)
        require(self.temperature > 0, "temperature must be above 0", self.temperature)

    def calibrated(self, logits: Tensor) -> Tensor:
        return logits / self.temperature.to(logits)


@final
class Affine(Map):
    """``W x + b``, where x is the logits or their log-probabilities.

    Args:
        weight: One number, a diagonal (k,) or a matrix (k, k) whose row j makes the j-th logit.
        bias: Shape (k,).
        n_classes: Length of a row of logits.
        of_log_probs: Whether x is the log-probabilities. They differ from the logits by a number a row, which matters
            to a matrix or a diagonal, and makes the result independent of it.
    """

    kind: ClassVar[str] = "affine"
    weight: Tensor
    bias: Tensor

    def __init__(self, weight: Tensor, bias: Tensor, *, n_classes: int, of_log_probs: bool = False) -> None:
        super().__init__(n_classes)
        self.of_log_probs = of_log_probs
        self.keep(weight=weight, bias=bias)

    def settings(self) -> dict[str, Setting]:
        return {"of_log_probs": self.of_log_probs}

    def check_numbers(self) -> None:
        check_bool(self.of_log_probs, "of_log_probs")
        k = self.n_classes
        shapes = ((), (k,), (k, k))
        require(self.weight.shape in shapes, f"weight must have one of the shapes {shapes} of {k} classes", self.weight)
        require(self.bias.shape == (k,), f"bias must have a number for each of {k} classes", self.bias)

    def calibrated(self, logits: Tensor) -> Tensor:
        # Far beyond all that matters, and so that sums of products with the weights are numbers.
        most = torch.finfo(logits.dtype).max ** 0.75
        inputs = (logits.log_softmax(dim=-1) if self.of_log_probs else logits).clamp(-most, most)
        weight, bias = self.weight.to(logits), self.bias.to(logits)
        return (inputs @ weight.T if weight.ndim == 2 else inputs * weight) + bias


# By how much the predicted class is put ahead of the next: more than float32 rounds away.
_LEAD = 1e-5


@final
class Mixture(Map):
    """Mean of probabilities, as log-probabilities.

    Args:
        weights: One a map, not negative, summing to one, (m,).
        maps: The maps, all for the same classes.
        n_classes: Length of a row of logits.
        keeps_predicted: Whether the predicted class is kept ahead of all others, where a mean of maps that all keep it
            would end in a tie: because of rounding, or because all weight is on equal probabilities.
    """

    kind: ClassVar[str] = "mixture"
    weights: Tensor

    def __init__(self, weights: Tensor, maps: Sequence[Map], *, n_classes: int, keeps_predicted: bool = False) -> None:
        super().__init__(n_classes, gives_log_probs=True, keeps_predicted=keeps_predicted)
        self.maps = nn.ModuleList(maps)
        self.keep(weights=weights)

    def settings(self) -> dict[str, Setting]:
        return {"keeps_predicted": self.keeps_predicted}

    def check_numbers(self) -> None:
        check_bool(self.keeps_predicted, "keeps_predicted")
        _check_weights(self.weights, len(self.maps))

    def calibrated(self, logits: Tensor) -> Tensor:
        limits = torch.finfo(logits.dtype)
        maps = cast("Sequence[Map]", self.maps)
        parts = [part.calibrated(logits).clamp(limits.min, limits.max).log_softmax(dim=-1) for part in maps]
        log_weights = self.weights.log().to(logits)
        mean = torch.stack([part + weight for part, weight in zip(parts, log_weights, strict=True)]).logsumexp(dim=0)
        return _put_ahead(mean, logits.argmax(dim=-1, keepdim=True)) if self.keeps_predicted else mean


@final
class LogMixture(Map):
    """Mean of log-probabilities, divided by their sum: the geometric mean of what the maps give.

    Unlike a mean of probabilities it is no flatter than the maps are where they agree.

    Args:
        weights: One a map, not negative, summing to one, (m,).
        maps: The maps, all for the same classes.
        n_classes: Length of a row of logits.
    """

    kind: ClassVar[str] = "log_mixture"
    weights: Tensor

    def __init__(self, weights: Tensor, maps: Sequence[Map], *, n_classes: int) -> None:
        # Where all maps have the class ahead, so has their mean.
        super().__init__(n_classes, gives_log_probs=True, keeps_predicted=all(part.keeps_predicted for part in maps))
        self.maps = nn.ModuleList(maps)
        self.keep(weights=weights)

    def check_numbers(self) -> None:
        _check_weights(self.weights, len(self.maps))

    def calibrated(self, logits: Tensor) -> Tensor:
        least = torch.finfo(logits.dtype).min / 4  # so that no sum of them overflows
        parts = [part(logits).log_softmax(dim=-1).clamp(min=least) for part in self.maps]
        # One product after the other: a matrix product would round by the number of samples.
        mean = torch.stack([part * weight for part, weight in zip(parts, self.weights.to(logits), strict=True)]).sum(0)
        return mean.log_softmax(dim=-1)


def _check_weights(weights: Tensor, m: int) -> None:
    require(m > 0 and weights.shape == (m,), f"weights must be one for each of {m} maps, at least one", weights)
    near = (weights.sum() - 1).abs() <= m * torch.finfo(torch.float32).eps  # a map may be kept in float32
    require((weights >= 0).all() & near, "weights must not be negative, and sum to one", weights)


def _put_ahead(log_probs: Tensor, top: Tensor) -> Tensor:
    """The same with the predicted class ahead of the next by a little at least; rows where it is stay untouched."""
    own, next_best = log_probs.gather(-1, top), log_probs.scatter(-1, top, -torch.inf).amax(dim=-1, keepdim=True)
    lift = (next_best + _LEAD - own).clamp(min=0)
    lifted = log_probs.scatter(-1, top, own + lift)
    return lifted - torch.log1p(own.exp() * torch.expm1(lift))  # divided by their sum
