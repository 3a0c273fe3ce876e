"""Pictures in files: all read into one tensor, or each read when it is needed."""

import hashlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, final

import numpy as np
import torch
from torch import Tensor

from calibrant.errors import FileError

if TYPE_CHECKING:
    from PIL.Image import Image

_ENDINGS = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
_SHOWN = 3
_AGAIN = "Remove them, or get them again."

Shape: TypeAlias = Callable[["Image", int], "Image"]  # makes a picture (size, size), or raises ValueError


@final
class Pictures:
    """Pictures in files, each read when it is needed: data that do not fit into memory.

    They have the shape and the rows of a tensor of images, (n, 3, size, size) uint8. A picture is read as its largest
    square in the middle, or a share of it, resized.

    Args:
        folder: Folder that holds the files.
        names: Path of every file inside ``folder``.
        size: Side of the images, in pixels.
        crop: Share that is kept of the side of the square.
        rows: The files to take, (n,) int64; None for all.
    """

    dtype = torch.uint8

    def __init__(
        self, folder: Path, names: Sequence[str], *, size: int, crop: float, rows: Tensor | None = None
    ) -> None:
        self.folder, self.size, self.crop, self._names = folder, size, crop, names
        self._rows = torch.arange(len(names)) if rows is None else rows
        self.shape = torch.Size((len(self._rows), 3, size, size))
        self._square = partial(fit_square, crop=crop)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, rows: Tensor | slice) -> "Pictures":
        return Pictures(self.folder, self._names, size=self.size, crop=self.crop, rows=self._rows[rows])

    def path(self, row: int) -> Path:
        """Return the file of a picture."""
        return self.folder / self._names[int(self._rows[row])]

    def read(self, row: int, shape: Shape | None = None) -> np.ndarray:
        """Return one picture, (3, size, size) uint8; ``shape`` makes it of the whole, in place of the square.

        If it cannot be read, the message of the FileError is the file and the reason, for :func:`unreadable`.
        """
        return _read_picture(self.path(row), self.size, shape or self._square)

    def read_all(self) -> Tensor:
        """Return all of them in memory, (n, 3, size, size) uint8."""
        return read_pictures([self.path(row) for row in range(len(self))], size=self.size, shape=self._square)

    def digest(self) -> bytes:
        """Return a digest of the files' names and of how they are read: the pixels would take as long as an epoch."""
        digest = hashlib.sha256(str((tuple(self.shape), self.crop)).encode())
        for row in self._rows.tolist():
            digest.update(f"\n{self._names[row]}".encode("utf-8", "surrogateescape"))
        return digest.digest()


def picture_names(folder: Path) -> list[str]:
    """Return the names of the pictures in a folder, of which there must be some, sorted."""
    held = folder.iterdir() if folder.is_dir() else ()
    names = sorted(path.name for path in held if path.suffix.lower() in _ENDINGS and path.name[0] != ".")
    if not names:
        raise FileError(
            f"{folder} must hold pictures ({', '.join(_ENDINGS)}); there are none. Add some, or remove the "
            "class from every part; unpack an archive again."
        )
    return names


def read_pictures(paths: Sequence[Path], *, size: int, shape: Shape) -> Tensor:
    """Read colour pictures into one tensor, (n, 3, size, size) uint8; grey ones get three equal channels.

    ``shape`` makes a picture that size, or raises ValueError: :func:`same_size` or :func:`fit_square`.
    """
    images = np.empty((len(paths), 3, size, size), dtype=np.uint8)

    def read(row: int) -> str:
        try:
            images[row] = _read_picture(paths[row], size, shape)
        except FileError as error:
            return str(error)
        return ""

    # Decoding happens outside Python's lock.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        failed = list(filter(None, pool.map(read, range(len(paths)))))
    if failed:
        raise unreadable(failed)
    return torch.from_numpy(images)


def unreadable(failed: Sequence[str], advice: str = _AGAIN) -> FileError:
    """Return the error about pictures that cannot be read, from the file of each with the reason."""
    shown = "; ".join(failed[:_SHOWN]) + (f" and {len(failed) - _SHOWN:,} more" if len(failed) > _SHOWN else "")
    return FileError(f"every picture must be readable; these are not: {shown}. {advice}")


def _read_picture(path: Path, size: int, shape: Shape) -> np.ndarray:
    """Return one colour picture, (3, size, size) uint8; a FileError says which cannot be read, and why."""
    from PIL import Image

    try:
        with Image.open(path) as stored:
            return np.asarray(shape(_in_colour(stored), size)).transpose(2, 0, 1)
    except Exception as error:  # Pillow raises almost anything on a damaged file
        raise FileError(f"{path} ({(str(error).splitlines() or [type(error).__name__])[0]})") from error


def _in_colour(picture: "Image") -> "Image":
    from PIL import ImageOps

    if picture.mode[0] in "IF":  # Pillow would cut everything above 255, and leave a white picture
        raise ValueError(f"it must have 8 bits a channel; got {picture.mode}, which has more: save it in 8")
    return ImageOps.exif_transpose(picture).convert("RGB")  # cameras store their orientation


def same_size(picture: "Image", size: int) -> "Image":
    """Return the picture, which must have the size already."""
    if picture.size != (size, size):
        raise ValueError(f"it must have {size} x {size} pixels; got {picture.width} x {picture.height}")
    return picture


def fit_square(picture: "Image", size: int, crop: float = 1.0) -> "Image":
    """Return the largest square in the middle of the picture, or a share ``crop`` of its side, resized."""
    from PIL import Image, ImageOps

    return ImageOps.fit(picture, (size, size), Image.Resampling.BICUBIC, bleed=(1 - crop) / 2)
