"""How freely δ may vary: every number by itself, one a channel, or the lowest frequencies only.

Fewer numbers can learn less of the calibration images by heart. Every choice is an orthonormal basis, so that ‖δ‖ is
the norm of its coefficients too.
"""

import math
from dataclasses import dataclass
from typing import Protocol, TypeAlias, final

import torch
from torch import Tensor

from calibrant.checks import check_at_least
from calibrant.errors import InputError

__all__ = ["Basis", "ChannelFreedom", "Freedom", "FullFreedom", "LowFrequencies"]

_IMAGE_AXES = 3  # channel, height, width


class Basis(Protocol):
    """Coefficients to δ and back."""

    shape: tuple[int, ...]

    def spread(self, coefficients: Tensor) -> Tensor:
        """δ, of an input's shape."""
        ...

    def gathered(self, gradient: Tensor) -> Tensor:
        """The coefficients' gradient, given δ's: the transpose of :meth:`spread`."""
        ...


@final
@dataclass(frozen=True)
class FullFreedom:
    """Every number of δ is learned, as in the paper; with few calibration images it over-fits unless held tightly."""

    def basis(self, like: Tensor) -> Basis:
        return _Plain(tuple(like.shape))


@final
@dataclass(frozen=True)
class ChannelFreedom:
    """One number for each channel (the first axis of an input)."""

    def basis(self, like: Tensor) -> Basis:
        if like.ndim < 1:
            raise InputError("one number a channel needs inputs with an axis; got single numbers.")
        return _Channels(tuple(like.shape))


@final
@dataclass(frozen=True)
class LowFrequencies:
    """The lowest frequencies of each channel of an image, as a cosine transform has them.

    Args:
        size: How many along each side: 4 gives 16 numbers a channel.

    Raises:
        InputError: If it is no whole number above 0.
    """

    size: int = 4

    def __post_init__(self) -> None:
        check_at_least(self.size, 1, "size")

    def basis(self, like: Tensor) -> Basis:
        if like.ndim != _IMAGE_AXES:
            raise InputError(
                f"low frequencies need images, (channels, height, width); got inputs of shape {tuple(like.shape)}. "
                "Choose FullFreedom() or ChannelFreedom()."
            )
        return _Cosines(like, self.size)


Freedom: TypeAlias = FullFreedom | ChannelFreedom | LowFrequencies


@final
class _Plain:
    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape

    def spread(self, coefficients: Tensor) -> Tensor:
        return coefficients

    def gathered(self, gradient: Tensor) -> Tensor:
        return gradient


@final
class _Channels:
    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape[:1]
        self._whole = shape
        self._unit = math.prod(shape[1:]) ** -0.5

    def spread(self, coefficients: Tensor) -> Tensor:
        along: Tensor = coefficients * self._unit
        return along.reshape(-1, *(1 for _ in self._whole[1:])).expand(self._whole)

    def gathered(self, gradient: Tensor) -> Tensor:
        return gradient.reshape(len(gradient), -1).sum(dim=1).mul(self._unit)


@final
class _Cosines:
    def __init__(self, like: Tensor, size: int) -> None:
        channels, *sides = like.shape
        self._down, self._across = (_waves(side, min(size, side), like.device) for side in sides)
        self.shape: tuple[int, ...] = (channels, len(self._down), len(self._across))

    def spread(self, coefficients: Tensor) -> Tensor:
        return self._down.to(coefficients).T @ coefficients @ self._across.to(coefficients)

    def gathered(self, gradient: Tensor) -> Tensor:
        return self._down.to(gradient) @ gradient @ self._across.to(gradient).T


def _waves(n: int, size: int, device: torch.device) -> Tensor:
    """The first cosines over n places, orthonormal, (size, n)."""
    places = torch.arange(n, dtype=torch.float64, device=device) + 0.5
    waves = torch.cos(math.pi / n * torch.arange(size, dtype=torch.float64, device=device)[:, None] * places)
    return waves.div(waves.norm(dim=1, keepdim=True))
