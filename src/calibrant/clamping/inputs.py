"""Inputs of a clamped network: their range, augmentation, and the δ added to them in its coordinates."""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Annotated, Any, Literal, NamedTuple, Self, TypeAlias, final

import torch
from torch import Tensor
from torch.nn import functional as F

from calibrant.checks import AtLeastOne, Finite, are_images, check_options, check_positive
from calibrant.errors import InputError, Row
from calibrant.inference import LabelledInputs
from calibrant.numerics.softmax import to_working_precision

__all__ = ["DeltaShape", "InputSpace", "LowFrequencies", "PerChannel", "PerEntry"]

# Inputs may lie outside the range by this fraction of its ends: rounding of a normalisation in float32.
_OUTSIDE = 1e-5
# As floats, whole numbers too: a journal compares what was written.
_Number: TypeAlias = Annotated[Finite, lambda number, **_: float(number)]


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

    low: _Number = 0.0
    high: _Number = 1.0
    mean: tuple[_Number, ...] | None = None
    std: tuple[Annotated[_Number, check_positive], ...] | None = None
    clips: bool = False

    def __post_init__(self) -> None:
        check_options(self)
        if not self.low < self.high:
            raise InputError(f"low must be below high; got {self.low:g} and {self.high:g}.")
        lengths = {len(values) for values in (self.mean, self.std) if values is not None} - {1}
        if len(lengths) > 1 or 0 in lengths:
            raise InputError(
                f"mean and std must have a number for each of the same channels, or one for all; "
                f"got {len(self.mean or ())} and {len(self.std or ())}."
            )

    def bounds(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """Return the lowest and highest input (α and β of theorem 3.2) in the network's units, shaped like an input."""
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
        where = f"at entry {place}" if positions is None else f"at {Row(int(positions[row]))}, entry {place}"
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
                f"inputs must be a batch, (n, c, ...); got shape {tuple(inputs.shape)}. For one, pass inputs[None]."
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
        """Number of augmented copies of a sample in a pass; 1 without augmentation."""
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


def check_gradient(exists: bool) -> None:
    """Check that logits have a gradient in δ."""
    if not exists:
        raise InputError(
            "the network's logits must carry a gradient to its inputs, by which δ is learned; these carry none. Remove "
            "no_grad, inference_mode and detach from its forward, take it before it is quantised, or give "
            "strength=math.inf for the head alone.",
            argument="model",
        )


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

    size: AtLeastOne = 4

    def __post_init__(self) -> None:
        check_options(self)

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
