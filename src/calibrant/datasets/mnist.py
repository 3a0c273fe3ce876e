"""MNIST, Fashion-MNIST (IDX files) and SVHN (MATLAB files)."""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import ClassVar, final

import numpy as np
import torch

from calibrant.datasets.dataset import Augmentation, Dataset, DatasetReader, Examples, PixelScale, RemoteFile
from calibrant.datasets.publisher_files import Layout, Member, check_digest, check_file, content_digest, find_files
from calibrant.errors import FileError, reading
from calibrant.paper import Paper

__all__ = ["MNIST", "SVHN", "FashionMNIST"]

_IMAGES, _LABELS = 0x803, 0x801  # bytes in three dimensions, bytes in one


@final
@dataclass(frozen=True)
class MNIST(DatasetReader):
    """70,000 hand-written digits of 28 x 28 pixels; 10,000 of them test.

    Reads the four ``...-ubyte`` files, with or without ``.gz``, in the folder or in ``MNIST/raw``. Too easy to tell
    methods apart: networks are right on more than 99 % of it.
    """

    name: ClassVar[str] = "mnist"
    title: ClassVar[str] = "MNIST"
    n_classes: ClassVar[int] = 10
    paper: ClassVar[Paper] = Paper(
        "LeCun, Bottou, Bengio & Haffner",
        1998,
        "Gradient-Based Learning Applied to Document Recognition",
        "doi:10.1109/5.726791",
    )
    homepage: ClassVar[str] = "https://ossci-datasets.s3.amazonaws.com/mnist/"
    remote: ClassVar[tuple[RemoteFile, ...]] = (
        RemoteFile(f"{homepage}train-images-idx3-ubyte.gz", "md5:f68b3c2dcbeaaa9fbdd348bbdeb94873"),
        RemoteFile(f"{homepage}train-labels-idx1-ubyte.gz", "md5:d53e105ee54ea40749a09fcbcd1e9432"),
        RemoteFile(f"{homepage}t10k-images-idx3-ubyte.gz", "md5:9fb629c4189551a2d022fa330f9573f3"),
        RemoteFile(f"{homepage}t10k-labels-idx1-ubyte.gz", "md5:ec29112dd5afa0611ce80d1b7f02629c"),
    )

    def read(self, folder: Path, *, checked: bool = True) -> Dataset:
        return _read(self, _MNIST, folder, checked=checked)


@final
@dataclass(frozen=True)
class FashionMNIST(DatasetReader):
    """70,000 pictures of clothes of 28 x 28 pixels in ten classes; 10,000 of them test.

    Reads the four ``...-ubyte`` files, with or without ``.gz``, in the folder or in ``FashionMNIST/raw``.
    """

    name: ClassVar[str] = "fashion_mnist"
    title: ClassVar[str] = "Fashion-MNIST"
    n_classes: ClassVar[int] = 10
    paper: ClassVar[Paper] = Paper(
        "Xiao, Rasul & Vollgraf",
        2017,
        "Fashion-MNIST: a Novel Image Dataset for Benchmarking Machine Learning Algorithms",
        "arXiv:1708.07747",
    )
    homepage: ClassVar[str] = "https://github.com/zalandoresearch/fashion-mnist"
    # The publisher's bucket does not speak https; the digests tell whether what came is what was sent.
    remote: ClassVar[tuple[RemoteFile, ...]] = tuple(
        RemoteFile(f"http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/{name}.gz", f"md5:{digest}")
        for name, digest in (
            ("train-images-idx3-ubyte", "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
            ("train-labels-idx1-ubyte", "25c81989df183df01b3e8a0aad5dffbe"),
            ("t10k-images-idx3-ubyte", "bef4ecab320f06d8554ea6380940ec79"),
            ("t10k-labels-idx1-ubyte", "bb300cfdad3c16e7a12a480ee83cd310"),
        )
    )

    def read(self, folder: Path, *, checked: bool = True) -> Dataset:
        return _read(self, _FASHION, folder, checked=checked)


@dataclass(frozen=True)
class _Edition:
    """What tells the two data sets apart."""

    class_names: tuple[str, ...]
    folder: str
    augmentation: Augmentation
    digests: tuple[str, str]  # of labels, then pixels, of the training and of the test part


_MNIST = _Edition(
    tuple("0123456789"),
    "MNIST/raw",
    "crop",
    (
        "sha256:a454de301763d749ccfd1ebb5add77d549bcd2125320df72efaa88e014fca0f0",
        "sha256:103f79bf9cce53f71a186484ee3992e7b298fffa37132ee5660752b8b02ea8e1",
    ),
)
_FASHION = _Edition(
    ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
    "FashionMNIST/raw",
    "crop-flip",
    (
        "sha256:308c6213870624505959c710712dbe6debc9c2041d98fda2dccb47bcffbd3d84",
        "sha256:b7f140f1222993c13e87dc8277a29fffab35bf5fa0777d972356122e7320f6c6",
    ),
)


def _read(reader: DatasetReader, edition: _Edition, folder: Path, *, checked: bool) -> Dataset:
    names = [f"{part}-{what}" for part in ("train", "t10k") for what in ("images{}idx3-ubyte", "labels{}idx1-ubyte")]
    # Some copies write a dot where the publisher writes a dash.
    layouts = [Layout(tuple(name.format(mark) for name in names), (edition.folder,)) for mark in "-."]
    place = find_files(reader, folder, layouts)
    arrays = {
        member.name.replace(".", "-"): _array(member, _IMAGES if "images" in member.name else _LABELS)
        for member in place.members()
    }
    training, test = (
        _part(arrays, part, edition, digest if checked else None, f"the {title} part of {reader.name} in {folder}")
        for part, title, digest in zip(("train", "t10k"), ("training", "test"), edition.digests, strict=True)
    )
    return Dataset(
        reader.name,
        edition.class_names,
        training,
        test,
        pixel_scale=PixelScale.of(training.inputs),
        augmentation=edition.augmentation,
    )


def _array(member: Member, magic: int) -> np.ndarray:
    n_sizes = magic & 0xFF
    header = np.empty(4 + 4 * n_sizes, dtype=np.uint8)
    member.fill(header)
    found, *sizes = struct.unpack(f">{1 + n_sizes}I", header.tobytes())
    if found != magic:
        kind = "images" if magic == _IMAGES else "labels"
        raise FileError(
            f"{member.where} must begin with {magic:#010x}, the sign of IDX {kind}; got {found:#010x}. It is another "
            "file: check which is images and which is labels."
        )
    if header.size + prod(sizes) != member.size:
        raise FileError(
            f"{member.where} must have {header.size + prod(sizes):,} bytes, as its header says "
            f"({' x '.join(map(str, sizes))}); got {member.size:,}. It was cut short or damaged; download it again."
        )
    array = np.empty(sizes, dtype=np.uint8)
    member.fill(array)
    return array


def _part(arrays: Mapping[str, np.ndarray], part: str, edition: _Edition, digest: str | None, where: str) -> Examples:
    images, labels = arrays[f"{part}-images-idx3-ubyte"], arrays[f"{part}-labels-idx1-ubyte"]
    if len(images) != len(labels) or not len(images):
        raise FileError(
            f"{where} must have a label for every image; got {len(images):,} images and {len(labels):,} labels."
        )
    if labels.max() >= len(edition.class_names):
        row = int(labels.argmax())
        raise FileError(f"{where} must have labels in 0..9; got {labels[row]} at image {row}. It is another data set.")
    if digest is not None:
        check_digest(where, digest, content_digest(labels, images))
    return Examples(torch.from_numpy(images)[:, None], torch.from_numpy(labels).long())


@final
@dataclass(frozen=True)
class SVHN(DatasetReader):
    """99,289 colour photographs of digits, 32 x 32 pixels; 26,032 of them test. The "extra" images are left out.

    Reads ``train_32x32.mat`` and ``test_32x32.mat``. The files call the digit zero 10; here it is 0. The classes are
    uneven: one image in five is a 1. Neighbouring digits often stand in the picture, and are not what is asked.
    """

    name: ClassVar[str] = "svhn"
    title: ClassVar[str] = "SVHN"
    n_classes: ClassVar[int] = 10
    paper: ClassVar[Paper] = Paper(
        "Netzer et al.",
        2011,
        "Reading Digits in Natural Images with Unsupervised Feature Learning",
        "NIPS Workshop on Deep Learning and Unsupervised Feature Learning",
    )
    homepage: ClassVar[str] = "http://ufldl.stanford.edu/housenumbers/"
    remote: ClassVar[tuple[RemoteFile, ...]] = (
        RemoteFile(
            f"{homepage}train_32x32.mat",
            "sha256:435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8",
            182_040_794,
        ),
        RemoteFile(
            f"{homepage}test_32x32.mat",
            "sha256:cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b",
            64_275_384,
        ),
    )

    def read(self, folder: Path, *, checked: bool = True) -> Dataset:
        place = find_files(self, folder, [Layout(tuple(file.name for file in self.remote))])
        parts = []
        for file in self.remote:
            path = place.paths[file.name]
            if checked:
                check_file(path, digest=file.digest, size=file.size)
            parts.append(_svhn_part(path))
        training, test = parts
        scale = PixelScale.of(training.inputs)
        # No mirror images: they are no digits.
        return Dataset(self.name, tuple("0123456789"), training, test, pixel_scale=scale, augmentation="crop")


def _svhn_part(path: Path) -> Examples:
    from scipy.io import loadmat

    with reading(path, "MATLAB file of version 5 to 7"):
        held = loadmat(path, variable_names=("X", "y"))
    images, labels = held.get("X"), held.get("y")
    if not isinstance(images, np.ndarray) or images.dtype != np.uint8 or images.shape[:3] != (32, 32, 3):
        raise FileError(f"{path} must hold 'X', images of 32 x 32 x 3 x n bytes; got {_shape(images)}.")
    n = images.shape[3] if images.ndim == 4 else 0
    if not isinstance(labels, np.ndarray) or labels.shape != (n, 1) or not n:
        raise FileError(f"{path} must hold 'y', a label for each of {n:,} images (n x 1); got {_shape(labels)}.")
    digits = labels[:, 0].astype(np.int64)
    if (digits != labels[:, 0]).any() or digits.min() < 1 or digits.max() > 10:
        row = int(np.flatnonzero((labels[:, 0] != digits) | (digits < 1) | (digits > 10))[0])
        raise FileError(f"{path} must have labels in 1..10, where 10 is the digit zero; got {labels[row, 0]} at {row}.")
    stacked = np.empty((n, 3, 32, 32), dtype=np.uint8)
    np.copyto(stacked, images.transpose(3, 2, 0, 1))
    return Examples(torch.from_numpy(stacked), torch.from_numpy(digits % 10))


def _shape(array: object) -> str:
    return f"{array.dtype} {array.shape}" if isinstance(array, np.ndarray) else "none"
