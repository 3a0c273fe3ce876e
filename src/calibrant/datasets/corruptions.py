"""Image corruptions at five severities, after ImageNet-C and CIFAR-10-C."""

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from typing import ClassVar, final

import numpy as np
import torch
from torch import Tensor

from calibrant.checks import are_images, as_tensor, check_at_least, check_known, check_seed
from calibrant.errors import InputError
from calibrant.paper import Paper

__all__ = [
    "HENDRYCKS",
    "MOST_SEVERE",
    "Brightness",
    "Contrast",
    "Corruption",
    "DefocusBlur",
    "GaussianBlur",
    "GaussianNoise",
    "ImpulseNoise",
    "JPEGCompression",
    "MotionBlur",
    "Pixelate",
    "RowDraws",
    "ShotNoise",
    "corrupt",
    "mirrored",
    "weighted_shifts",
]


@final
@dataclass(frozen=True)
class RowDraws:
    """Random numbers for some rows, from a generator that is started anew for each of them.

    They are drawn on the CPU and then moved, as a GPU's generator would give others. A row's numbers depend on the
    shape of an image, and on nothing else but these:

    Args:
        name: Name of the corruption; another name gives other random numbers.
        seed: At least 0.
        first_row: Number of the first row.

    Example:
        >>> draws = RowDraws("gaussian_noise", seed=0, first_row=0)
        >>> both, second = draws.normal(torch.zeros(2, 5)), RowDraws("gaussian_noise", 0, 1).normal(torch.zeros(1, 5))
        >>> bool((both[1:] == second).all())
        True
    """

    name: str
    seed: int
    first_row: int

    def normal(self, like: Tensor) -> Tensor:
        """Standard normal numbers, of the shape and on the device of a tensor whose first axis is rows."""
        drawn = torch.empty(like.shape)
        for row, generator in zip(drawn.unbind(), self._generators(), strict=False):
            row.normal_(generator=generator)
        return drawn.to(like.device)

    def uniform(self, like: Tensor) -> Tensor:
        """Numbers from 0 to below 1, of the shape and on the device of a tensor whose first axis is rows."""
        drawn = torch.empty(like.shape)
        for row, generator in zip(drawn.unbind(), self._generators(), strict=False):
            row.uniform_(generator=generator)
        return drawn.to(like.device)

    def poisson(self, rates: Tensor) -> Tensor:
        """Counts with these means, whose first axis is rows."""
        rows = zip(rates.cpu().unbind(), self._generators(), strict=False)
        drawn = [torch.poisson(row, generator=generator) for row, generator in rows]
        return torch.stack(drawn).to(rates.device)

    def _generators(self) -> Iterator[torch.Generator]:
        """One generator again and again, at the start of each row's numbers; without an end."""
        generator, row = torch.Generator(), self.first_row
        while True:
            digest = hashlib.sha256(f"{self.name} {self.seed} {row}".encode()).digest()
            generator.manual_seed(int.from_bytes(digest[:4], "big"))  # torch looks at no more than 32 bits
            yield generator
            row += 1


HENDRYCKS = Paper(
    "Hendrycks & Dietterich",
    2019,
    "Benchmarking Neural Network Robustness to Common Corruptions and Perturbations",
    "arXiv:1903.12261",
)


class Corruption(ABC):
    """Spoils images. A concrete one is a frozen record without options.

    Strengths are those that the authors' code used for CIFAR-10-C, images of 32 x 32 pixels; a file says where it
    departs from them. Blurs are measured in pixels and are not made wider for larger images, on which they do less.
    """

    name: ClassVar[str]  # short: the key and the word on the command line
    title: ClassVar[str]  # as people say it
    strengths: ClassVar[tuple[float, ...]]  # at severities 1 to 5
    unit: ClassVar[str]  # what a strength is, in words
    paper: ClassVar[Paper] = HENDRYCKS

    @abstractmethod
    def spoil(self, pixels: Tensor, strength: float, draws: RowDraws) -> Tensor:
        """Images at one strength.

        What becomes of an image must not depend on the images beside it.

        Args:
            pixels: In 0..1, (n, c, h, w) float32 with one or three channels; not to be written to.
            strength: One of ``strengths``.
            draws: Where chance comes from, if any is needed.

        Returns:
            (n, c, h, w) float32; what leaves 0..1 is cut off afterwards.
        """


def weighted_shifts(pixels: Tensor, kernel: Tensor) -> Tensor:
    """Every pixel replaced by the mean of those around it, with these weights.

    An image's mean stays as it is if the kernel is symmetric and its weights sum to 1: what would leave at an edge
    comes back in.

    Args:
        pixels: (n, c, h, w).
        kernel: Weights, (rows, columns), both odd, the middle one for the pixel itself.

    Returns:
        (n, c, h, w).

    Example:
        >>> weighted_shifts(torch.tensor([[[[1.0, 2.0, 6.0]]]]), torch.tensor([[0.25, 0.5, 0.25]]))
        tensor([[[[1.2500, 2.7500, 5.0000]]]])
    """
    height, width = pixels.shape[2:]
    down, across = kernel.shape[0] // 2, kernel.shape[1] // 2
    rows = mirrored(torch.arange(-down, height + down, device=pixels.device), height)
    columns = mirrored(torch.arange(-across, width + across, device=pixels.device), width)
    framed = pixels[:, :, rows][..., columns]
    total = torch.zeros_like(pixels)
    # Kernels are small and mostly empty: adding up is as fast as a convolution, and the same on every device.
    for top, weights in enumerate(kernel.tolist()):
        for left, weight in enumerate(weights):
            if weight:
                total.add_(framed[:, :, top : top + height, left : left + width], alpha=weight)
    return total


def mirrored(places: Tensor, size: int) -> Tensor:
    """Places on an endless line as those of an image with a mirror at its edges: 1 0 | 0 1 2 | 2 1.

    Example:
        >>> mirrored(torch.arange(-2, 8), 3).tolist()
        [1, 0, 0, 1, 2, 2, 1, 0, 0, 1]
    """
    folded = places % (2 * size)
    return torch.minimum(folded, 2 * size - 1 - folded)


@final
@dataclass(frozen=True)
class GaussianNoise(Corruption):
    """Independent normal noise in every channel of every pixel; the same noise, scaled, at every severity."""

    name: ClassVar[str] = "gaussian_noise"
    title: ClassVar[str] = "Gaussian noise"
    strengths: ClassVar[tuple[float, ...]] = (0.04, 0.06, 0.08, 0.09, 0.10)
    unit: ClassVar[str] = "standard deviation, in parts of the full range"

    def spoil(self, pixels: Tensor, strength: float, draws: RowDraws) -> Tensor:
        return pixels + strength * draws.normal(pixels)


@final
@dataclass(frozen=True)
class ShotNoise(Corruption):
    """Poisson noise: black stays black, and the variance grows with brightness."""

    name: ClassVar[str] = "shot_noise"
    title: ClassVar[str] = "Shot noise"
    strengths: ClassVar[tuple[float, ...]] = (500, 250, 100, 75, 50)
    unit: ClassVar[str] = "photons that make white"

    def spoil(self, pixels: Tensor, strength: float, draws: RowDraws) -> Tensor:
        return draws.poisson(pixels * strength) / strength


@final
@dataclass(frozen=True)
class ImpulseNoise(Corruption):
    """A share of all values, each channel by itself, becomes 0 or full, one as likely as the other.

    What is lost at one severity is lost at the next, too.
    """

    name: ClassVar[str] = "impulse_noise"
    title: ClassVar[str] = "Impulse noise"
    strengths: ClassVar[tuple[float, ...]] = (0.01, 0.02, 0.03, 0.05, 0.07)
    unit: ClassVar[str] = "share of the values that are lost"

    def spoil(self, pixels: Tensor, strength: float, draws: RowDraws) -> Tensor:
        fate = draws.uniform(pixels)
        return pixels.masked_fill(fate < strength / 2, 0.0).masked_fill_(fate >= 1 - strength / 2, 1.0)


_REACH = 4  # standard deviations, as in the authors' code


@final
@dataclass(frozen=True)
class GaussianBlur(Corruption):
    """Every pixel becomes a mean of its neighbours, weighted by a bell."""

    name: ClassVar[str] = "gaussian_blur"
    title: ClassVar[str] = "Gaussian blur"
    strengths: ClassVar[tuple[float, ...]] = (0.4, 0.6, 0.7, 0.8, 1.0)
    unit: ClassVar[str] = "standard deviation, in pixels"

    def spoil(self, pixels: Tensor, strength: float, draws: RowDraws) -> Tensor:
        del draws
        # Differs from the paper: its code repeats the pixels at the edge, which changes an image's mean.
        reach = math.floor(_REACH * strength + 0.5)
        places = torch.arange(-reach, reach + 1, dtype=torch.float64)
        bell = (-(places**2) / (2 * strength**2)).exp()
        bell /= bell.sum()
        return weighted_shifts(weighted_shifts(pixels, bell[:, None]), bell[None])


_EDGE = {0.3: 0.4, 0.4: 0.5, 0.5: 0.6, 1.0: 0.2, 1.5: 0.1}  # how soft the disk's edge is, for each radius


@final
@dataclass(frozen=True)
class DefocusBlur(Corruption):
    """Every pixel becomes the mean of a disk around it, whose edge is softened.

    On images as small as CIFAR's the disk is one pixel up to severity 3, so that these are blurs by the soft edge
    alone, much as :class:`GaussianBlur`; at severity 4 it is a cross of five pixels, at 5 a square of nine.
    """

    name: ClassVar[str] = "defocus_blur"
    title: ClassVar[str] = "Defocus blur"
    strengths: ClassVar[tuple[float, ...]] = tuple(_EDGE)
    unit: ClassVar[str] = "radius of the disk, in pixels"

    def spoil(self, pixels: Tensor, strength: float, draws: RowDraws) -> Tensor:
        del draws
        # Differs from the paper: its code mirrors at the middle of the outermost pixels, which changes an image's mean.
        places = torch.arange(-1, 2, dtype=torch.float64)
        disk = (places**2 + places[:, None] ** 2 <= strength**2).double()
        bell = (-(places**2) / (2 * _EDGE[strength] ** 2)).exp()
        return weighted_shifts(weighted_shifts(pixels, disk / disk.sum()), torch.outer(bell, bell) / bell.sum() ** 2)


_SHAKE = 4  # standard deviations
_STEEPEST = math.pi / 4


@final
@dataclass(frozen=True)
class MotionBlur(Corruption):
    """Every image is smeared to one side along a line, by half a bell.

    The line's slope is drawn for each image, up to 45 degrees from the horizontal, and is the same at every severity.
    """

    name: ClassVar[str] = "motion_blur"
    title: ClassVar[str] = "Motion blur"
    # Differs from the paper: its code has 2, 2 and 2.5 at severities 3 to 5, and calls for a wider cut-off in between,
    # which lies so far out on the bell that severities 3 and 4 are the same images.
    strengths: ClassVar[tuple[float, ...]] = (1.0, 1.5, 2.0, 2.25, 2.5)
    unit: ClassVar[str] = "standard deviation along the line, in pixels"

    def spoil(self, pixels: Tensor, strength: float, draws: RowDraws) -> Tensor:
        height, width = pixels.shape[2:]
        row, column = (torch.arange(size, device=pixels.device) for size in (height, width))
        angles = (2 * draws.uniform(pixels[:, :1, :1, 0]) - 1) * _STEEPEST  # (n, 1, 1)
        flat = pixels.flatten(2)
        total, weights = torch.zeros_like(flat), 0.0
        for step in range(math.floor(_SHAKE * strength) + 1):
            rows = mirrored(row + (step * angles.sin()).round().long(), height)
            columns = mirrored(column + (step * angles.cos()).round().long(), width)
            places = (rows.mT * width + columns).flatten(1)[:, None]
            weight = math.exp(-(step**2) / (2 * strength**2))
            total.add_(flat.gather(2, places.expand_as(flat)), alpha=weight)
            weights += weight
        return (total / weights).view_as(pixels)


@final
@dataclass(frozen=True)
class Brightness(Corruption):
    """The brightest channel of every pixel is raised by so much, at most to full; hue and saturation stay.

    So the other channels rise in proportion, and black becomes grey: adding to the value in the HSV colour space.
    """

    name: ClassVar[str] = "brightness"
    title: ClassVar[str] = "Brightness"
    strengths: ClassVar[tuple[float, ...]] = (0.05, 0.1, 0.15, 0.2, 0.3)
    unit: ClassVar[str] = "what is added, in parts of the full range"

    def spoil(self, pixels: Tensor, strength: float, draws: RowDraws) -> Tensor:
        del draws
        value = pixels.amax(1, keepdim=True)
        raised = (value + strength).clamp(max=1)
        return torch.where(value > 0, pixels / value * raised, raised)


@final
@dataclass(frozen=True)
class Contrast(Corruption):
    """Every channel of an image is drawn towards its mean."""

    name: ClassVar[str] = "contrast"
    title: ClassVar[str] = "Contrast"
    strengths: ClassVar[tuple[float, ...]] = (0.75, 0.5, 0.4, 0.3, 0.15)
    unit: ClassVar[str] = "part of the contrast that is left"

    def spoil(self, pixels: Tensor, strength: float, draws: RowDraws) -> Tensor:
        del draws
        return pixels.mean((2, 3), keepdim=True).lerp(pixels, strength)


@final
@dataclass(frozen=True)
class Pixelate(Corruption):
    """Made smaller by a box filter, then as large as before by repeating pixels.

    A box takes the mean of the whole pixels whose middle it covers, as Pillow's does. Sizes are whole numbers, so that
    on very small images, of 8 x 8 pixels say, severities may be the same or even change places, and on a single pixel
    nothing happens.
    """

    name: ClassVar[str] = "pixelate"
    title: ClassVar[str] = "Pixelation"
    strengths: ClassVar[tuple[float, ...]] = (0.95, 0.9, 0.85, 0.75, 0.65)
    unit: ClassVar[str] = "part of the width and height that is left"

    def spoil(self, pixels: Tensor, strength: float, draws: RowDraws) -> Tensor:
        del draws
        return _coarse(_coarse(pixels, 2, strength), 3, strength)


def _coarse(pixels: Tensor, axis: int, left: float) -> Tensor:
    size = pixels.shape[axis]
    small = max(1, int(size * left))
    middles = torch.arange(size, device=pixels.device) + 0.5
    boxes = (middles * small / size).long()  # for every pixel, the box that its middle lies in
    counts = boxes.bincount(minlength=small).reshape([-1 if other == axis else 1 for other in range(pixels.ndim)])
    shape = [small if other == axis else length for other, length in enumerate(pixels.shape)]
    means = pixels.new_zeros(shape).index_add_(axis, boxes, pixels) / counts
    return means.index_select(axis, boxes)


_PEAK = 255  # of a pixel in eight bits, which is what JPEG stores


@final
@dataclass(frozen=True)
class JPEGCompression(Corruption):
    """Every image is saved as JPEG and read again, in memory; colour at half the resolution, as is usual."""

    name: ClassVar[str] = "jpeg_compression"
    title: ClassVar[str] = "JPEG compression"
    strengths: ClassVar[tuple[float, ...]] = (80, 65, 58, 50, 40)
    unit: ClassVar[str] = "quality"

    def spoil(self, pixels: Tensor, strength: float, draws: RowDraws) -> Tensor:
        from PIL import Image

        del draws
        stored = (pixels * _PEAK).round().to(torch.uint8).movedim(1, -1).contiguous().cpu().numpy()
        spoilt = np.empty_like(stored)
        # One after the other: at 32 x 32 most of the work is Python's own, and threads made it slower.
        for image, result in zip(stored, spoilt, strict=True):
            file = BytesIO()
            plane = image[..., 0] if image.shape[-1] == 1 else image
            Image.fromarray(plane).save(file, "JPEG", quality=int(strength))
            with Image.open(file, formats=("JPEG",)) as read:
                result[:] = np.asarray(read).reshape(image.shape)
        return torch.from_numpy(spoilt).to(pixels.device).movedim(-1, 1) / _PEAK


MOST_SEVERE = 5
_BLOCK = 1 << 20  # numbers worked on at a time, about what a processor keeps close
# Where a result lies half-way between two whole numbers, it must not hang on the last bit of a float, which differs
# with the batch and the device.
_HALF = 0.5 + 1e-4


def _corruptions() -> dict[str, Corruption]:
    """Every corruption by name.

    Example:
        >>> _corruptions()["defocus_blur"].title
        'Defocus blur'
    """
    made = [kind() for kind in Corruption.__subclasses__()]
    return {corruption.name: corruption for corruption in sorted(made, key=lambda corruption: corruption.name)}


def corrupt(images: Tensor, name: str, *, severity: int, seed: int = 0, first_row: int = 0, peak: int = 255) -> Tensor:
    """Spoil images, to see what a network makes of them.

    An image comes out the same in whatever batch it goes in: chance depends on the corruption, the seed and the row.
    Severities are ordered, but severity 3 of one corruption is not as bad as severity 3 of another, and what they do
    to a network depends on how it was trained. A network trained on such images is no longer tested by them.

    Args:
        images: As they were stored, (n, c, h, w) uint8 with one or three channels.
        name: Name of a corruption, see ``calibrant list corruptions``.
        severity: 1 to 5; 0 leaves the images as they are.
        seed: Random seed.
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
    known = _corruptions()
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
