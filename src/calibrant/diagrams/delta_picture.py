"""Numbers behind the figure of δ: its signed channels, and inputs with and without it."""

from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias, final, get_args

import torch
from torch import Tensor

from calibrant.checks import are_images, check_known
from calibrant.errors import InputError

Channels: TypeAlias = Literal["each", "mean"]
# Share of the range by which rounding may leave it, far less than a step of 8 bits.
_ROUNDING = 1e-4
_NAMES = {1: ("δ",), 3: ("δ, red", "δ, green", "δ, blue")}


class PixelSpace(Protocol):
    """Range and normalisation of the inputs: :class:`calibrant.clamping.InputSpace`."""

    @property
    def low(self) -> float: ...
    @property
    def high(self) -> float: ...
    def pixels(self, inputs: Tensor) -> Tensor: ...


class Clamped(Protocol):
    """A clamped model: :class:`calibrant.clamping.ClampedModel`."""

    @property
    def delta(self) -> Tensor: ...
    @property
    def space(self) -> PixelSpace | None: ...
    def perturbed(self, inputs: Tensor) -> Tensor: ...


@final
@dataclass(frozen=True, eq=False)
class DeltaPicture:
    """Inputs and δ, in pixels where the space is known, else in the network's own units."""

    inputs: Tensor  # (m, c, h, w), c is 1 or 3
    perturbed: Tensor  # the same with δ, not cut off
    maps: Tensor  # (p, h, w): δ per channel, or the mean of the channels
    map_names: tuple[str, ...]
    captions: tuple[str, ...]  # one per input, or none
    low: float  # drawn black
    high: float  # drawn white
    limit: float  # |δ| drawn in full colour; above 0
    norm: float  # ‖δ‖ in the network's units, as in the penalty
    outside: float  # share of the perturbed inputs' numbers beyond black and white
    in_pixels: bool

    @property
    def factor(self) -> float:
        """How much stronger δ is drawn than the inputs: from black to white, over the |δ| of full colour."""
        return (self.high - self.low) / self.limit


def delta_picture(
    clamped: Clamped, inputs: Tensor, *, channels: Channels = "each", captions: tuple[str, ...] = ()
) -> DeltaPicture:
    """Compute the picture of δ, and of a few inputs without and with it.

    Full colour is at the largest |δ| of any pixel, so the maps show where δ is, not how large: see the factor.
    A mean over channels hides a δ that is a change of hue.

    Args:
        clamped: A clamped model of images.
        inputs: A few inputs, (m, c, h, w), as the network takes them; unless c is 1 or 3, their mean is shown.
        channels: Show ``each`` channel of δ (their mean, if they are not 1 or 3), or the ``mean``.
        captions: A word or two per input, such as its class; or none.

    Example:
        >>> from calibrant.clamping import ClampedModel, InputSpace
        >>> from calibrant.maps import Scale
        >>> delta = torch.full((1, 2, 2), 0.2)
        >>> head = Scale(torch.tensor(2.0), n_classes=3)
        >>> clamped = ClampedModel(torch.nn.Flatten(), delta, head, space=InputSpace(mean=(0.5,), std=(0.5,)))
        >>> picture = delta_picture(clamped, torch.zeros(1, 1, 2, 2))
        >>> round(picture.limit, 3), round(picture.factor), round(float(picture.perturbed.mean()), 3)
        (0.1, 10, 0.6)
    """
    check_known(channels, get_args(Channels), "channels")
    if not are_images(inputs) or not len(inputs):
        raise InputError(
            f"inputs must be images, of shape (m, channels, height, width), and at least one; got "
            f"{tuple(inputs.shape)}. Other inputs have no picture; plot clamped.delta itself."
        )
    if captions and len(captions) != len(inputs):
        raise InputError(f"captions must be as many as inputs, {len(inputs)}, or none; got {len(captions)}.")
    space = clamped.space
    plain = inputs.detach()
    moved, delta = clamped.perturbed(plain).detach(), clamped.delta.detach()
    norm = float(delta.double().norm())
    if space is not None:
        # The normalisation is undone by an affine map, of which δ, a difference, needs the slope alone.
        delta = (space.pixels(delta[None]) - space.pixels(torch.zeros_like(delta[None])))[0]
        plain, moved, low, high = space.pixels(plain), space.pixels(moved), space.low, space.high
    else:  # from the darkest to the lightest of the inputs shown, which need not be all there are
        low, high = (float(end) for end in torch.aminmax(plain.float()))
        high = high if low < high else low + 1.0
    delta, plain, moved = (part.float().cpu() for part in (delta, plain, moved))
    slack = _ROUNDING * (high - low)
    if channels == "each" and len(delta) in _NAMES:
        maps, names = delta, _NAMES[len(delta)]
    else:
        maps, names = delta.mean(dim=0, keepdim=True), ("δ" if len(delta) == 1 else "δ, mean of channels",)
    return DeltaPicture(
        inputs=_shown(plain),
        perturbed=_shown(moved),
        maps=maps,
        map_names=names,
        captions=tuple(captions),
        low=low,
        high=high,
        limit=float(maps.abs().max()) or high - low,
        norm=norm,
        outside=float(((moved < low - slack) | (moved > high + slack)).double().mean()),
        in_pixels=space is not None,
    )


def _shown(images: Tensor) -> Tensor:
    return images if images.shape[1] in _NAMES else images.mean(dim=1, keepdim=True)
