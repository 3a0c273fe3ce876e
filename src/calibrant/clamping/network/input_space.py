"""What the numbers fed to a network are, so that bounds given in pixels mean pixels."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from math import isfinite
from numbers import Real
from typing import Any, Self, final

import torch
from torch import Tensor

from calibrant.checks import check_bool
from calibrant.errors import InputError
from calibrant.numerics.precision import working

__all__ = ["InputSpace"]

# What normalising in float32 may put outside the range, relative to its ends; far less than a step of 8 bits.
_ROUNDING = 1e-5


@final
@dataclass(frozen=True)
class InputSpace:
    """The range of a pixel, and the normalisation (pixel - mean) / std between pixels and the network.

    δ is added to what the network is fed, so in units of ``std``; this says what that is in pixels. It is taken at its
    word: a network that normalises inside itself is fed pixels, and has no mean and std here.

    Args:
        low: Of a pixel, before the normalisation.
        high: Of a pixel, above ``low``.
        mean: One number a channel (dim 0 of an input), or one for all; None for 0.
        std: The same, above 0; None for 1.
        clips: Whether inputs that δ pushes out of the range are brought back to it.

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
        """The lowest and the highest input, α and β of Neural Clamping's theorem 3.2, in the network's units.

        Args:
            like: One input, or δ: no batch axis, channels at dim 0.

        Returns:
            Both of the shape, type and device of ``like``.

        Raises:
            InputError: If its channels are not as many as those of the normalisation, or it is of whole numbers.
        """
        if not like.is_floating_point():
            raise InputError(f"an input must be of floating point for its bounds to fit into it; got {like.dtype}.")
        mean, std = self._beside(like, axis=0)
        low, high = ((edge - mean) / std for edge in (self.low, self.high))
        return low.to(like).expand(like.shape).contiguous(), high.to(like).expand(like.shape).contiguous()

    def check_holds(self, inputs: Tensor, positions: Tensor | None = None) -> None:
        """Inputs lie in the range, but for what is lost in normalising them.

        Args:
            inputs: Shape (m, ...), in the network's units.
            positions: What to call their rows, (m,); None to name no row.

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
            f"network takes them; got {float(inputs[row][place]):.4g} {where}. Give the low, high, mean and std with "
            "which these inputs were made."
        )

    def pixels(self, inputs: Tensor) -> Tensor:
        """Undo the normalisation of a batch; (n, c, ...) -> the same, in float32 or float64.

        Nothing is cut off: what δ pushed out of the range is seen to lie there.

        Args:
            inputs: With a batch axis, channels at dim 1 whatever follows; one input is ``inputs[None]``.

        Raises:
            InputError: If the channels are not as many as those of the normalisation, or the batch axis is missing.
        """
        if inputs.ndim < 2:  # rows and channels
            raise InputError(
                f"inputs must be a batch, (n, c, ...); got shape {tuple(inputs.shape)}. Of one input give inputs[None]."
            )
        precise = working(inputs)
        mean, std = (values.to(precise) for values in self._beside(inputs, axis=1))
        return precise * std + mean

    def settings(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        mean, std = (None if values is None else list(values) for values in (self.mean, self.std))
        return {"low": self.low, "high": self.high, "mean": mean, "std": std, "clips": self.clips}

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Self:
        """The reverse of :meth:`settings`.

        Raises:
            InputError: If a name is missing or not known, or a value is not allowed.
        """
        names = [field.name for field in fields(cls)]
        if set(settings) != set(names):
            raise InputError(f"an input space must have {', '.join(names)}; got {', '.join(map(str, settings))}.")
        return cls(**settings)

    def _beside(self, inputs: Tensor, *, axis: int) -> tuple[Tensor, Tensor]:
        """Mean and std in float64, shaped to stand beside inputs whose channels are at ``axis``."""
        mean, std = (
            torch.tensor(default if values is None else values, dtype=torch.float64)
            for values, default in ((self.mean, (0.0,)), (self.std, (1.0,)))
        )
        entries, channels = max(len(mean), len(std)), inputs.shape[axis] if inputs.ndim else 0
        if channels == 0 or entries not in {1, channels}:
            raise InputError(
                f"inputs must have the channels of the normalisation, {entries}, at dim {axis}; got {channels} (shape "
                f"{tuple(inputs.shape)}). Give one mean and std for all, or one a channel."
            )
        beside = (-1, *[1] * (inputs.ndim - 1 - axis))
        return mean.reshape(beside), std.reshape(beside)


def _number(value: object, name: str) -> float:
    if not isinstance(value, Real) or isinstance(value, bool) or not isfinite(value):
        raise InputError(f"{name} must be real and finite; got {value!r}.")
    return float(value)


def _numbers(values: object, name: str) -> tuple[float, ...] | None:
    if values is None:
        return None
    if not isinstance(values, tuple | list) or not values:
        raise InputError(f"{name} must be a tuple of numbers, one a channel or one for all; got {values!r}.")
    return tuple(_number(value, f"every {name}") for value in values)
