"""Spoiling images by the name of a corruption, and every corruption by its name, read from the folder."""

import inspect
from importlib import import_module

import torch
from torch import Tensor

from calibrant.checks import are_images, as_tensor, check_at_least, check_known, check_seed
from calibrant.datasets.corruptions.base import Corruption
from calibrant.datasets.corruptions.draws import RowDraws
from calibrant.errors import InputError

__all__ = ["MOST_SEVERE", "all_corruptions", "corrupt"]

MOST_SEVERE = 5
_BLOCK = 1 << 20  # numbers worked on at a time, about what a processor keeps close
# Where a result lies half-way between two whole numbers, it must not hang on the last bit of a float, which differs
# with the batch and the device.
_HALF = 0.5 + 1e-4


def all_corruptions() -> dict[str, Corruption]:
    """Every corruption by name.

    Example:
        >>> all_corruptions()["defocus_blur"].title
        'Defocus blur'
    """
    package = import_module("calibrant.datasets.corruptions")
    things = (getattr(package, name) for name in package.__all__)
    kinds = [thing for thing in things if isinstance(thing, type) and issubclass(thing, Corruption)]
    made = [kind() for kind in kinds if not inspect.isabstract(kind)]
    return {corruption.name: corruption for corruption in sorted(made, key=lambda corruption: corruption.name)}


def corrupt(images: Tensor, name: str, *, severity: int, seed: int = 0, first_row: int = 0, peak: int = 255) -> Tensor:
    """Spoil images, to see what a network makes of them.

    An image comes out the same in whatever batch it goes in: chance depends on the corruption, the seed and the row.
    Severities are ordered, but severity 3 of one corruption is not as bad as severity 3 of another, and what they do
    to a network depends on how it was trained. A network trained on such images is no longer tested by them.

    Args:
        images: As they were stored, (n, c, h, w) uint8 with one or three channels.
        name: One of :func:`all_corruptions`.
        severity: 1 to 5; 0 leaves the images as they are.
        seed: Of what is drawn.
        first_row: Number of the first image, where a data set is given in parts.
        peak: What full is: 255, or what the data set's ``PixelScale`` says.

    Returns:
        New images, (n, c, h, w) uint8, on the device of those given.

    Raises:
        UnknownNameError: If there is no such corruption; the message names the closest.
        InputError: If the images are none, or are no longer stored bytes, or an option is out of range.

    Example:
        >>> grey = torch.full((2, 1, 1, 4), 100, dtype=torch.uint8)
        >>> corrupt(grey, "brightness", severity=2)[0].tolist()
        [[[126, 126, 126, 126]]]
        >>> corrupt(grey, "gaussian_noise", severity=2).tolist()
        [[[[75, 117, 85, 107]]], [[[87, 129, 83, 117]]]]
    """
    known = all_corruptions()
    check_known(name, known, "a corruption")
    if check_at_least(severity, 0, "severity") > MOST_SEVERE:
        raise InputError(f"severity must be at most {MOST_SEVERE}; got {severity}.")
    seed, first_row = check_seed(seed), check_at_least(first_row, 0, "first_row")
    images = _checked(images, check_at_least(peak, 1, "peak"))
    spoilt = images.clone()
    if severity == 0 or not images.numel():
        return spoilt
    corruption = known[name]
    strength = corruption.strengths[severity - 1]
    rows = max(1, _BLOCK // images[0].numel())
    for start in range(0, len(images), rows):
        block = slice(start, start + rows)
        draws = RowDraws(name, seed, first_row + start)
        pixels = corruption.spoil(images[block].float() / peak, strength, draws)
        spoilt[block] = (pixels * peak + _HALF).floor_().clamp_(0, peak).to(torch.uint8)
    return spoilt


def _checked(given: Tensor, peak: int) -> Tensor:
    images = as_tensor(given, "images")
    if images.dtype != torch.uint8:
        cure = (
            f"Corrupt them before they are scaled; if they lie in 0..1, pass (images * {peak}).round().to(torch.uint8)"
            if images.is_floating_point()
            else "If they are pixels, pass images.to(torch.uint8); texts cannot be corrupted"
        )
        raise InputError(f"images must be as they were stored, uint8 in 0..{peak}; got {images.dtype}. {cure}.")
    if not are_images(images) or images.shape[1] not in {1, 3}:
        is_last = are_images(images) and images.shape[3] in {1, 3}
        cure = " If channels come last, pass images.movedim(-1, 1)." if is_last else ""
        cure = " For grey images pass images[:, None]." if images.ndim == 3 else cure
        raise InputError(
            f"images must have shape (n, c, h, w) with one or three channels; got {tuple(images.shape)}.{cure}"
        )
    if images.numel() and (most := int(images.max())) > peak:
        raise InputError(f"images must lie in 0..{peak}; got {most}. Pass the peak of their scale, usually 255.")
    return images
