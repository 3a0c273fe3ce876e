"""CIFAR-10 and CIFAR-100, from the binary or the Python version, unpacked or not.

Both versions hold the same images in the same order, so the digests are of the labels and pixels, not of the files.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple, final

import numpy as np
import torch

from calibrant.datasets.canonical import Layout, Member, find_files
from calibrant.datasets.cifar_classes import CIFAR10_CLASSES, CIFAR100_CLASSES
from calibrant.datasets.dataset import Dataset, Examples, PixelScale
from calibrant.datasets.integrity import check_digest, check_size, content_digest
from calibrant.datasets.pickled import read_pickled_batch
from calibrant.datasets.reader import DatasetReader, RemoteFile
from calibrant.errors import FileError
from calibrant.paper import Paper

__all__ = ["CIFAR10", "CIFAR100"]

_PIXELS = 3 * 32 * 32  # red, green, blue; each row by row
_BLOCK = 1000  # records read at a time
_PAPER = Paper(
    "Krizhevsky",
    2009,
    "Learning Multiple Layers of Features from Tiny Images",
    "https://www.cs.toronto.edu/~kriz/learning-features-2009-TR.pdf",
    "Chapter 3",
)
_HOMEPAGE = "https://www.cs.toronto.edu/~kriz/cifar.html"


@final
@dataclass(frozen=True)
class CIFAR10(DatasetReader):
    """60,000 colour photographs of 32 x 32 pixels in ten classes; 10,000 of them test.

    Reads ``cifar-10-binary.tar.gz`` or ``cifar-10-python.tar.gz`` (also as ``.tar.xz``), or what they unpack to, in the
    folder or in the archive's own sub-folder. The pickles of the Python version are read without running them. About
    3 % of the test images have a near twin in the training part.
    """

    name: ClassVar[str] = "cifar10"
    title: ClassVar[str] = "CIFAR-10"
    n_classes: ClassVar[int] = len(CIFAR10_CLASSES)
    paper: ClassVar[Paper] = _PAPER
    homepage: ClassVar[str] = _HOMEPAGE
    remote: ClassVar[tuple[RemoteFile, ...]] = (
        RemoteFile(
            "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
            "sha256:c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
            170_052_171,
        ),
    )

    def read(self, folder: Path, *, checked: bool = True) -> Dataset:
        return _read(self, _CIFAR10, folder, checked=checked)


@final
@dataclass(frozen=True)
class CIFAR100(DatasetReader):
    """60,000 colour photographs of 32 x 32 pixels in a hundred classes; 10,000 of them test, 100 a class.

    Reads ``cifar-100-binary.tar.gz`` or ``cifar-100-python.tar.gz`` (also as ``.tar.xz``), or what they unpack to, in
    the folder or in the archive's own sub-folder. The labels are the fine ones; the twenty coarse ones are passed over.
    About 10 % of the test images have a near twin in the training part.
    """

    name: ClassVar[str] = "cifar100"
    title: ClassVar[str] = "CIFAR-100"
    n_classes: ClassVar[int] = len(CIFAR100_CLASSES)
    paper: ClassVar[Paper] = _PAPER
    homepage: ClassVar[str] = _HOMEPAGE
    remote: ClassVar[tuple[RemoteFile, ...]] = (
        RemoteFile(
            "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
            "sha256:58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
            168_513_733,
        ),
    )

    def read(self, folder: Path, *, checked: bool = True) -> Dataset:
        return _read(self, _CIFAR100, folder, checked=checked)


@dataclass(frozen=True)
class _Edition:
    """What tells the two data sets apart."""

    class_names: tuple[str, ...]
    binary: Layout  # the last file is the test part, those before it the training part, in order
    python: Layout
    rows: tuple[int, ...]  # images in each file
    coarse: int  # label bytes that stand before the one that is wanted
    key: str  # of the labels, in the Python version
    scale: PixelScale
    digests: tuple[str, str]  # of labels, then pixels, of the training and of the test part


_BATCHES = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")
_CIFAR10 = _Edition(
    CIFAR10_CLASSES,
    Layout(tuple(f"{name}.bin" for name in _BATCHES), ("cifar-10-batches-bin",), "cifar-10-binary"),
    Layout(_BATCHES, ("cifar-10-batches-py",), "cifar-10-python"),
    (10_000,) * 6,
    0,
    "labels",
    PixelScale((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    (
        "sha256:72271e0eaae021dd9568260927404c4fff87e7e0bfa04c843b94150b01b9bc26",
        "sha256:ecc0a6ddb5cb58330ce4f06c1825ec8c68baeade5baaacbb3cbdf8f385599213",
    ),
)
_CIFAR100 = _Edition(
    CIFAR100_CLASSES,
    Layout(("train.bin", "test.bin"), ("cifar-100-binary",), "cifar-100-binary"),
    Layout(("train", "test"), ("cifar-100-python",), "cifar-100-python"),
    (50_000, 10_000),
    1,
    "fine_labels",
    PixelScale((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
    (
        "sha256:298473eb8d70f2276412eef44efdfe11402f20f208c13ac37998e70377537205",
        "sha256:27d6227ddcb0f8c25f95e33561b0c0de971cd9443f001c3e0077b94ac57d9aa1",
    ),
)


class _Batch(NamedTuple):
    """The content of one file."""

    labels: np.ndarray  # (n,) uint8
    pixels: np.ndarray  # (n, 3072) uint8


def _read(reader: DatasetReader, edition: _Edition, folder: Path, *, checked: bool) -> Dataset:
    place = find_files(reader, folder, (edition.binary, edition.python))
    load = _from_records if place.layout == edition.binary else _from_pickle
    rows = dict(zip(place.layout.files, edition.rows, strict=True))
    batches = {member.name: load(member, edition, rows[member.name] if checked else None) for member in place.members()}
    in_order = [batches.pop(name) for name in place.layout.files]
    parts = []
    for title, files, digest in zip(("training", "test"), (in_order[:-1], in_order[-1:]), edition.digests, strict=True):
        part = _together(files)
        if checked:
            check_digest(f"the {title} part of {reader.name} in {folder}", digest, content_digest(*part))
        images = torch.from_numpy(part.pixels).view(-1, 3, 32, 32)
        parts.append(Examples(images, torch.from_numpy(part.labels).long()))
    training, test = parts
    return Dataset(
        reader.name, edition.class_names, training, test, pixel_scale=edition.scale, augmentation="crop-flip"
    )


def _together(files: Sequence[_Batch]) -> _Batch:
    if len(files) == 1:
        return files[0]
    return _Batch(np.concatenate([file.labels for file in files]), np.concatenate([file.pixels for file in files]))


def _from_records(member: Member, edition: _Edition, rows: int | None) -> _Batch:
    """The binary version: for every image its labels, a byte each, then its pixels."""
    record = edition.coarse + 1 + _PIXELS
    if rows is not None:
        check_size(member.where, rows * record, member.size, holds=f"{rows:,} images of {record:,}")
    n, rest = divmod(member.size, record)
    if rest or not n:
        raise FileError(
            f"{member.where} must hold whole images of {record:,} bytes each; got {member.size:,} bytes, which is "
            f"{n:,} images and {rest:,} bytes. It was cut short, or is of another layout."
        )
    batch = _Batch(np.empty(n, dtype=np.uint8), np.empty((n, _PIXELS), dtype=np.uint8))
    for start in range(0, n, _BLOCK):
        block = np.empty((min(_BLOCK, n - start), record), dtype=np.uint8)
        member.fill(block)
        batch.labels[start : start + _BLOCK] = block[:, edition.coarse]
        batch.pixels[start : start + _BLOCK] = block[:, edition.coarse + 1 :]
    k = len(edition.class_names)
    _check_labels(batch.labels < k, batch.labels, member, k)
    return batch


def _from_pickle(member: Member, edition: _Edition, rows: int | None) -> _Batch:
    """The Python version: a dict with the pixels as an array, and the labels as a list."""
    held = read_pickled_batch(member.read(), member.where)
    pixels, listed = held.get("data"), held.get(edition.key)
    if not isinstance(pixels, np.ndarray) or pixels.ndim != 2 or pixels.shape[1] != _PIXELS or not len(pixels):
        raise FileError(f"{member.where} must hold 'data', an array of n x {_PIXELS:,} bytes; it does not.")
    if not isinstance(listed, list) or len(listed) != len(pixels) or not all(type(label) is int for label in listed):
        raise FileError(
            f"{member.where} must hold {edition.key!r}, a list of {len(pixels):,} whole numbers, one an image; it does "
            "not. CIFAR-10 says 'labels' and CIFAR-100 'fine_labels': it may be the other one."
        )
    if rows is not None and len(pixels) != rows:
        raise FileError(
            f"{member.where} must hold {rows:,} images; got {len(pixels):,}. Download it again, or, if it is your own "
            "file in the same layout, pass checked=False (--unchecked)."
        )
    k = len(edition.class_names)
    _check_labels(np.array([0 <= label < k for label in listed]), listed, member, k)
    # A copy: what was read belongs to the pickle and cannot be written.
    return _Batch(np.array(listed, dtype=np.uint8), np.array(pixels, order="C"))


def _check_labels(fits: np.ndarray, labels: Sequence[int] | np.ndarray, member: Member, n_classes: int) -> None:
    if not fits.all():
        row = int(fits.argmin())
        raise FileError(
            f"{member.where} must have labels in 0..{n_classes - 1}; got {labels[row]} at image {row}. It is another "
            "data set, or damaged."
        )
