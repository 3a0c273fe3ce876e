"""CIFAR-10 and CIFAR-100, from the binary or the Python version, packed or unpacked."""

import io
import os
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from calibrant.checks import existing_file
from calibrant.datasets.dataset import PixelScale, RemoteFile
from calibrant.datasets.publisher_files import FileLayout, ImageArrays, Member, PublishedImages
from calibrant.errors import FileError, reading
from calibrant.npy import read_npy
from calibrant.paper import Paper

CIFAR10_CLASSES = tuple("airplane automobile bird cat deer dog frog horse ship truck".split())  # noqa: SIM905  # as below

CIFAR100_CLASSES = tuple(
    """
    apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can castle
    caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin elephant
    flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree
    motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate
    poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake spider
    squirrel streetcar sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle
    wardrobe whale willow_tree wolf woman worm
    """.split()  # noqa: SIM905  # a hundred lines otherwise
)


def read_pickled_batch(content: bytes, where: str) -> dict[str, Any]:
    """Read the dict of a CIFAR batch without running the pickle: arrays of bytes, and plain Python values.

    Names that Python 2 wrote as bytes become text. A pickle that names any other function or class is refused.
    """
    with reading(where, "pickle of a CIFAR batch"):
        held = _Restricted(content, where).load()
    if not isinstance(held, dict):
        raise FileError(f"{where} must hold a dict; it holds a {type(held).__name__}. Download it again.")
    named = {name.decode("latin-1") if isinstance(name, bytes) else str(name): value for name, value in held.items()}
    return {name: value.array(where) if isinstance(value, _Array) else value for name, value in named.items()}


@final
class _Restricted(pickle.Unpickler):
    """An unpickler that can only call the functions of this module."""

    def __init__(self, content: bytes, where: str) -> None:
        # Python 2 wrote pixels as a string; as bytes they need no decoding.
        super().__init__(io.BytesIO(content), encoding="bytes")
        self._where = where

    def find_class(self, module: str, name: str) -> object:
        known = _STAND_INS.get((module, name))
        if known is None:
            raise FileError(
                f"{self._where} must hold arrays of bytes, lists, numbers and text only; it names {module}.{name}, "
                "which could run code. It is not CIFAR's file: download it again."
            )
        return known


class _Array:
    """Stands for an array while the pickle is read; its content is checked when the array is taken out."""

    def __init__(self, content: object, kind: object, shape: object, order: object) -> None:
        self._set(content, kind, shape, order)

    def __setstate__(self, state: tuple[object, object, object, object, object]) -> None:
        _, shape, kind, by_column, content = state
        self._set(content, kind, shape, "F" if by_column else "C")

    def _set(self, content: object, kind: object, shape: object, order: object) -> None:
        if not isinstance(kind, _Byte):
            raise TypeError("arrays must be of bytes")
        self._content, self._shape, self._order = content, shape, order

    def array(self, where: str) -> np.ndarray:
        """Return the array, which shares the memory of the file's content and may not be writable."""
        content, shape, by_column = self._content, self._shape, self._order in {"F", b"F"}
        sizes = shape if isinstance(shape, tuple) and all(type(size) is int and size >= 0 for size in shape) else ()
        if not isinstance(content, bytes | bytearray) or not sizes or prod(sizes) != len(content):
            raise FileError(f"{where} must hold arrays whose shape fits their bytes; one does not. Download it again.")
        return np.frombuffer(content, dtype=np.uint8).reshape(sizes, order="F" if by_column else "C")


class _Byte:
    """Stands for the type of an array's entries, of which only one is allowed."""

    def __setstate__(self, state: object) -> None:
        """Ignore byte order and other options, which bytes do not have."""


def _reconstruct(_subtype: object, _shape: object, _kind: object) -> _Array:
    return _Array(b"", _Byte(), (0,), "C")  # everything comes again, with the content


def _dtype(name: object, *_options: object) -> _Byte:
    if name not in {"u1", b"u1", "|u1", b"|u1"}:
        raise TypeError(f"arrays must be of bytes (u1), not {name!r}")
    return _Byte()


def _encode(text: object, encoding: object) -> bytes:
    if not isinstance(text, str) or encoding not in {"latin1", b"latin1"}:
        raise TypeError("text must be encoded as latin1")
    return text.encode("latin-1")


# Python 3 writes bytes as encoded text in the older protocols; NumPy has moved its functions once.
_STAND_INS: Mapping[tuple[str, str], str | Callable[..., object]] = {
    ("_codecs", "encode"): _encode,
    ("numpy", "dtype"): _dtype,
    ("numpy", "ndarray"): "ndarray",  # only ever handed to the next one
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy.core.numeric", "_frombuffer"): _Array,
    ("numpy._core.numeric", "_frombuffer"): _Array,
}

_PIXELS = 3 * 32 * 32  # red, green, blue; each row by row
_BLOCK = 1000  # records read at a time


def _from_records(member: Member, *, coarse: int) -> ImageArrays:
    """Read the binary version: per image ``coarse`` bytes to skip, a byte for its label, then its pixels."""
    record = coarse + 1 + _PIXELS
    n, rest = divmod(member.size, record)
    if rest or not n:
        raise FileError(
            f"{member.where} must hold whole images of {record:,} bytes each; got {member.size:,} bytes, which is "
            f"{n:,} images and {rest:,} bytes. It was cut short, or is of another layout."
        )
    labels, pixels = np.empty(n, dtype=np.uint8), np.empty((n, _PIXELS), dtype=np.uint8)
    for start in range(0, n, _BLOCK):
        block = np.empty((min(_BLOCK, n - start), record), dtype=np.uint8)
        member.fill(block)
        labels[start : start + _BLOCK] = block[:, coarse]
        pixels[start : start + _BLOCK] = block[:, coarse + 1 :]
    return {"images": pixels.reshape(n, 3, 32, 32), "labels": labels}


def _from_pickle(member: Member, *, key: str) -> ImageArrays:
    """Read the Python version: a dict with the pixels as an array, and the labels as a list under ``key``."""
    held = read_pickled_batch(member.read(), member.where)
    pixels, listed = held.get("data"), held.get(key)
    if not isinstance(pixels, np.ndarray) or pixels.ndim != 2 or pixels.shape[1] != _PIXELS or not len(pixels):
        raise FileError(f"{member.where} must hold 'data', an array of n x {_PIXELS:,} bytes; it does not.")
    if not isinstance(listed, list) or len(listed) != len(pixels) or not all(type(label) is int for label in listed):
        raise FileError(
            f"{member.where} must hold {key!r}, a list of {len(pixels):,} whole numbers, one an image; it does not. "
            "CIFAR-10 says 'labels' and CIFAR-100 'fine_labels': it may be the other one."
        )
    # A copy: what was read belongs to the pickle and cannot be written.
    images = np.array(pixels, order="C").reshape(-1, 3, 32, 32)
    return {"images": images, "labels": np.array(listed)}


_ADDRESS = "https://www.cs.toronto.edu/~kriz/"
_PAPER = Paper("Krizhevsky", 2009, "Learning Multiple Layers of Features from Tiny Images",
               f"{_ADDRESS}learning-features-2009-TR.pdf", "Chapter 3")  # fmt: skip
_BATCHES = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")


@final
@dataclass(frozen=True)
class CIFAR10(PublishedImages):
    """60,000 colour photographs of 32 x 32 pixels in ten classes; 10,000 of them test.

    Reads ``cifar-10-binary.tar.gz`` or ``cifar-10-python.tar.gz`` (also as ``.tar.xz``), or what they unpack to, in the
    folder or in the archive's own sub-folder. The pickles of the Python version are read without running them. About
    3 % of the test images have a near twin in the training part.
    """

    name = "cifar10"
    title = "CIFAR-10"
    n_classes = len(CIFAR10_CLASSES)
    paper = _PAPER
    homepage = f"{_ADDRESS}cifar.html"
    remote = (
        RemoteFile(
            f"{_ADDRESS}cifar-10-binary.tar.gz",
            "sha256:c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
            170_052_171,
        ),
    )
    class_names = CIFAR10_CLASSES
    layouts = (
        FileLayout(
            tuple(f"{name}.bin" for name in _BATCHES),
            ("cifar-10-batches-bin",),
            "cifar-10-binary",
            partial(_from_records, coarse=0),
            sizes=(10_000 * 3073,) * 6,
        ),
        FileLayout(_BATCHES, ("cifar-10-batches-py",), "cifar-10-python", partial(_from_pickle, key="labels")),
    )
    digests = (
        "sha256:72271e0eaae021dd9568260927404c4fff87e7e0bfa04c843b94150b01b9bc26",
        "sha256:ecc0a6ddb5cb58330ce4f06c1825ec8c68baeade5baaacbb3cbdf8f385599213",
    )
    pixel_scale = PixelScale((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))
    augmentation = "crop-flip"


@final
@dataclass(frozen=True)
class CIFAR100(PublishedImages):
    """60,000 colour photographs of 32 x 32 pixels in a hundred classes; 10,000 of them test, 100 a class.

    Reads ``cifar-100-binary.tar.gz`` or ``cifar-100-python.tar.gz`` (also as ``.tar.xz``), or what they unpack to, in
    the folder or in the archive's own sub-folder. The labels are the fine ones; the twenty coarse ones are skipped.
    About 10 % of the test images have a near twin in the training part.
    """

    name = "cifar100"
    title = "CIFAR-100"
    n_classes = len(CIFAR100_CLASSES)
    paper = _PAPER
    homepage = f"{_ADDRESS}cifar.html"
    remote = (
        RemoteFile(
            f"{_ADDRESS}cifar-100-binary.tar.gz",
            "sha256:58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
            168_513_733,
        ),
    )
    class_names = CIFAR100_CLASSES
    layouts = (
        FileLayout(
            ("train.bin", "test.bin"),
            ("cifar-100-binary",),
            "cifar-100-binary",
            partial(_from_records, coarse=1),
            sizes=(50_000 * 3074, 10_000 * 3074),
        ),
        FileLayout(
            ("train", "test"), ("cifar-100-python",), "cifar-100-python", partial(_from_pickle, key="fine_labels")
        ),
    )
    digests = (
        "sha256:298473eb8d70f2276412eef44efdfe11402f20f208c13ac37998e70377537205",
        "sha256:27d6227ddcb0f8c25f95e33561b0c0de971cd9443f001c3e0077b94ac57d9aa1",
    )
    pixel_scale = PixelScale((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762))
    augmentation = "crop-flip"


def read_human_labels(path: str | os.PathLike[str]) -> Tensor:
    """Read CIFAR-10H: how the answers of some fifty people to each test image of CIFAR-10 are spread over its classes.

    Soft labels for a loss that takes them (``calibrant list losses``), in the order of the test images. Peterson et al.
    (2019, arXiv:1908.07086), https://github.com/jcpeterson/cifar-10h.

    Args:
        path: ``cifar10h-counts.npy`` or ``cifar10h-probs.npy``; or an array of this kind of your own, (n, k).

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     np.save(f"{folder}/counts.npy", [[45, 5, 0], [0, 25, 25]])
        ...     read_human_labels(f"{folder}/counts.npy")
        tensor([[0.9000, 0.1000, 0.0000],
                [0.0000, 0.5000, 0.5000]], dtype=torch.float64)
    """
    file = existing_file(Path(path), holding="answers of people")
    answers = read_npy(file)
    is_table = answers.ndim == 2 and answers.shape[1] > 1 and answers.size and answers.dtype.kind in "iuf"
    if not is_table or not np.isfinite(answers).all() or (answers < 0).any() or not answers.any(1).all():
        raise FileError(
            f"{file} must hold numbers of answers or their shares, a row for each image and a column for each class, "
            f"none negative and no row empty; got {answers.dtype} of shape {answers.shape}. Take cifar10h-counts.npy."
        )
    counts = torch.from_numpy(answers.astype(np.float64))
    return counts / counts.sum(1, keepdim=True)
