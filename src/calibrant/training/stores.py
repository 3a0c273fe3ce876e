"""Inputs of a network, taken by the numbers of the samples: in memory on the device, or pictures in files."""

import hashlib
import math
import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, final

import torch
from torch import Tensor, nn

from calibrant.datasets.dataset import Augmentation, PixelScale
from calibrant.datasets.pictures import Pictures, Shape, unreadable
from calibrant.errors import FileError

if TYPE_CHECKING:
    from PIL.Image import Image

PADDING = 4  # largest shift of a crop, in pixels to each side
_TRIES = 10
_LEAST_AREA, _WIDEST = 0.08, 4 / 3  # of a random part: share of the picture's area, ratio of its sides
_AT_ONCE = 128  # pictures in a batch of an evaluation, a few hundred MB in a ResNet-50
_AHEAD = 3  # batches in memory: one that is copied to the device, and two that are read
_BEGUN = "Get them again: the same command then resumes after the last epoch. Without them it is another run."


@final
class Standardise(nn.Module):
    """Stored pixels as network inputs: ``(pixel / peak - mean) / std`` for each channel, in float32."""

    factor: Tensor
    offset: Tensor

    def __init__(self, scale: PixelScale) -> None:
        super().__init__()
        std = torch.tensor(scale.std, dtype=torch.float64)
        self.register_buffer("factor", (1 / (scale.peak * std)).float()[:, None, None])
        self.register_buffer("offset", (-torch.tensor(scale.mean, dtype=torch.float64) / std).float()[:, None, None])

    def forward(self, pixels: Tensor) -> Tensor:
        return torch.addcmul(self.offset, pixels.float(), self.factor)


@final
class PlainStore:
    """Inputs without augmentation: texts, or numbers that are scaled already."""

    def __init__(self, inputs: Tensor) -> None:
        self._inputs = inputs

    def augmented(self, samples: Tensor, shifts: Tensor, mirrored: Tensor) -> Tensor:  # noqa: ARG002  # nothing moves
        return self._inputs.index_select(0, samples)

    def plain(self, samples: Tensor) -> Tensor:
        return self._inputs.index_select(0, samples)


@final
class ImageStore:
    """Images with a black border, as in the papers' code, one pixel after the other with the channels last.

    A crop is one gather of whole pixels, and its result has the memory layout of fast convolutions.
    """

    def __init__(self, images: Tensor, standardise: Standardise, augmentation: Augmentation) -> None:
        self._standardise = standardise
        self._moves, self._mirrors = augmentation != "none", augmentation == "crop-flip"
        self._border = border = PADDING if self._moves else 0
        n, channels, self._height, self._width = images.shape
        self._wide = self._width + 2 * border
        self._area = (self._height + 2 * border) * self._wide
        pixels = images.new_zeros(n, self._height + 2 * border, self._wide, channels)
        pixels[:, border : border + self._height, border : border + self._width] = images.permute(0, 2, 3, 1)
        self._pixels = pixels.view(-1, channels)
        self._down = torch.arange(self._height, device=images.device)
        self._right = torch.arange(self._width, device=images.device)

    def augmented(self, samples: Tensor, shifts: Tensor, mirrored: Tensor) -> Tensor:
        if not self._moves:
            return self.plain(samples)
        right = self._right
        if self._mirrors:
            right = torch.where(mirrored[:, None], self._width - 1 - right, right)
        return self._gather(samples, self._down + shifts[:, :1], right + shifts[:, 1:])

    def plain(self, samples: Tensor) -> Tensor:
        return self._gather(samples, (self._down + self._border)[None], (self._right + self._border)[None])

    def _gather(self, samples: Tensor, down: Tensor, right: Tensor) -> Tensor:
        """Return the pixels at these positions of these images, standardised, (n, c, h, w)."""
        positions = (samples * self._area)[:, None, None] + (down * self._wide)[:, :, None] + right[:, None, :]
        shape = (len(samples), self._height, self._width, -1)
        pixels = self._pixels.index_select(0, positions.view(-1)).view(shape).permute(0, 3, 1, 2)
        return self._standardise(pixels)


StepPictures: TypeAlias = tuple[list[int], Sequence[Shape] | None]  # samples and their shapes; None for the squares


class _Reading(NamedTuple):
    """Pictures that threads are reading into memory."""

    samples: list[int]
    pixels: Tensor  # (m, size, size, 3) uint8
    parts: list[Future[None]]

    def wait(self) -> list[str]:
        """Wait for all of them, and return the files that cannot be read, with the reasons."""
        errors = [error for part in self.parts if (error := part.exception()) is not None]
        for error in errors:
            if not isinstance(error, FileError):
                raise error
        return [str(error) for error in errors]


@final
class PictureStore:
    """Pictures in files, read by threads when they are needed; what is read does not depend on their number."""

    def __init__(
        self, pictures: Pictures, standardise: Standardise, augmentation: Augmentation, device: torch.device,
        threads: ThreadPoolExecutor,
    ) -> None:  # fmt: skip
        self.standardise, self.device, self.size = standardise, device, pictures.size
        self._pictures, self._threads, self._is_augmented = pictures, threads, augmentation != "none"

    def plain(self, samples: Tensor) -> Tensor:
        return self._given(self.read(samples.tolist()))

    def batches(self) -> Iterator[Tensor]:
        for reading in self._all():
            yield self._given(reading)

    def check(self) -> None:
        """Read every picture once; a FileError names those that cannot be read."""
        if failed := [problem for reading in self._all() for problem in reading.wait()]:
            raise unreadable(failed)

    def read(self, samples: list[int], shapes: Sequence[Shape] | None = None, into: Tensor | None = None) -> _Reading:
        """Begin to read pictures into memory, each of a shape of its own where the store augments them."""
        shape = (len(samples), self.size, self.size, 3)
        pixels = torch.empty(shape, dtype=torch.uint8) if into is None else into[: len(samples)]
        rows, read, submit = pixels.numpy(), self._pictures.read, self._threads.submit

        def read_one(row: int, sample: int, shape: Shape | None) -> None:
            rows[row] = read(sample, shape).transpose(1, 2, 0)  # decoded outside Python's lock

        given = zip(samples, shapes if shapes and self._is_augmented else repeat(None), strict=False)
        return _Reading(samples, pixels, [submit(read_one, row, *one) for row, one in enumerate(given)])

    def _all(self) -> Iterator[_Reading]:
        """Read all pictures, a batch ahead of the one that is given."""
        ahead = deque[_Reading]()
        for samples in torch.arange(len(self._pictures)).split(_AT_ONCE):
            ahead.append(self.read(samples.tolist()))
            if len(ahead) > 1:
                yield ahead.popleft()
        yield from ahead

    def _given(self, reading: _Reading) -> Tensor:
        if failed := reading.wait():
            raise unreadable(failed, _BEGUN)
        return self.standardise(reading.pixels.to(self.device).permute(0, 3, 1, 2))


@final
class LoadedPictures:
    """The pictures of one step on the device, where each step, which may be captured, finds its own.

    Those of the next steps are read meanwhile. Every network that is trained has this memory for itself, for as many
    pictures as a step has at most.
    """

    def __init__(self, store: PictureStore, capacity: int) -> None:
        self._store, device = store, store.device
        shape = (capacity, store.size, store.size, 3)
        self._samples = torch.full((capacity,), -1, device=device)
        self._pixels = torch.zeros(shape, dtype=torch.uint8, device=device)
        self._is_cuda = device.type == "cuda"
        slots = [torch.zeros(shape, dtype=torch.uint8, pin_memory=self._is_cuda) for _ in range(_AHEAD)]
        self._free: deque[tuple[Tensor, torch.cuda.Event | None]] = deque((slot, None) for slot in slots)
        self._ahead = deque[tuple[Tensor, _Reading]]()
        self._steps: Iterator[StepPictures] = iter(())

    def begin(self, steps: Iterator[StepPictures]) -> None:
        """Begin to read the pictures of an epoch's steps."""
        while self._ahead:  # of an epoch that was stopped
            slot, reading = self._ahead.popleft()
            reading.wait()
            self._free.append((slot, None))
        self._steps = steps
        self._read_ahead()

    def load(self) -> None:
        """Copy the pictures of the next step to the device, and read ahead; a FileError names unreadable ones."""
        self._read_ahead()
        slot, reading = self._ahead.popleft()
        failed, n = reading.wait(), len(reading.samples)
        copied = None
        if not failed:
            # Not blocking: the step, and this copy, begin when the device has taken the steps before.
            self._pixels[:n].copy_(reading.pixels, non_blocking=self._is_cuda)
            self._samples.fill_(-1)
            numbers = torch.tensor(reading.samples, pin_memory=self._is_cuda)
            self._samples[:n].copy_(numbers, non_blocking=self._is_cuda)
            if self._is_cuda:
                copied = torch.cuda.Event()
                copied.record()
        self._free.append((slot, copied))
        if failed:
            raise unreadable(failed, _BEGUN)

    def augmented(self, samples: Tensor, shifts: Tensor, mirrored: Tensor) -> Tensor:  # noqa: ARG002  # moved when read
        return self.plain(samples)

    def plain(self, samples: Tensor) -> Tensor:
        """Return these pictures of the step, as they were read."""
        rows = (samples[:, None] == self._samples).to(torch.uint8).argmax(dim=1)
        return self._store.standardise(self._pixels.index_select(0, rows).permute(0, 3, 1, 2))

    def _read_ahead(self) -> None:
        while self._free and (step := next(self._steps, None)) is not None:
            slot, copied = self._free.popleft()
            if copied is not None:
                copied.synchronize()
            self._ahead.append((slot, self._store.read(*step, into=slot)))


def training_pictures(
    samples: Tensor, mirrored: Tensor, partners: Tensor, part: slice, *, seed: int, epoch: int, mixes: bool
) -> Iterator[StepPictures]:
    """Yield the pictures that a process needs in each step: those of its part, and those that they are mixed with.

    Samples and the others are those of an epoch's plan, (steps, b). What is random in a step is drawn from the seed,
    the epoch and its number, for the whole batch.
    """
    for step in range(len(samples)):
        places = torch.arange(samples.shape[1])[part]
        if mixes:
            places = torch.cat((places, partners[step, part])).unique()
        generator = seeded_generator(f"calibrant parts of pictures {seed}/{epoch}/{step}")
        draws = torch.rand(samples.shape[1], _TRIES, 4, dtype=torch.float64, generator=generator)[places].tolist()
        shapes = zip(draws, mirrored[step, places].tolist(), strict=True)
        yield samples[step, places].tolist(), [partial(random_part, draws=own, mirrored=flag) for own, flag in shapes]


def seeded_generator(text: str) -> torch.Generator:
    """Return a generator whose numbers are unrelated to those of other texts."""
    digest = hashlib.sha256(text.encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "little", signed=True))


def random_part(picture: "Image", size: int, *, draws: Sequence[Sequence[float]], mirrored: bool) -> "Image":
    """Return a random part of a picture, resized, and mirrored or not: the usual augmentation of ImageNet.

    The part has 8 to 100 % of the picture's area, and sides of 3:4 to 4:3. The first of the draws, four numbers in
    0..1 each, whose part lies in the picture is taken; if none does, the largest part of such sides in the middle.

    Reference:
        Szegedy et al. (2015), Going Deeper with Convolutions, section 6.
    """
    from PIL import Image

    width, height = picture.size
    sides = min(width, round(height * _WIDEST)), min(height, round(width * _WIDEST))
    corner = (width - sides[0]) // 2, (height - sides[1]) // 2
    for of_area, of_ratio, right, down in draws:
        area = (_LEAST_AREA + (1 - _LEAST_AREA) * of_area) * width * height
        ratio = _WIDEST ** (2 * of_ratio - 1)
        wide, high = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < wide <= width and 0 < high <= height:
            sides = wide, high
            corner = int(right * (width - wide + 1)), int(down * (height - high + 1))
            break
    box = (*corner, corner[0] + sides[0], corner[1] + sides[1])
    part = picture.crop(box).resize((size, size), Image.Resampling.BICUBIC)
    return part.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if mirrored else part


StepInputs: TypeAlias = PlainStore | ImageStore | LoadedPictures  # a step takes its batch from them
InputStore: TypeAlias = PlainStore | ImageStore | PictureStore


def for_steps(store: InputStore, capacity: int) -> StepInputs:
    """Return where the steps of one network take their batches from; ``capacity`` is the largest number of samples."""
    return LoadedPictures(store, capacity) if isinstance(store, PictureStore) else store


def store_of(
    inputs: Tensor | Pictures, scale: PixelScale | None, augmentation: Augmentation, device: torch.device,
    threads: ThreadPoolExecutor | None = None,
) -> InputStore:  # fmt: skip
    """Store inputs on a device, or in their files; those with a pixel scale are images."""
    standardise = None if scale is None else Standardise(scale).to(device)
    if isinstance(inputs, Pictures):
        assert standardise is not None, "pictures have a scale"
        return PictureStore(inputs, standardise, augmentation, device, threads or reading_threads(None))
    inputs = inputs.to(device)
    return PlainStore(inputs) if standardise is None else ImageStore(inputs, standardise, augmentation)


def reading_threads(n: int | None) -> ThreadPoolExecutor:
    """Return the threads that read pictures; None takes one for each processor."""
    return ThreadPoolExecutor(n or os.cpu_count(), "pictures")
