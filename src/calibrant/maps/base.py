"""Fitted calibrators: modules from logits to logits, with their fit summary; scaling, affine maps and mixtures."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias, cast, final, overload

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from calibrant.checks import as_tensor, check_bool, or_in_float32, set_facts, with_devices_of_inputs
from calibrant.errors import InputError
from calibrant.numerics.newton import Certificate
from calibrant.numerics.softmax import (
    Normalised,
    argmax_rows,
    full_precision,
    positions,
    to_working_precision,
    top_leads,
)
from calibrant.numerics.uniform_share import floored
from calibrant.predictions import Predictions, column_names

Setting: TypeAlias = bool | int | float | str | None


@final
@dataclass(frozen=True)
class FitSummary:
    """How a map was fitted: the method and its options, the number of samples, and how well its optimum is known.

    ``before`` and ``after`` are log-loss (``nll``), ``brier`` and ``accuracy`` on the samples of the fit, without the
    map and with it: means over ``compared`` of them, some hundreds drawn at random where these show nothing worse, else
    up to 10,000. They are optimistic. 0 and empty where they were not computed.
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


class FittedModule(nn.Module):
    """A module whose buffers, fitted numbers in float64, keep at least float32.

    ``model.bfloat16()`` and ``model.half()`` cast everything a model holds. With two or three digits the edge of a step
    would move and samples would get the probability of another step, so such casts leave these buffers unchanged.
    """

    kind: ClassVar[str]  # its name in files
    may_be_infinite: ClassVar[tuple[str, ...]] = ()  # names of buffers
    class_names: tuple[str, ...] | None = None  # of the classes that a map was fitted for, if known

    def __init_subclass__(cls, **facts: object) -> None:
        super().__init_subclass__()
        set_facts(cls, facts)

    def __init__(self, **buffers: Tensor) -> None:
        super().__init__()
        self.keep(**buffers)

    if TYPE_CHECKING:  # every attribute that is not declared is a buffer

        def __getattr__(self, name: str) -> Tensor: ...

    def settings(self) -> dict[str, Setting]:
        """Return the arguments of the constructor other than buffers and parts."""
        return {}

    @final
    def keep(self, **values: Tensor) -> None:
        """Register buffers."""
        for name, value in values.items():
            number = torch.as_tensor(value).detach().double()
            with torch.inference_mode(mode=False):  # a buffer made under it could take no part in gradients
                self.register_buffer(name, number.clone() if number.is_inference() else number)

    @final
    def check(self) -> None:
        """Check that the numbers of this module and of its parts are finite, in range and of sizes that fit."""
        for part in reversed(list(self.modules())):  # parts before the modules that contain them
            if isinstance(part, FittedModule):
                for name, values in part.named_buffers(recurse=False):
                    bad = values.isnan() if name in part.may_be_infinite else ~values.isfinite()
                    require(not bad.any(), f"{name} must be finite", values)
                part.check_numbers()

    def check_numbers(self) -> None:
        """Raise an InputError unless the sizes of its own buffers fit together and their numbers are in range."""

    @final
    def check_class_names(self, theirs: tuple[str, ...] | None) -> None:
        """Check that the names of classes, if known, are those that the map was fitted for, in the same order."""
        ours = self.class_names
        if theirs is None or ours is None or theirs == ours or len(theirs) != len(ours):
            return
        place = next(number for number, pair in enumerate(zip(ours, theirs, strict=True)) if pair[0] != pair[1])
        same = "the same names in another order: reorder the scores" if set(ours) == set(theirs) else "other names"
        raise InputError(
            f"scores must be of the classes that the map was fitted for; class {place} is {theirs[place]!r} in the one "
            f"and {ours[place]!r} in the other ({same}). If columns are not called as their classes, pass an array."
        )

    @final
    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Apply a cast or a move (``to``, ``half``, ``cuda``, …) to every buffer, but no cast below float32."""
        move = or_in_float32(fn)

        def with_enough_digits(values: Tensor) -> Tensor:
            changed = move(values)
            too_few = changed.is_floating_point() and changed.element_size() < 4
            return values.to(changed.device) if too_few else changed

        return super()._apply(with_enough_digits, recurse)  # type: ignore[no-untyped-call]


def require(holds: Tensor | bool, what: str, got: Tensor) -> None:
    """Raise an InputError that says what must hold, and the shape and range of the numbers, unless it holds."""
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
    """Whether the numbers along the last axis never decrease, a single truth value."""
    return (values[..., 1:] >= values[..., :-1]).all()


def keep_argmax(values: Tensor, logits: Tensor) -> Tensor:
    """Return a map's values, (..., k), with the class of the largest logit (the first on a tie) as the first largest.

    Samples in which it is stay unchanged. In the others, where rounding made it tie with an earlier class, it is put
    ahead of the largest value by the least that the type can hold, and beside small numbers by its ``eps``.
    """
    if _is_plain(values) and _is_plain(logits):
        shape = (-1, values.shape[-1])
        if torch.equal(argmax_rows(logits.detach().reshape(shape)), argmax_rows(values.detach().reshape(shape))):
            return values
    _, predicted = logits.max(dim=-1, keepdim=True)
    highest, first = values.max(dim=-1, keepdim=True)
    lost = first != predicted
    limits = torch.finfo(values.dtype)
    step = highest.abs().clamp(min=1) * limits.eps
    ahead = (highest + step).clamp(max=limits.max)
    # Ahead of the largest finite number there is no room: the others step back.
    others = values.minimum((ahead - step).where(lost, limits.max))
    return others.scatter(-1, predicted, ahead.where(lost, values.gather(-1, predicted)))


def is_traced() -> bool:
    """Whether operations are recorded or transformed (compile, export, jit.trace, vmap): none may depend on values."""
    return (
        torch.compiler.is_compiling()
        or torch._C._get_tracing_state() is not None
        or torch._C._are_functorch_transforms_active()
    )


def _is_plain(values: Tensor) -> bool:
    """Whether this is a float32 or float64 tensor on a CPU that is not traced: NumPy can read it."""
    return (
        not is_traced()
        and type(values) in (Tensor, torch.nn.Parameter)
        and values.device.type == "cpu"
        and values.dtype in (torch.float32, torch.float64)
    )


_FOR_ARRAYS = "For arrays there are predict_proba(probs=p) and predict_proba(logits=z)."


def check_logits(logits: object, n_classes: int, for_arrays: str) -> None:
    """Check that logits are a tensor whose last axis has the classes that a map was fitted for."""
    if not isinstance(logits, Tensor):
        raise InputError(f"a map takes a tensor of logits; got {type(logits).__name__}. {for_arrays}")
    if logits.shape[-1:] != (n_classes,):
        got = f"logits of {logits.shape[-1]}" if logits.ndim else "a single number"
        raise InputError(f"this map was fitted for {n_classes} classes; got {got}. Fit it on the same model's scores.")


class Map(FittedModule, ABC):
    """A module from logits to calibrated logits; ``nn.Sequential(network, fitted)`` is the deployed model.

    The fitted numbers are float64 buffers, and so in the ``state_dict``; they are cast to the logits' type where they
    are used. (A move to an Apple GPU, which has no float64, makes them float32; casts to fewer digits, such as
    ``model.bfloat16()``, leave them unchanged.) The arithmetic is done in float32, or in float64 if the logits are; the
    result has the logits' own type, or float32 if they are whole numbers, and is finite.

    A map that keeps the predicted class does so in the type it returns: where the class would tie with an earlier one
    after rounding, to bfloat16 say, it is put ahead by the least that the type can hold.

    A map fitted on probabilities with zeros in them has a ``uniform_share``: its first step is to mix the uniform
    distribution in (:mod:`calibrant.numerics.uniform_share`).

    A subclass is built by keyword from ``n_classes``, its buffers, its settings and its parts (other modules), under
    the names of its attributes: that is how a file is read back.

    Args:
        n_classes: Number of classes.
        gives_log_probs: Whether the result is log-probabilities (True: rounded ones); None: if the logits are.
        keeps_predicted: Whether the class of the largest logit, the first on a tie, stays that.
        buffers: Fitted numbers.
    """

    # Attributes beside what the constructor takes: plain values, buffers or modules, or None. They are saved in files
    # where they are not None, and set after the construction when a file is read.
    optional_attributes: ClassVar[tuple[str, ...]] = ("uniform_share",)
    # Keeping the predicted class needs no check in float32 and float64: the map leaves a margin that they resolve.
    keeps_predicted_exactly: ClassVar[bool] = False
    uniform_share: Tensor | None

    def __init__(
        self,
        n_classes: int,
        *,
        gives_log_probs: Normalised | bool | None = False,
        keeps_predicted: bool = False,
        **buffers: Tensor,
    ) -> None:
        super().__init__()
        self.n_classes = n_classes
        # Log-probabilities keep equal confidences equal to the last bit.
        self.gives_log_probs = None if gives_log_probs is None else Normalised(gives_log_probs)
        self.keeps_predicted = keeps_predicted
        self.summary: FitSummary | None = None
        self.register_buffer("uniform_share", None)
        self.keep(**buffers)

    @final
    def mix_in(self, uniform_share: Tensor) -> None:
        """Mix a share of the uniform distribution, a single number in 0..1, into the probabilities before all else."""
        self.keep(uniform_share=uniform_share)
        self.check_share()

    @final
    def check_share(self) -> None:
        """Raise an InputError if there is a uniform share that is not a single number above 0 and below 1."""
        share = self.uniform_share
        if share is not None:
            single = share.numel() == 1 and bool((share > 0) & (share < 1))
            require(single, "uniform_share must be a single number above 0 and below 1", share)

    @abstractmethod
    def calibrated(self, logits: Tensor) -> Tensor:
        """Return the calibrated logits, (..., k) in float32 or float64 -> the same."""

    def calibrated_as(self, logits: Tensor, normalised: Normalised) -> Tensor:  # noqa: ARG002
        """Return :meth:`calibrated`, for maps that can make use of knowing that logits are log-probabilities."""
        return self.calibrated(logits)

    @final  # type: ignore[misc]  # torch declares it as an attribute
    def forward(self, logits: Tensor) -> Tensor:
        """Return calibrated logits, (..., k) -> (..., k) of the same type; of whole numbers, in float32."""
        return self.apply_as(logits, Normalised.NO)

    @final
    def apply_as(self, logits: Tensor, normalised: Normalised) -> Tensor:
        """Return calibrated logits; ``normalised`` says whether the given ones are known to be log-probabilities.

        A map that only changes the confidence then gives samples of the same given confidence the same new one.
        """
        check_logits(logits, self.n_classes, _FOR_ARRAYS)
        precise = to_working_precision(logits)
        with full_precision(logits):
            if self.uniform_share is not None:
                precise = floored(precise, self.uniform_share.to(precise), normalised=bool(normalised))
                normalised = Normalised.ROUNDED
            return self._result(precise, logits, normalised)

    def _result(self, precise: Tensor, logits: Tensor, normalised: Normalised) -> Tensor:
        """Return the calibrated logits in the type of the given ones, from logits of working precision."""
        calibrated = self.calibrated_as(precise, normalised)
        unchecked = self.keeps_predicted_exactly and logits.dtype == precise.dtype
        return as_result(calibrated, logits, keeps_predicted=self.keeps_predicted and not unchecked)

    @final
    @with_devices_of_inputs
    @torch.no_grad()
    def transform(self, predictions: Predictions) -> Predictions:
        """Return the same samples and labels with calibrated logits.

        Example:
            >>> from calibrant.maps import Scale
            >>> predictions = Predictions.from_logits([[2.0, 0.0], [0.0, 4.0]], [0, 1])
            >>> Scale(temperature=torch.tensor(2.0), n_classes=2).transform(predictions).logits.tolist()
            [[1.0, 0.0], [0.0, 2.0]]
        """
        if not isinstance(predictions, Predictions):
            raise InputError(f"transform must be given Predictions; got {type(predictions).__name__}. {_FOR_ARRAYS}")
        self.check_class_names(predictions.class_names)
        if isinstance(self, Scale | Identity) and _is_plain(predictions.logits):  # needs no memory beside its result
            calibrated = self(predictions.logits)
        else:
            calibrated = predictions.by_blocks(lambda block: self.apply_as(block.logits, block.normalised))
        return predictions.with_logits(calibrated, normalised=self.gives_log_probs)

    @overload
    def predict_proba(self, *, logits: Tensor) -> Tensor: ...
    @overload
    def predict_proba(self, *, probs: Tensor) -> Tensor: ...
    @overload
    def predict_proba(self, *, logits: ArrayLike) -> NDArray[np.floating]: ...
    @overload
    def predict_proba(self, *, probs: ArrayLike) -> NDArray[np.floating]: ...
    def predict_proba(self, *scores: object, logits: object = None, probs: object = None) -> Any:
        """Return calibrated probabilities, (n, k): a NumPy array for arrays and lists, a tensor for tensors.

        Args:
            scores: Refused: only a keyword shows whether they are logits or probabilities.
            logits: Logits of the model, (n, k). The columns of a data frame must be in the order of the map's classes.
            probs: Its probabilities, (n, k), instead of logits.

        Example:
            >>> from calibrant.maps import Scale
            >>> halved = Scale(torch.tensor(2.0), n_classes=2)
            >>> halved.predict_proba(probs=[[0.5, 0.5], [0.8, 0.2]]).round(3).tolist()
            [[0.5, 0.5], [0.667, 0.333]]
        """
        given = [values for values in (logits, probs) if values is not None]
        if scores or len(given) != 1:
            raise InputError("predict_proba must be given logits=z or probs=p, one of them and by its name.")
        self.check_class_names(column_names(given[0])[1])
        values = as_tensor(given[0], "logits" if probs is None else "probs")
        labels = values.argmax(dim=1) if values.ndim == 2 and values.numel() else torch.zeros(values.shape[:1]).long()
        make = Predictions.from_logits if probs is None else Predictions.from_probs
        calibrated = self.transform(make(values, labels)).probs  # labels are needed, but do not matter
        return calibrated.to(given[0].device) if isinstance(given[0], Tensor) else calibrated.numpy()

    def extra_repr(self) -> str:
        """Return the text inside the brackets of ``repr``."""
        buffers = dict(self.named_buffers(recurse=False))
        shown = {name: f"{float(b):.6g}" if b.numel() == 1 else tuple(b.shape) for name, b in buffers.items()}
        return ", ".join([f"classes={self.n_classes}", *(f"{name}={value}" for name, value in shown.items())])


def as_result(calibrated: Tensor, logits: Tensor, *, keeps_predicted: bool) -> Tensor:
    """Return a map's result as finite numbers of the logits' own type; for whole numbers it stays float32.

    With ``keeps_predicted`` the class of the largest logit, the first on a tie, stays that.
    """
    dtype = logits.dtype if logits.is_floating_point() else calibrated.dtype
    result = calibrated.clamp(torch.finfo(dtype).min, torch.finfo(dtype).max).to(dtype)
    return keep_argmax(result, logits) if keeps_predicted else result


@final
class Identity(Map, kind="identity", keeps_predicted_exactly=True):
    """A map that leaves the logits unchanged."""

    def __init__(self, *, n_classes: int) -> None:
        super().__init__(n_classes, gives_log_probs=None, keeps_predicted=True)

    def calibrated(self, logits: Tensor) -> Tensor:
        return logits


@final
class ChainMap(Map, kind="chain", keeps_predicted_exactly=True):
    """Maps for the same classes, at least one, applied one after the other."""

    def __init__(self, maps: Sequence[Map], *, n_classes: int) -> None:
        known = [part.gives_log_probs for part in maps if part.gives_log_probs is not None]
        kept = all(part.keeps_predicted for part in maps)
        super().__init__(n_classes, gives_log_probs=known[-1] if known else None, keeps_predicted=kept)
        self.maps = nn.ModuleList(maps)

    def check_numbers(self) -> None:
        require(len(self.maps) > 0, "a chain must have at least one map", torch.tensor(len(self.maps)))

    def calibrated(self, logits: Tensor) -> Tensor:
        return self.calibrated_as(logits, Normalised.NO)

    def calibrated_as(self, logits: Tensor, normalised: Normalised) -> Tensor:
        for part in cast("Sequence[Map]", self.maps):
            logits = part.apply_as(logits, normalised)
            normalised = normalised if part.gives_log_probs is None else part.gives_log_probs
        return logits


# Rows shorter than this are too short for vector instructions to reduce each by itself.
_SHORT = 16


@final
class Scale(Map, kind="scale", may_be_infinite=("temperature",)):
    """Logits divided by a temperature above 0: above 1 it softens, below 1 it sharpens, infinity equalises."""

    def __init__(self, temperature: Tensor, *, n_classes: int) -> None:
        super().__init__(n_classes, keeps_predicted=True, temperature=temperature)

    def check_numbers(self) -> None:
        require(self.temperature.numel() == 1, "temperature must be a single number", self.temperature)
        require(self.temperature > 0, "temperature must be above 0", self.temperature)

    def calibrated(self, logits: Tensor) -> Tensor:
        return logits / self.temperature.to(logits)

    def _result(self, precise: Tensor, logits: Tensor, normalised: Normalised) -> Tensor:
        if not (precise is logits and _is_plain(logits)):
            return super()._result(precise, logits, normalised)
        result = self.calibrated(logits)
        if self.temperature < 1:
            result = result.clamp(torch.finfo(result.dtype).min, torch.finfo(result.dtype).max)
        return result if self._keeps_order(logits.detach(), result.detach()) else keep_argmax(result, logits)

    def _keeps_order(self, logits: Tensor, result: Tensor) -> bool:
        """Whether surely no logit below the largest of its sample was rounded to the same quotient.

        Rounded division never reverses an order; it can only make equal what differs by a few units in the last place.
        """
        logits, result = (values.reshape(-1, self.n_classes) for values in (logits, result))
        if self.n_classes < _SHORT:
            limits, temperature = torch.finfo(logits.dtype), float(self.temperature.detach())
            least, most = 4 * limits.tiny * max(temperature, 1.0), limits.max / 2 * min(temperature, 1.0)
            return top_leads(logits, relative=4 * limits.eps, absolute=least, most=most)
        # Most samples are cleared by the largest logit alone: the next smaller number has a smaller quotient.
        highest = logits.amax(dim=1)
        next_smaller = torch.nextafter(highest, highest.new_tensor(-torch.inf))
        samples = positions(self.calibrated(next_smaller) >= self.calibrated(highest))
        tied = result.index_select(0, samples)
        tied = tied >= tied.amax(dim=1, keepdim=True)
        return not bool((tied & (logits.index_select(0, samples) < highest[samples, None])).any())


@final
class Affine(Map, kind="affine"):
    """``W x + b``, where x is the logits or their log-probabilities.

    Args:
        weight: One number, a diagonal (k,) or a matrix (k, k) whose row j makes the j-th logit.
        bias: Shape (k,).
        of_log_probs: Whether x is the log-probabilities. They differ from the logits by a number per sample, which
            matters to a matrix or a diagonal, and makes the result independent of it.
    """

    def __init__(self, weight: Tensor, bias: Tensor, *, n_classes: int, of_log_probs: bool = False) -> None:
        super().__init__(n_classes, weight=weight, bias=bias)
        self.of_log_probs = of_log_probs

    def settings(self) -> dict[str, Setting]:
        return {"of_log_probs": self.of_log_probs}

    def check_numbers(self) -> None:
        check_bool(self.of_log_probs, "of_log_probs")
        shapes = ((), (k := self.n_classes,), (k, k))
        require(self.weight.shape in shapes, f"weight must have one of the shapes {shapes} of {k} classes", self.weight)
        require(self.bias.shape == (k,), f"bias must have a number for each of {k} classes", self.bias)

    def calibrated(self, logits: Tensor) -> Tensor:
        # Far beyond all that matters, and sums of products with the weights stay finite.
        most = torch.finfo(logits.dtype).max ** 0.75
        inputs = (logits.log_softmax(dim=-1) if self.of_log_probs else logits).clamp(-most, most)
        weight, bias = self.weight.to(logits), self.bias.to(logits)
        return (inputs @ weight.T if weight.ndim == 2 else inputs * weight) + bias


# By how much a mixture puts the predicted class ahead of the next: more than float32 rounds away.
_LEAD = 1e-5


@final
class Mixture(Map, kind="mixture", keeps_predicted_exactly=True):
    """Mean of the probabilities of several maps, as log-probabilities.

    Args:
        weights: One per map, not negative, summing to one, (m,).
        maps: The maps, all for the same classes.
        keeps_predicted: Whether the predicted class is kept ahead of all others, where a mean of maps that all keep it
            would end in a tie: because of rounding, or because all weight is on equal probabilities.
    """

    def __init__(self, weights: Tensor, maps: Sequence[Map], *, n_classes: int, keeps_predicted: bool = False) -> None:
        super().__init__(n_classes, gives_log_probs=True, keeps_predicted=keeps_predicted, weights=weights)
        self.maps = nn.ModuleList(maps)

    def settings(self) -> dict[str, Setting]:
        return {"keeps_predicted": self.keeps_predicted}

    def check_numbers(self) -> None:
        check_bool(self.keeps_predicted, "keeps_predicted")
        _check_weights(self.weights, len(self.maps))

    def calibrated(self, logits: Tensor) -> Tensor:
        limits = torch.finfo(logits.dtype)
        maps = cast("Sequence[Map]", self.maps)
        given = [part.calibrated(logits) if part.uniform_share is None else part(logits) for part in maps]
        parts = [values.clamp(limits.min, limits.max).log_softmax(dim=-1) for values in given]
        log_weights = self.weights.log().to(logits)
        mean = torch.stack([part + weight for part, weight in zip(parts, log_weights, strict=True)]).logsumexp(dim=0)
        return _put_ahead(mean, logits.argmax(dim=-1, keepdim=True)) if self.keeps_predicted else mean


@final
class LogMixture(Map, kind="log_mixture"):
    """Mean of the log-probabilities of several maps, normalised: the geometric mean of their probabilities.

    This is the logarithmic opinion pool. Unlike a mean of probabilities it is no flatter than the maps if they agree.
    Arguments are as for :class:`Mixture`.
    """

    def __init__(self, weights: Tensor, maps: Sequence[Map], *, n_classes: int) -> None:
        kept = all(part.keeps_predicted for part in maps)  # where all maps have the class ahead, so has their mean
        super().__init__(n_classes, gives_log_probs=True, keeps_predicted=kept, weights=weights)
        self.maps = nn.ModuleList(maps)

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
    """Put the predicted class ahead of the next by a small margin; samples where it is ahead stay unchanged."""
    own, next_best = log_probs.gather(-1, top), log_probs.scatter(-1, top, -torch.inf).amax(dim=-1, keepdim=True)
    lift = (next_best + _LEAD - own).clamp(min=0)
    lifted = log_probs.scatter(-1, top, own + lift)
    return lifted - torch.log1p(own.exp() * torch.expm1(lift))  # normalised
