"""Inputs of a clamped network: their range, how δ is added and clipped, augmentation, and the coordinates of δ."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from numbers import Real
from typing import Any, Literal, Protocol, Self, TypeAlias, final

import torch
from torch import Tensor
from torch.nn import functional as F

from calibrant.checks import are_images, check_at_least, check_bool
from calibrant.errors import InputError
from calibrant.inference import CalibrationSamples
from calibrant.numerics.softmax import working

__all__ = [
    "Augmentation",
    "Basis",
    "DeltaShape",
    "InputPreparation",
    "InputSpace",
    "LowFrequencies",
    "PerChannel",
    "PerEntry",
    "add_delta",
    "augmented",
    "upgraded_settings",
]

# Rounding of a normalisation in float32, relative to the range's ends; far less than a step of 8 bits.
_ROUNDING = 1e-5


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

    Raises:
        InputError: If any of that does not hold.

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
        for name in ("low", "high"):
            object.__setattr__(self, name, _number(getattr(self, name), name))
        for name in ("mean", "std"):
            object.__setattr__(self, name, _numbers(getattr(self, name), name))
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
        """Return the lowest and highest input, α and β of Neural Clamping's theorem 3.2, in the network's units.

        Args:
            like: One input, or δ: no batch axis, channels at dim 0.

        Returns:
            Both of the shape, type and device of ``like``.

        Raises:
            InputError: If its channels are not as many as those of the normalisation, or it is of whole numbers.
        """
        if not like.is_floating_point():
            raise InputError(f"an input must be of floating point for its bounds to fit into it; got {like.dtype}.")
        mean, std = self._broadcast(like, axis=0)
        low, high = ((edge - mean) / std for edge in (self.low, self.high))
        return low.to(like).expand(like.shape).contiguous(), high.to(like).expand(like.shape).contiguous()

    def check_inside(self, inputs: Tensor, positions: Tensor | None = None) -> None:
        """Check that inputs lie in the range, up to the rounding of their normalisation.

        Args:
            inputs: Shape (m, ...), in the network's units.
            positions: Their row numbers, (m,), for the message; None to name no row.

        Raises:
            InputError: If one does not.
        """
        low, high = self.bounds(inputs[0])
        slack = max(_ROUNDING, 2 * torch.finfo(inputs.dtype).eps) * torch.maximum(low.abs(), high.abs())
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

    def check_samples(self, samples: CalibrationSamples) -> None:
        """Check that all samples lie in the range.

        Raises:
            InputError: If one does not.
        """
        for inputs, positions in samples.batches(device="cpu"):
            self.check_inside(inputs, positions)

    def pixels(self, inputs: Tensor) -> Tensor:
        """Undo the normalisation of a batch; (n, c, ...) -> the same, in float32 or float64.

        Nothing is clipped: values that δ moved out of the range stay there.

        Args:
            inputs: With a batch axis, channels at dim 1 whatever follows; for one input pass ``inputs[None]``.

        Raises:
            InputError: If the channels are not as many as those of the normalisation, or the batch axis is missing.
        """
        if inputs.ndim < 2:  # samples and channels
            raise InputError(
                f"inputs must be a batch, (n, c, ...); got shape {tuple(inputs.shape)}. For one input, pass "
                "inputs[None]."
            )
        precise = working(inputs)
        mean, std = (values.to(precise) for values in self._broadcast(inputs, axis=1))
        return precise * std + mean

    def settings(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        mean, std = (None if values is None else list(values) for values in (self.mean, self.std))
        return {"low": self.low, "high": self.high, "mean": mean, "std": std, "clips": self.clips}

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Self:
        """Rebuild a space from :meth:`settings`.

        Raises:
            InputError: If a name is missing or not known, or a value is not allowed.
        """
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
_MOST_SEED = 2**63  # of torch


@final
@dataclass(frozen=True)
class InputPreparation:
    """What is done to inputs while δ is learned.

    Args:
        space: Range of the inputs; decides whether x + δ is clipped.
        augmentation: Applied before δ is added.
        views: Number of augmented copies of a sample in a pass.
        seed: Random seed of the augmentation.
    """

    space: InputSpace | None = None
    augmentation: Augmentation = "none"
    views: int = 4
    seed: int = 0

    @property
    def n_views(self) -> int:
        """How often a pass sees a sample; once if copies would not differ."""
        return 1 if self.augmentation == "none" else self.views

    def generator(self, number: int) -> torch.Generator:
        """Return the random generator of a view, or of an epoch."""
        return torch.Generator().manual_seed((self.seed * _SEED_STRIDE + number) % _MOST_SEED)

    def augmented(self, inputs: Tensor, generator: torch.Generator) -> Tensor:
        """Return augmented inputs, before δ is added."""
        return inputs if self.augmentation == "none" else augmented(inputs, self.augmentation, generator, self.space)

    def add_delta(self, inputs: Tensor, delta: Tensor) -> Tensor:
        """Return x + δ, clipped if the space says so."""
        ends = self.space.bounds(inputs[0]) if self.space is not None and self.space.clips else None
        return add_delta(inputs, delta, ends)


def add_delta(inputs: Tensor, delta: Tensor, ends: tuple[Tensor, Tensor] | None = None) -> Tensor:
    """Return x + δ in the inputs' type, clipped to the ends if given.

    Args:
        inputs: Shape (n, ...).
        delta: δ, with the shape of one input.
        ends: The lowest and the highest input, of its shape.

    Example:
        >>> add_delta(torch.tensor([[0.5, 0.25]]), torch.tensor([0.7, 0.0]), (torch.zeros(2), torch.ones(2)))
        tensor([[1.0000, 0.2500]])
    """
    # Not inputs + delta, by which -0 becomes 0: where δ is 0, no bit of an input may change.
    total = inputs - (0 - delta.to(inputs))
    return total if ends is None else total.clamp(*(end.to(inputs) for end in ends))


def augmented(inputs: Tensor, kind: Augmentation, generator: torch.Generator, space: InputSpace | None) -> Tensor:
    """Shift images (n, c, h, w) by up to 4 pixels (an eighth of a small side); ``crop-flip`` also mirrors half.

    Args:
        inputs: As the network takes them.
        kind: Not ``none``.
        generator: On the CPU.
        space: Its lowest pixel fills the border; without one, 0 does.
    """
    if not are_images(inputs):
        raise InputError(f"only images, (n, c, h, w), can be shifted; got inputs of shape {tuple(inputs.shape)}.")
    n, _, height, width = inputs.shape
    most = min(_PADDING, min(height, width) * _PADDING // _FULL_SIDE)
    # Drawn sample by sample, so that a sample gets the same shift in batches of any size.
    drawn = torch.rand((n, 3, 1), generator=generator, dtype=torch.float64).to(inputs.device)
    down, right = (drawn[:, axis].mul(2 * most + 1).long() for axis in range(2))
    mirrored = drawn[:, 2] < (0.5 if kind == "crop-flip" else 0.0)
    border = torch.zeros_like(inputs[0]) if space is None else space.bounds(inputs[0])[0]
    padded = F.pad(inputs - border, (most,) * 4)
    rows = torch.arange(height, device=inputs.device) + down
    columns = torch.arange(width, device=inputs.device)
    columns = torch.where(mirrored, width - 1 - columns, columns) + right
    samples = torch.arange(n, device=inputs.device)[:, None, None]
    return padded.permute(0, 2, 3, 1)[samples, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2) + border


# Coordinates of δ. Fewer of them can overfit less. Every basis is orthonormal, so that ‖δ‖ is the norm of the
# coefficients too.


class Basis(Protocol):
    """Linear map from coefficients to δ."""

    shape: tuple[int, ...]

    def to_delta(self, coefficients: Tensor) -> Tensor:
        """Return δ, of an input's shape."""
        ...

    def pull_back(self, gradient: Tensor) -> Tensor:
        """Return the gradient in the coefficients, given that in δ: the transpose of :meth:`to_delta`."""
        ...


@final
@dataclass(frozen=True)
class PerEntry:
    """Learn every number of δ, as in the paper; with few calibration images it overfits unless heavily penalised."""

    def basis(self, like: Tensor) -> Basis:
        return _Entries(tuple(like.shape))


@final
@dataclass(frozen=True)
class PerChannel:
    """Learn one number of δ per channel (the first axis of an input)."""

    def basis(self, like: Tensor) -> Basis:
        if like.ndim < 1:
            raise InputError("one number per channel needs inputs with an axis; got single numbers.")
        return _Channels(tuple(like.shape))


@final
@dataclass(frozen=True)
class LowFrequencies:
    """Learn the lowest frequencies of each channel of an image, as in a cosine transform.

    Args:
        size: Number of frequencies along each side: 4 gives 16 numbers per channel.

    Raises:
        InputError: If it is no whole number above 0.
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
        return _Cosines(like, self.size)


DeltaShape: TypeAlias = PerEntry | PerChannel | LowFrequencies


def upgraded_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return a method's settings under today's names; earlier versions called the shape of δ ``freedom``.

    Example:
        >>> upgraded_settings({"freedom": {"kind": "FullFreedom"}, "seed": 0})
        {'delta_shape': {'kind': 'PerEntry'}, 'seed': 0}
    """
    kinds = {"FullFreedom": "PerEntry", "ChannelFreedom": "PerChannel"}
    return {
        "delta_shape" if name == "freedom" else name: (
            {**value, "kind": kinds.get(value["kind"], value["kind"])} if name == "freedom" else value
        )
        for name, value in settings.items()
    }


@final
class _Entries:
    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape

    def to_delta(self, coefficients: Tensor) -> Tensor:
        return coefficients

    def pull_back(self, gradient: Tensor) -> Tensor:
        return gradient


@final
class _Channels:
    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape[:1]
        self._whole = shape
        self._unit = math.prod(shape[1:]) ** -0.5

    def to_delta(self, coefficients: Tensor) -> Tensor:
        scaled: Tensor = coefficients * self._unit
        return scaled.reshape(-1, *(1 for _ in self._whole[1:])).expand(self._whole)

    def pull_back(self, gradient: Tensor) -> Tensor:
        return gradient.reshape(len(gradient), -1).sum(dim=1).mul(self._unit)


@final
class _Cosines:
    def __init__(self, like: Tensor, size: int) -> None:
        channels, *sides = like.shape
        self._down, self._across = (_cosines(side, min(size, side), like.device) for side in sides)
        self.shape: tuple[int, ...] = (channels, len(self._down), len(self._across))

    def to_delta(self, coefficients: Tensor) -> Tensor:
        return self._down.to(coefficients).T @ coefficients @ self._across.to(coefficients)

    def pull_back(self, gradient: Tensor) -> Tensor:
        return self._down.to(gradient) @ gradient @ self._across.to(gradient).T


def _cosines(n: int, size: int, device: torch.device) -> Tensor:
    """Return the first cosines over n places, orthonormal, (size, n)."""
    places = torch.arange(n, dtype=torch.float64, device=device) + 0.5
    waves = torch.cos(math.pi / n * torch.arange(size, dtype=torch.float64, device=device)[:, None] * places)
    return waves.div(waves.norm(dim=1, keepdim=True))
