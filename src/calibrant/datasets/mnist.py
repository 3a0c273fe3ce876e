"""MNIST, Fashion-MNIST (IDX files) and SVHN (MATLAB files)."""

import struct
from dataclasses import dataclass
from math import prod
from typing import final

import numpy as np

from calibrant.datasets.dataset import RemoteFile
from calibrant.datasets.publisher_files import FileLayout, ImageArrays, Member, PublishedImages
from calibrant.errors import FileError, reading
from calibrant.paper import Paper

_IMAGES, _LABELS = 0x803, 0x801  # bytes in three dimensions, bytes in one
_FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


def _from_idx(member: Member) -> ImageArrays:
    is_images = "images" in member.name
    magic = _IMAGES if is_images else _LABELS
    n_sizes = magic & 0xFF
    header = np.empty(4 + 4 * n_sizes, dtype=np.uint8)
    member.fill(header)
    sign, *sizes = struct.unpack(f">{1 + n_sizes}I", header.tobytes())
    if sign != magic:
        raise FileError(
            f"{member.where} must begin with {magic:#010x}, the sign of IDX {'images' if is_images else 'labels'}; got "
            f"{sign:#010x}. It is another file: check which is images and which is labels."
        )
    if header.size + prod(sizes) != member.size:
        raise FileError(
            f"{member.where} must have {header.size + prod(sizes):,} bytes, as its header says "
            f"({' x '.join(map(str, sizes))}); got {member.size:,}. It was cut short or damaged; download it again."
        )
    array = np.empty(sizes, dtype=np.uint8)
    member.fill(array)
    return {"images": array[:, None]} if is_images else {"labels": array}


def _idx_layouts(folder: str) -> tuple[FileLayout, ...]:
    # Some copies write a dot where the publisher writes a dash.
    spellings = (_FILES, tuple(name.replace("-idx", ".idx") for name in _FILES))
    return tuple(FileLayout(files, (folder,), decode=_from_idx, n_test=2) for files in spellings)


def _idx_files(address: str, *digests: str) -> tuple[RemoteFile, ...]:
    pairs = zip(_FILES, digests, strict=True)
    return tuple(RemoteFile(f"{address}{file}.gz", f"md5:{digest}") for file, digest in pairs)


@final
@dataclass(frozen=True)
class MNIST(PublishedImages):
    """70,000 hand-written digits of 28 x 28 pixels; 10,000 of them test.

    Reads the four ``...-ubyte`` files, with or without ``.gz``, in the folder or in ``MNIST/raw``. Too easy to
    compare methods: networks are right on more than 99 % of it.
    """

    name = "mnist"
    title = "MNIST"
    n_classes = 10
    paper = Paper("LeCun, Bottou, Bengio & Haffner", 1998, "Gradient-Based Learning Applied to Document Recognition",
                  "doi:10.1109/5.726791")  # fmt: skip
    homepage = "https://ossci-datasets.s3.amazonaws.com/mnist/"
    remote = _idx_files(
        homepage,
        "f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "d53e105ee54ea40749a09fcbcd1e9432",
        "9fb629c4189551a2d022fa330f9573f3",
        "ec29112dd5afa0611ce80d1b7f02629c",
    )
    class_names = tuple("0123456789")
    layouts = _idx_layouts("MNIST/raw")
    digests = (
        "sha256:a454de301763d749ccfd1ebb5add77d549bcd2125320df72efaa88e014fca0f0",
        "sha256:103f79bf9cce53f71a186484ee3992e7b298fffa37132ee5660752b8b02ea8e1",
    )
    augmentation = "crop"


@final
@dataclass(frozen=True)
class FashionMNIST(PublishedImages):
    """70,000 pictures of clothes of 28 x 28 pixels in ten classes; 10,000 of them test.

    Reads the four ``...-ubyte`` files, with or without ``.gz``, in the folder or in ``FashionMNIST/raw``.
    """

    name = "fashion_mnist"
    title = "Fashion-MNIST"
    n_classes = 10
    paper = Paper("Xiao, Rasul & Vollgraf", 2017,
                  "Fashion-MNIST: a Novel Image Dataset for Benchmarking Machine Learning Algorithms",
                  "arXiv:1708.07747")  # fmt: skip
    homepage = "https://github.com/zalandoresearch/fashion-mnist"
    # The publisher's bucket has no https; the digests show whether the files arrived unchanged.
    remote = _idx_files(
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        "25c81989df183df01b3e8a0aad5dffbe",
        "bef4ecab320f06d8554ea6380940ec79",
        "bb300cfdad3c16e7a12a480ee83cd310",
    )
    class_names = (
        *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
    )
    layouts = _idx_layouts("FashionMNIST/raw")
    digests = (
        "sha256:308c6213870624505959c710712dbe6debc9c2041d98fda2dccb47bcffbd3d84",
        "sha256:b7f140f1222993c13e87dc8277a29fffab35bf5fa0777d972356122e7320f6c6",
    )
    augmentation = "crop-flip"


def _from_matlab(member: Member) -> ImageArrays:
    from scipy.io import loadmat

    with reading(member.where, "MATLAB file of version 5 to 7"):
        held = loadmat(member.stream, variable_names=("X", "y"))
    images, labels = held.get("X"), held.get("y")
    if not isinstance(images, np.ndarray) or images.dtype != np.uint8 or images.shape[:3] != (32, 32, 3):
        raise FileError(f"{member.where} must hold 'X', images of 32 x 32 x 3 x n bytes; got {_shape(images)}.")
    n = images.shape[3] if images.ndim == 4 else 0
    if not isinstance(labels, np.ndarray) or labels.shape != (n, 1) or not n:
        raise FileError(f"{member.where} must hold 'y', labels of {n:,} images (n x 1); got {_shape(labels)}.")
    digits = labels[:, 0].astype(np.int64)
    wrong = (digits != labels[:, 0]) | (digits < 1) | (digits > 10)
    if wrong.any():
        row = int(wrong.argmax())
        raise FileError(f"{member.where} must have labels in 1..10, where 10 is zero; got {labels[row, 0]} at {row}.")
    return {"images": np.ascontiguousarray(images.transpose(3, 2, 0, 1)), "labels": digits % 10}


def _shape(array: object) -> str:
    return f"{array.dtype} {array.shape}" if isinstance(array, np.ndarray) else "none"


@final
@dataclass(frozen=True)
class SVHN(PublishedImages):
    """99,289 colour photographs of digits, 32 x 32 pixels; 26,032 of them test. The "extra" images are left out.

    Reads ``train_32x32.mat`` and ``test_32x32.mat``. The files call the digit zero 10; here it is 0. The classes are
    uneven: one image in five is a 1. Pictures often show neighbouring digits, which are not the label.
    """

    name = "svhn"
    title = "SVHN"
    n_classes = 10
    paper = Paper("Netzer et al.", 2011, "Reading Digits in Natural Images with Unsupervised Feature Learning",
                  "NIPS Workshop on Deep Learning and Unsupervised Feature Learning")  # fmt: skip
    homepage = "http://ufldl.stanford.edu/housenumbers/"
    remote = (
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
    class_names = tuple("0123456789")
    layouts = (FileLayout(("train_32x32.mat", "test_32x32.mat"), decode=_from_matlab),)
    augmentation = "crop"  # no flips: mirrored digits are not digits
