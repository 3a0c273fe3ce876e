"""Image corruptions at five severities, after ImageNet-C and CIFAR-10-C."""

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from typing import final

import numpy as np
import torch
from torch import Tensor

from calibrant.checks import are_images, as_tensor, check_at_least, check_known, check_seed
from calibrant.errors import InputError
from calibrant.paper import Paper


@final
@dataclass(frozen=True)
class RowDraws:
    """Random numbers for some samples, from a generator seeded separately for each of them.

    The numbers of a sample depend on the shape of an image, the corruption, the seed and the sample's number alone.
    They are drawn on the CPU and then moved, because a GPU's generator would give others.
    """

    name: str
    seed: int
    first_row: int

    def normal(self, like: Tensor) -> Tensor:
        """Draw standard normal numbers in the shape and on the device of a tensor (n, ...)."""
        return self._draw(torch.empty(like.shape), Tensor.normal_).to(like.device)

    def uniform(self, like: Tensor) -> Tensor:
        """Draw numbers from 0 to below 1 in the shape and on the device of a tensor (n, ...)."""
        return self._draw(torch.empty(like.shape), Tensor.uniform_).to(like.device)

    def poisson(self, rates: Tensor) -> Tensor:
        """Draw counts with these means, (n, ...)."""
        return self._draw(rates.cpu(), torch.poisson).to(rates.device)

    def _draw(self, rows: Tensor, draw: Callable[..., Tensor]) -> Tensor:
        generator, drawn = torch.Generator(), []
        for number, row in enumerate(rows.unbind(), self.first_row):
            digest = hashlib.sha256(f"{self.name} {self.seed} {number}".encode()).digest()
            generator.manual_seed(int.from_bytes(digest[:4], "big"))  # torch uses no more than 32 bits
            drawn.append(draw(row, generator=generator))
        return torch.stack(drawn)


HENDRYCKS = Paper("Hendrycks & Dietterich", 2019,
                  "Benchmarking Neural Network Robustness to Common Corruptions and Perturbations",
                  "arXiv:1903.12261")  # fmt: skip


Apply = Callable[[Tensor, float, RowDraws], Tensor]


@final
@dataclass(frozen=True)
class Corruption:
    """A corruption of images.

    Strengths are those that the authors' code used for CIFAR-10-C, images of 32 x 32 pixels; departures are noted.
    Blurs are measured in pixels and are not made wider for larger images, on which they do less.
    """

    name: str  # on the command line
    title: str
    unit: str  # unit of a strength, in words
    strengths: tuple[float, ...]  # at severities 1 to 5
    # Of images in 0..1, (n, c, h, w) float32 with one or three channels, which it must not write to, at one strength.
    # The result for an image must not depend on the others; values outside 0..1 are clipped afterwards.
    apply: Apply
    paper: Paper = HENDRYCKS


_declared: list[Corruption] = []


def _corruption(title: str, unit: str, strengths: tuple[float, ...]) -> Callable[[Apply], Apply]:
    """Declare a corruption by its function, whose name is that of the corruption."""

    def declare(apply: Apply) -> Apply:
        _declared.append(Corruption(apply.__name__, title, unit, strengths, apply))
        return apply

    return declare


def weighted_shifts(pixels: Tensor, kernel: Tensor) -> Tensor:
    """Replace every pixel, (n, c, h, w), by the weighted mean of those around it; the kernel has odd sides.

    The mean of an image does not change if the kernel is symmetric and sums to 1, because edges are mirrored.
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
    """Map positions on an endless line into an image that is mirrored at its edges: 1 0 | 0 1 2 | 2 1."""
    folded = places % (2 * size)
    return torch.minimum(folded, 2 * size - 1 - folded)


@_corruption("Gaussian noise", "standard deviation, in parts of the full range", (0.04, 0.06, 0.08, 0.09, 0.10))
def gaussian_noise(pixels: Tensor, strength: float, draws: RowDraws) -> Tensor:
    """Add independent normal noise to every channel of every pixel; severities scale the same noise."""
    return pixels + strength * draws.normal(pixels)


@_corruption("Shot noise", "photons that make white", (500, 250, 100, 75, 50))
def shot_noise(pixels: Tensor, strength: float, draws: RowDraws) -> Tensor:
    """Draw Poisson counts of photons: black stays black, and the variance grows with brightness."""
    return draws.poisson(pixels * strength) / strength


@_corruption("Impulse noise", "share of the values that are lost", (0.01, 0.02, 0.03, 0.05, 0.07))
def impulse_noise(pixels: Tensor, strength: float, draws: RowDraws) -> Tensor:
    """Set a share of all values, each channel by itself, to 0 or full; a lost value stays lost at higher severities."""
    fate = draws.uniform(pixels)
    return pixels.masked_fill(fate < strength / 2, 0.0).masked_fill_(fate >= 1 - strength / 2, 1.0)


@_corruption("Gaussian blur", "standard deviation, in pixels", (0.4, 0.6, 0.7, 0.8, 1.0))
def gaussian_blur(pixels: Tensor, strength: float, _: RowDraws) -> Tensor:
    """Replace every pixel by a mean of its neighbours, weighted by a bell."""
    # Differs from the paper: its code repeats the pixels at the edge, which changes an image's mean.
    reach = math.floor(4 * strength + 0.5)  # four standard deviations, as in the authors' code
    places = torch.arange(-reach, reach + 1, dtype=torch.float64)
    bell = (-(places**2) / (2 * strength**2)).exp()
    bell /= bell.sum()
    return weighted_shifts(weighted_shifts(pixels, bell[:, None]), bell[None])


_EDGE = {0.3: 0.4, 0.4: 0.5, 0.5: 0.6, 1.0: 0.2, 1.5: 0.1}  # standard deviation of the disk's soft edge, by radius


@_corruption("Defocus blur", "radius of the disk, in pixels", tuple(_EDGE))
def defocus_blur(pixels: Tensor, strength: float, _: RowDraws) -> Tensor:
    """Replace every pixel by the mean of a disk around it, whose edge is softened.

    On images as small as CIFAR's the disk is one pixel up to severity 3, so that these are blurs by the soft edge
    alone, much as :func:`gaussian_blur`; at severity 4 it is a cross of five pixels, at 5 a square of nine.
    """
    # Differs from the paper: its code mirrors at the middle of the outermost pixels, which changes an image's mean.
    places = torch.arange(-1, 2, dtype=torch.float64)
    disk = (places**2 + places[:, None] ** 2 <= strength**2).double()
    bell = (-(places**2) / (2 * _EDGE[strength] ** 2)).exp()
    return weighted_shifts(weighted_shifts(pixels, disk / disk.sum()), torch.outer(bell, bell) / bell.sum() ** 2)


# Differs from the paper: its code has 2, 2 and 2.5 at severities 3 to 5, with a wider cut-off at 4, which lies so
# far out on the bell that severities 3 and 4 are the same images.
@_corruption("Motion blur", "standard deviation along the line, in pixels", (1.0, 1.5, 2.0, 2.25, 2.5))
def motion_blur(pixels: Tensor, strength: float, draws: RowDraws) -> Tensor:
    """Smear every image to one side along a line, by half a bell.

    The line's slope is drawn for each image, up to 45 degrees from the horizontal, and is the same at every severity.
    """
    height, width = pixels.shape[2:]
    row, column = (torch.arange(size, device=pixels.device) for size in (height, width))
    angles = (2 * draws.uniform(pixels[:, :1, :1, 0]) - 1) * math.pi / 4  # (n, 1, 1)
    flat = pixels.flatten(2)
    total, weights = torch.zeros_like(flat), 0.0
    for step in range(math.floor(4 * strength) + 1):  # up to four standard deviations
        rows = mirrored(row + (step * angles.sin()).round().long(), height)
        columns = mirrored(column + (step * angles.cos()).round().long(), width)
        places = (rows.mT * width + columns).flatten(1)[:, None]
        weight = math.exp(-(step**2) / (2 * strength**2))
        total.add_(flat.gather(2, places.expand_as(flat)), alpha=weight)
        weights += weight
    return (total / weights).view_as(pixels)


@_corruption("Brightness", "what is added, in parts of the full range", (0.05, 0.1, 0.15, 0.2, 0.3))
def brightness(pixels: Tensor, strength: float, _: RowDraws) -> Tensor:
    """Raise the value in the HSV colour space, at most to full; hue and saturation stay, and black becomes grey."""
    value = pixels.amax(1, keepdim=True)
    raised = (value + strength).clamp(max=1)
    return torch.where(value > 0, pixels / value * raised, raised)


@_corruption("Contrast", "part of the contrast that is left", (0.75, 0.5, 0.4, 0.3, 0.15))
def contrast(pixels: Tensor, strength: float, _: RowDraws) -> Tensor:
    """Move every channel of an image towards its mean."""
    return pixels.mean((2, 3), keepdim=True).lerp(pixels, strength)


@_corruption("Pixelation", "part of the width and height that is left", (0.95, 0.9, 0.85, 0.75, 0.65))
def pixelate(pixels: Tensor, strength: float, _: RowDraws) -> Tensor:
    """Make every image smaller by a box filter, then as large as before by repeating pixels.

    A box takes the mean of the whole pixels whose middle it covers, as Pillow's does. Sizes are whole numbers, so that
    on very small images severities may be the same or even change places.
    """
    return _coarse(_coarse(pixels, 2, strength), 3, strength)


def _coarse(pixels: Tensor, axis: int, left: float) -> Tensor:
    size = pixels.shape[axis]
    small = max(1, int(size * left))
    middles = torch.arange(size, device=pixels.device) + 0.5
    boxes = (middles * small / size).long()  # the box that holds the middle of each pixel
    counts = boxes.bincount(minlength=small).reshape([-1 if other == axis else 1 for other in range(pixels.ndim)])
    shape = [small if other == axis else length for other, length in enumerate(pixels.shape)]
    means = pixels.new_zeros(shape).index_add_(axis, boxes, pixels) / counts
    return means.index_select(axis, boxes)


_PEAK = 255  # largest value of a pixel in eight bits, as JPEG stores it


@_corruption("JPEG compression", "quality", (80, 65, 58, 50, 40))
def jpeg_compression(pixels: Tensor, strength: float, _: RowDraws) -> Tensor:
    """Save every image as JPEG in memory and read it again; colour at half the resolution, as is usual."""
    from PIL import Image

    stored = (pixels * _PEAK).round().to(torch.uint8).movedim(1, -1).contiguous().cpu().numpy()
    corrupted = np.empty_like(stored)
    # One by one: at 32 x 32 most of the time is spent in Python, and threads made it slower.
    for image, result in zip(stored, corrupted, strict=True):
        file = BytesIO()
        plane = image[..., 0] if image.shape[-1] == 1 else image
        Image.fromarray(plane).save(file, "JPEG", quality=int(strength))
        with Image.open(file, formats=("JPEG",)) as read:
            result[:] = np.asarray(read).reshape(image.shape)
    return torch.from_numpy(corrupted).to(pixels.device).movedim(-1, 1) / _PEAK


CORRUPTIONS = {corruption.name: corruption for corruption in sorted(_declared, key=lambda declared: declared.name)}
MOST_SEVERE = 5
_BLOCK = 1 << 20  # numbers worked on at a time, about the size of a processor's cache
# A result half-way between two whole numbers must not depend on the last bit of a float, which differs with the batch
# and the device.
_HALF = 0.5 + 1e-4


def corrupt(images: Tensor, name: str, *, severity: int, seed: int = 0, first_row: int = 0, peak: int = 255) -> Tensor:
    """Corrupt images, to test a network under a synthetic shift.

    An image gives the same result in every batch: random numbers depend on the corruption, the seed and the image's
    number. Severities are ordered, but severity 3 of one corruption is not as bad as severity 3 of another, and their
    effect on a network depends on its training. They do not test a network that was trained on such images.

    Args:
        images: Images as stored, (n, c, h, w) uint8 with one or three channels.
        name: Name of a corruption, see ``calibrant list corruptions``.
        severity: 1 to 5; 0 returns a copy.
        seed: Random seed.
        first_row: Number of the first image, where a data set is given in parts.
        peak: Value of a white pixel: 255, or that of the data set's ``PixelScale``.

    Returns:
        New images, (n, c, h, w) uint8, on the device of those given.

    Example:
        >>> corrupt(torch.full((1, 1, 1, 4), 100, dtype=torch.uint8), "gaussian_noise", severity=2).tolist()
        [[[[75, 117, 85, 107]]]]
    """
    check_known(name, CORRUPTIONS, "a corruption")
    check_at_least(severity, 0, "severity", most=MOST_SEVERE)
    seed, first_row = check_seed(seed), check_at_least(first_row, 0, "first_row")
    images = _checked(images, check_at_least(peak, 1, "peak"))
    corrupted = images.clone()
    if severity == 0 or not images.numel():
        return corrupted
    corruption = CORRUPTIONS[name]
    strength = corruption.strengths[severity - 1]
    rows = max(1, _BLOCK // images[0].numel())
    for start in range(0, len(images), rows):
        block = slice(start, start + rows)
        draws = RowDraws(name, seed, first_row + start)
        pixels = corruption.apply(images[block].float() / peak, strength, draws)
        corrupted[block] = (pixels * peak + _HALF).floor_().clamp_(0, peak).to(torch.uint8)
    return corrupted


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
        raise InputError(f"images must be (n, c, h, w) with one or three channels; got {tuple(images.shape)}.{cure}")
    if images.numel() and (most := int(images.max())) > peak:
        raise InputError(f"images must lie in 0..{peak}; got {most}. Pass the peak of their scale, usually 255.")
    return images
