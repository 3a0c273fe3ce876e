"""Inputs of a clamped network: their range, augmentation, and the δ added to them: its coordinates and its start."""

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from numbers import Real
from typing import Any, ClassVar, Literal, NamedTuple, Self, TypeAlias, final, get_args

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from calibrant.checks import (
    are_images,
    check_at_least,
    check_bool,
    check_known,
    check_positive,
    check_real_number,
    check_seed,
)
from calibrant.errors import CalibrantWarning, InputError
from calibrant.inference import LabelledInputs, device_of, extract_logits, frozen
from calibrant.numerics.softmax import to_working_precision

# Inputs may lie outside the range by this fraction of its ends: rounding of a normalisation in float32.
_OUTSIDE = 1e-5


@final
@dataclass(frozen=True)
class InputSpace:
    """Range of a pixel, and the normalisation (pixel - mean) / std between pixels and the network.

    δ is added to the network's inputs, so in units of ``std``; this gives the conversion to pixels. It is not verified:
    a network that normalises inside itself takes pixels, and has no mean and std here.

    Args:
        low: Lowest value of a pixel, before the normalisation.
        high: Highest value of a pixel, above ``low``.
        mean: One number per channel (dim 0 of an input), or one for all; None for 0.
        std: The same, above 0; None for 1.
        clips: Whether x + δ is clipped to the range.

    Example:
        >>> space = InputSpace(mean=(0.5,), std=(0.25,))
        >>> [edge.tolist() for edge in space.bounds(torch.zeros(1, 1, 2))]
        [[[[-2.0, -2.0]]], [[[2.0, 2.0]]]]
        >>> space.pixels(torch.tensor([[[-2.0, 1.0]]])).tolist()  # one input of one channel
        [[[0.0, 0.75]]]
    """

    low: float = 0.0
    high: float = 1.0
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    clips: bool = False

    def __post_init__(self) -> None:
        for name, check in {"low": _number, "high": _number, "mean": _numbers, "std": _numbers}.items():
            object.__setattr__(self, name, check(getattr(self, name), name))
        check_bool(self.clips, "clips")
        if not self.low < self.high:
            raise InputError(f"low must be below high; got {self.low:g} and {self.high:g}.")
        if self.std is not None and min(self.std) <= 0:
            raise InputError(f"every std must be above 0; got {min(self.std):g}.")
        lengths = {len(values) for values in (self.mean, self.std) if values is not None} - {1}
        if len(lengths) > 1:
            raise InputError(
                f"mean and std must have a number for each of the same channels, or one for all; "
                f"got {len(self.mean or ())} and {len(self.std or ())}."
            )

    def bounds(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """Return the lowest and highest input (α and β of theorem 3.2) in the network's units, each like one input."""
        if not like.is_floating_point():
            raise InputError(f"an input must be of floating point for its bounds to fit into it; got {like.dtype}.")
        mean, std = self._broadcast(like, axis=0)
        low, high = ((edge - mean) / std for edge in (self.low, self.high))
        return low.to(like).expand(like.shape).contiguous(), high.to(like).expand(like.shape).contiguous()

    def check_inside(self, inputs: Tensor, positions: Tensor | None = None) -> None:
        """Check that inputs (m, ...) lie in the range, up to rounding; the message names their ``positions``, (m,)."""
        low, high = self.bounds(inputs[0])
        slack = max(_OUTSIDE, 2 * torch.finfo(inputs.dtype).eps) * torch.maximum(low.abs(), high.abs())
        outside = (inputs < low - slack) | (inputs > high + slack)
        if not bool(outside.any()):
            return
        row, *entry = outside.nonzero()[0].tolist()
        place = tuple(entry)
        where = f"at entry {place}" if positions is None else f"at row {int(positions[row])}, entry {place}"
        raise InputError(
            f"inputs must lie in the space's range, {float(low[place]):.4g} to {float(high[place]):.4g} as the "
            f"network takes them; got {float(inputs[row][place]):.4g} {where}. Give the low, high, mean and std of "
            "these inputs."
        )

    def check_samples(self, samples: LabelledInputs) -> None:
        for inputs, positions in samples.batches(device="cpu"):
            self.check_inside(inputs, positions)

    def pixels(self, inputs: Tensor) -> Tensor:
        """Undo the normalisation of a batch; (n, c, ...) -> the same, in float32 or float64, not clipped."""
        if inputs.ndim < 2:  # samples and channels
            raise InputError(
                f"inputs must be a batch, (n, c, ...); got shape {tuple(inputs.shape)}. For one input, pass "
                "inputs[None]."
            )
        precise = to_working_precision(inputs)
        mean, std = (values.to(precise) for values in self._broadcast(inputs, axis=1))
        return precise * std + mean

    def settings(self) -> dict[str, Any]:
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Self:
        names = [field.name for field in fields(cls)]
        if set(settings) != set(names):
            raise InputError(f"an input space must have {', '.join(names)}; got {', '.join(map(str, settings))}.")
        return cls(**settings)

    def _broadcast(self, inputs: Tensor, *, axis: int) -> tuple[Tensor, Tensor]:
        """Return mean and std in float64, shaped to broadcast against inputs whose channels are at ``axis``."""
        mean, std = (
            torch.tensor(default if values is None else values, dtype=torch.float64)
            for values, default in ((self.mean, (0.0,)), (self.std, (1.0,)))
        )
        entries, channels = max(len(mean), len(std)), inputs.shape[axis] if inputs.ndim else 0
        if channels == 0 or entries not in {1, channels}:
            raise InputError(
                f"inputs must have the channels of the normalisation, {entries}, at dim {axis}; got {channels} (shape "
                f"{tuple(inputs.shape)}). Give one mean and std for all, or one per channel."
            )
        shape = (-1, *[1] * (inputs.ndim - 1 - axis))
        return mean.reshape(shape), std.reshape(shape)


def _number(value: object, name: str) -> float:
    if not isinstance(value, Real) or isinstance(value, bool) or not math.isfinite(value):
        raise InputError(f"{name} must be real and finite; got {value!r}.")
    return float(value)


def _numbers(values: object, name: str) -> tuple[float, ...] | None:
    if values is None:
        return None
    if not isinstance(values, tuple | list) or not values:
        raise InputError(f"{name} must be a tuple of numbers, one per channel or one for all; got {values!r}.")
    return tuple(_number(value, f"every {name}") for value in values)


# Inputs on their way to the network.

Augmentation: TypeAlias = Literal["none", "crop", "crop-flip"]
# Pixels by which an image of 32 or more is shifted at most, as in the papers; smaller ones in proportion.
_PADDING, _FULL_SIDE = 4, 32
_SEED_STRIDE = 100_003  # so that the draws of one seed do not meet those of the next
_MOST_SEED = 2**63  # torch's limit


@final
@dataclass(frozen=True)
class InputPreparation:
    """Prepares inputs while δ is learned: augments them, adds δ, and clips the sum if the space says so."""

    space: InputSpace | None = None
    augmentation: Augmentation = "none"
    views: int = 4  # augmented copies of a sample in a pass
    seed: int = 0

    @property
    def n_views(self) -> int:
        """Number of copies of a sample in a pass; 1 if they would not differ."""
        return 1 if self.augmentation == "none" else self.views

    def generator(self, number: int) -> torch.Generator:
        """Return the random generator of a view, or of an epoch."""
        return torch.Generator().manual_seed((self.seed * _SEED_STRIDE + number) % _MOST_SEED)

    def augmented(self, inputs: Tensor, generator: torch.Generator) -> Tensor:
        """Shift images (n, c, h, w) by up to 4 pixels (an eighth of a small side); ``crop-flip`` also mirrors half."""
        if self.augmentation == "none":
            return inputs
        if not are_images(inputs):
            raise InputError(f"only images, (n, c, h, w), can be shifted; got inputs of shape {tuple(inputs.shape)}.")
        n, _, height, width = inputs.shape
        most = min(_PADDING, min(height, width) * _PADDING // _FULL_SIDE)
        drawn = _drawn_shifts(n, generator).to(inputs.device)
        down, right = (drawn[:, axis].mul(2 * most + 1).long() for axis in range(2))
        mirrored = drawn[:, 2] < (0.5 if self.augmentation == "crop-flip" else 0.0)
        # The lowest pixel, if it is known, fills the border.
        border = torch.zeros_like(inputs[0]) if self.space is None else self.space.bounds(inputs[0])[0]
        padded = F.pad(inputs - border, (most,) * 4)
        samples, rows, columns = (torch.arange(size, device=inputs.device) for size in (n, height, width))
        rows, columns = rows + down, torch.where(mirrored, width - 1 - columns, columns) + right
        samples = samples[:, None, None]
        return padded.permute(0, 2, 3, 1)[samples, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2) + border

    def skip(self, n: int, generator: torch.Generator) -> None:
        """Advance the generator by n samples, which another process augments."""
        if self.augmentation != "none":
            _drawn_shifts(n, generator)

    def add_delta(self, inputs: Tensor, delta: Tensor) -> Tensor:
        ends = self.space.bounds(inputs[0]) if self.space is not None and self.space.clips else None
        return add_delta(inputs, delta, ends)


def _drawn_shifts(n: int, generator: torch.Generator) -> Tensor:
    # Drawn sample by sample, so that a sample gets the same shift in batches of any size.
    return torch.rand((n, 3, 1), generator=generator, dtype=torch.float64)


def add_delta(inputs: Tensor, delta: Tensor, ends: tuple[Tensor, Tensor] | None = None) -> Tensor:
    """Return x + δ in the inputs' type, clipped to the lowest and highest input if they are given."""
    # Not inputs + delta, by which -0 becomes 0: where δ is 0, no bit of an input may change.
    total = inputs - (0 - delta.to(inputs))
    return total if ends is None else total.clamp(*(end.to(inputs) for end in ends))


# Coordinates of δ. Fewer of them can overfit less.


class Basis(NamedTuple):
    """Linear map from coefficients to δ; orthonormal, so that ‖δ‖ is the norm of the coefficients too."""

    shape: tuple[int, ...]  # of the coefficients
    to_delta: Callable[[Tensor], Tensor]  # coefficients -> δ, of an input's shape
    transpose: Callable[[Tensor], Tensor]  # gradient in δ -> gradient in the coefficients


@final
@dataclass(frozen=True)
class PerEntry:
    """Learn every number of δ, as in the paper; with few calibration images it overfits unless heavily penalised."""

    def basis(self, like: Tensor) -> Basis:
        return Basis(tuple(like.shape), lambda coefficients: coefficients, lambda gradient: gradient)


@final
@dataclass(frozen=True)
class PerChannel:
    """Learn one number of δ per channel (the first axis of an input)."""

    def basis(self, like: Tensor) -> Basis:
        if like.ndim < 1:
            raise InputError("one number per channel needs inputs with an axis; got single numbers.")
        channels, *others = like.shape
        unit = math.prod(others) ** -0.5
        return Basis(
            (channels,),
            lambda coefficients: (coefficients * unit).reshape(-1, *(1 for _ in others)).expand(channels, *others),
            lambda gradient: gradient.reshape(len(gradient), -1).sum(dim=1).mul(unit),
        )


@final
@dataclass(frozen=True)
class LowFrequencies:
    """Learn the lowest frequencies of each channel of an image, as in a cosine transform.

    Args:
        size: Number of frequencies along each side: 4 gives 16 numbers per channel.
    """

    size: int = 4

    def __post_init__(self) -> None:
        check_at_least(self.size, 1, "size")

    def basis(self, like: Tensor) -> Basis:
        if like.ndim != 3:  # channel, height, width
            raise InputError(
                f"low frequencies need images, (channels, height, width); got inputs of shape {tuple(like.shape)}. "
                "Choose PerEntry() or PerChannel()."
            )
        channels, *sides = like.shape
        down, across = (_cosines(side, min(self.size, side), like.device) for side in sides)
        return Basis(
            (channels, len(down), len(across)),
            lambda coefficients: down.to(coefficients).T @ coefficients @ across.to(coefficients),
            lambda gradient: down.to(gradient) @ gradient @ across.to(gradient).T,
        )


def _cosines(n: int, size: int, device: torch.device) -> Tensor:
    """Return the first cosines over n places, orthonormal, (size, n)."""
    places = torch.arange(n, dtype=torch.float64, device=device) + 0.5
    waves = torch.cos(math.pi / n * torch.arange(size, dtype=torch.float64, device=device)[:, None] * places)
    return waves.div(waves.norm(dim=1, keepdim=True))


DeltaShape: TypeAlias = PerEntry | PerChannel | LowFrequencies


# Starts of δ: zero, random, or the δ of largest first-order gain of entropy within the inputs' range (Theorem 3.2).

Eta: TypeAlias = Literal["theorem", "quantile", "epsilon"]
# An input this near to an end of the range, relative to the range's largest number, is at the end. Smaller than the
# tolerance of ``check_inside``, so that steps of 16-bit images still count.
_AT_END = 1e-6
# Quantiles are taken from at most so many samples, fewer of large inputs: so many numbers in all.
_SAMPLED, _SAMPLED_NUMBERS = 2000, 1 << 27
_SORTED_NUMBERS = 1 << 24  # at once


def unlabelled_samples(data: object) -> LabelledInputs:
    """Return data as samples whose labels must not be used: inputs alone, (n, ...), get zeros."""
    if isinstance(data, Tensor | np.ndarray):
        return LabelledInputs.of((data, torch.zeros(data.shape[:1], dtype=torch.int64)))
    return LabelledInputs.of(data)


class Start(ABC):
    """Method of choosing the first δ; concrete ones are frozen dataclasses."""

    name: ClassVar[str]

    @final
    def delta(self, model: nn.Module, data: object, *, space: InputSpace | None = None, seed: int = 0) -> Tensor:
        """Return the first δ, of an input's shape, on the network's device, in float32, or float64 as the inputs.

        Args:
            model: Network from inputs to logits; it is restored afterwards.
            data: Inputs alone, (n, ...), as labels play no part; or as ``NeuralClamping.fit`` takes them.
            space: Range of the network's inputs; None if unknown.
            seed: Random seed; draws are made on the CPU, and so are the same on every device.
        """
        samples = unlabelled_samples(data)
        delta = self._delta(model, samples, space, check_seed(seed))
        return delta.to(device_of(model), torch.promote_types(samples.input_dtype, torch.float32))

    @abstractmethod
    def _delta(self, model: nn.Module, samples: LabelledInputs, space: InputSpace | None, seed: int) -> Tensor:
        """Return δ on any device and in any type."""

    @final
    def settings(self) -> dict[str, Any]:
        return {"name": self.name, **asdict(self)}  # type: ignore[call-overload]  # all are dataclasses


@final
@dataclass(frozen=True)
class ZeroStart(Start):
    """Start at δ = 0, as temperature scaling does."""

    name: ClassVar[str] = "zero"

    def _delta(self, _model: nn.Module, samples: LabelledInputs, _space: InputSpace | None, _seed: int) -> Tensor:
        return torch.zeros(samples.input_shape)


@final
@dataclass(frozen=True)
class RandomStart(Start):
    """Draw every entry of δ uniformly from -scale to scale, as in the paper's experiments.

    The paper does not state its scale; its authors' toolkit takes 0.01, and 0.001 in the demonstration.

    Args:
        scale: Half width of the distribution, in units of the network's inputs.
    """

    name: ClassVar[str] = "random"
    scale: float = 0.01

    def __post_init__(self) -> None:
        check_positive(self.scale, "scale")

    def _delta(self, _model: nn.Module, samples: LabelledInputs, _space: InputSpace | None, seed: int) -> Tensor:
        drawn = torch.rand(samples.input_shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        return (2 * drawn - 1) * self.scale


@final
@dataclass(frozen=True)
class DataDrivenStart(Start):
    """δ̃ = sign(g) ⊙ η: along the gradient g of the entropy, as far as the range lets all samples go.

    ``theorem`` is the paper's (Theorem 3.2): among all δ that keep every sample inside the range, δ̃ has the largest
    first-order gain of entropy, δ̃ᵀg. Entropy is not calibration, and a first-order gain holds for small δ only: with
    few samples, or pixels that are black in all of them, the range lets δ̃ be large, and the network may hardly
    recognise anything. With many samples every pixel is black somewhere and white somewhere, so δ̃ is 0, with a warning.

    Args:
        eta: How far each entry goes. ``theorem``: until the first sample touches the edge of the range. Not in the
            paper, for data on which its own η is 0: ``quantile``, the same except for the fraction of samples nearest
            to the edge, which leave the range (a space that clips brings them back; without a space, the range is that
            of the samples); ``epsilon``, by that much in any case, but no more than the width of the range.
        quantile: That fraction, above 0 and at most 0.5.
        epsilon: That step, in units of the network's inputs.
    """

    name: ClassVar[str] = "data-driven"
    eta: Eta = "theorem"
    quantile: float = 0.01
    epsilon: float = 0.01

    def __post_init__(self) -> None:
        check_known(self.eta, get_args(Eta), "eta")
        check_positive(self.quantile, "quantile")
        check_real_number(self.quantile, "quantile", least=0, most=0.5)
        check_positive(self.epsilon, "epsilon")

    def _delta(self, model: nn.Module, samples: LabelledInputs, space: InputSpace | None, seed: int) -> Tensor:
        if space is None and self.eta == "theorem":
            raise InputError(
                "space must give the range of the inputs, which Theorem 3.2 needs; got None. "
                "Give an InputSpace, or take DataDrivenStart(eta='quantile') or another start."
            )
        entropy = entropy_gradient(model, samples, quantile=self.quantile if self.eta == "quantile" else 0.0, seed=seed)
        if space is not None:
            space.check_inside(torch.stack((entropy.low, entropy.high)))
        down, up = self._reach(entropy, space)
        # Theorem 3.2's η.
        eta = torch.where(entropy.gradient < 0, down, torch.where(entropy.gradient > 0, up, 0.0))
        if not eta.any():
            reason = "the entropy does not change with the inputs at all. Is the network sure of every sample?"
            if entropy.gradient.any():
                reason = (
                    "every entry is somewhere at the end of the range towards which the entropy rises, as with many "
                    "images. A quantile or epsilon as eta, which are not in the paper, can still give another."
                )
            warnings.warn(
                f"the data-driven start is δ = 0, that of temperature scaling, because {reason}",
                CalibrantWarning,
                stacklevel=3,
            )
        return entropy.gradient.sign() * eta

    def _reach(self, entropy: "EntropyGradient", space: InputSpace | None) -> tuple[Tensor, Tensor]:
        """Return how far each entry may go down and up, in float64."""
        low, high = entropy.low.double(), entropy.high.double()
        alpha, beta = (low, high) if space is None else space.bounds(low)
        if self.eta == "epsilon":
            step = torch.full_like(alpha, self.epsilon)
            step = step if space is None else step.minimum(beta - alpha)
            return step, step
        down, up = entropy.low_quantile.double() - alpha, beta - entropy.high_quantile.double()
        share = max(_AT_END, 2 * torch.finfo(entropy.low.dtype).eps)
        rounding = share * torch.maximum(alpha.abs(), beta.abs())
        return torch.where(down > rounding, down, 0.0), torch.where(up > rounding, up, 0.0)


@final
@dataclass(frozen=True, eq=False)
class EntropyGradient:
    """Entropy of a network's predictions and bounds of its inputs, from one pass; tensors have an input's shape."""

    gradient: Tensor  # g = Σ_i ∇_x H(softmax(f(x_i) / T)) in nats, a sum and no mean, float64
    entropy: float  # mean over the samples, in nats
    low: Tensor  # ℓ, the least value of each entry, in the inputs' type
    high: Tensor  # μ, the largest value of each entry
    low_quantile: Tensor  # the requested quantile of each entry, else ℓ
    high_quantile: Tensor  # the requested upper quantile of each entry, else μ


def entropy_gradient(
    model: nn.Module, data: object, *, temperature: float = 1.0, quantile: float = 0.0, seed: int = 0
) -> EntropyGradient:
    """Return how the entropy of the predictions changes with one δ added to every input, at δ = 0; in one pass.

    It is a derivative at a point: it gives a direction, and the size of a gain only for steps so small that the network
    is linear over them. The network runs in evaluation mode with frozen parameters, and is restored afterwards.

    Args:
        model: Network from inputs to logits.
        data: As :meth:`Start.delta` takes them.
        temperature: T, above 0.
        quantile: Fraction of the samples, at most 0.5, that may lie beyond ``low_quantile`` and beyond
            ``high_quantile``, entry by entry. For many samples it is estimated from 2,000 drawn at random (fewer where
            these hold more than 2^27 numbers): a quantile of 0.01 is then truly one of 0.008 to 0.012 or so.
        seed: Random seed of that draw.
    """
    check_positive(temperature, "temperature")
    check_real_number(quantile, "quantile", least=0, most=0.5)
    samples = unlabelled_samples(data)
    is_drawn = _drawn(samples, seed) if quantile else None
    ends: tuple[Tensor, ...] = ()
    drawn: list[Tensor] = []
    with frozen(model), torch.enable_grad():
        device = device_of(model)
        gradient = torch.zeros(samples.input_shape, dtype=torch.float64, device=device)
        entropies = gradient.new_zeros(len(samples))
        for inputs, positions in samples.batches(device=device):
            low, high = inputs.amin(dim=0), inputs.amax(dim=0)
            ends = (torch.minimum(low, ends[0]), torch.maximum(high, ends[1])) if ends else (low, high)
            if is_drawn is not None:
                drawn.append(inputs[is_drawn[positions.cpu()].to(inputs.device)])
            leaf = inputs.detach().requires_grad_()
            # The network gets a copy, as it may change its input in place. In float32 the entropy of a confident
            # network has few digits left.
            log_probs = (extract_logits(model(leaf.clone())).double() / temperature).log_softmax(dim=1)
            of_batch = -(log_probs.exp() * log_probs).sum(dim=1)
            if not of_batch.requires_grad:
                raise InputError(
                    "the network's logits must follow from its input by differentiable operations, for δ to have a "
                    "gradient; here they do not. Look for no_grad, detach or rounding in its forward.",
                    argument="model",
                )
            (slopes,) = torch.autograd.grad(of_batch.sum(), leaf)
            gradient += slopes.sum(dim=0, dtype=torch.float64)
            entropies[positions.to(device)] = of_batch.detach()
    bad = (~entropies.isfinite()).nonzero()
    if bad.numel():
        raise InputError(
            f"the network's logits must be finite; they are not at row {int(bad[0])} ({len(bad)} of "
            f"{len(entropies)} samples). Check its inputs there, and whether it overflows in half precision.",
            argument="model",
        )
    typical = _quantiles(torch.cat(drawn), quantile) if drawn else ends
    return EntropyGradient(gradient, float(entropies.mean()), *ends, *typical)


def _drawn(samples: LabelledInputs, seed: int) -> Tensor:
    """Draw the samples of the quantiles, (n,) bool, on the CPU and so the same on every device."""
    size = min(len(samples), _SAMPLED, max(1, _SAMPLED_NUMBERS // math.prod(samples.input_shape)))
    is_drawn = torch.zeros(len(samples), dtype=torch.bool)
    is_drawn[torch.randperm(len(samples), generator=torch.Generator().manual_seed(seed))[:size]] = True
    return is_drawn


def _quantiles(inputs: Tensor, quantile: float) -> tuple[Tensor, ...]:
    """Return, entry by entry, two values of the inputs (n, ...) that at most this fraction of them lies beyond."""
    beyond = int(quantile * (len(inputs) - 1))
    blocks = inputs.reshape(len(inputs), -1).split(max(1, _SORTED_NUMBERS // len(inputs)), dim=1)
    ends = [block.sort(dim=0).values[[beyond, -1 - beyond]] for block in blocks]
    return torch.cat(ends, dim=1).reshape(2, *inputs.shape[1:]).unbind()
