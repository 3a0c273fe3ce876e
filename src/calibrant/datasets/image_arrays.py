"""Images and labels from NumPy files, among them naturally shifted test sets such as CIFAR-10.1."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypeAlias, get_args

import numpy as np
import torch
from torch import Tensor

from calibrant.checks import check_at_least, check_known, existing_file
from calibrant.datasets.dataset import Samples
from calibrant.datasets.image_folder import read_class_folders
from calibrant.errors import FileError, InputError
from calibrant.npy import numpy_archive, read_npy
from calibrant.text import listed

ImageLayout: TypeAlias = Literal["auto", "channels_first", "channels_last"]

_CHANNELS = {1, 3}


def as_images(images: np.ndarray, *, where: str, layout: ImageLayout) -> Tensor:
    """Return images as (n, c, h, w) uint8; ``where`` names them in messages."""
    if images.dtype != np.uint8:
        cure = (
            "If they lie in 0..1, save (images * full).round().astype('uint8'), where full is the brightest pixel of "
            "the data set, mostly 255"
            if images.dtype.kind == "f"
            else "Save images.astype('uint8'), if all lie in 0..255"
        )
        raise FileError(f"{where} must be pixels as their data set stores them, in uint8; got {images.dtype}. {cure}.")
    if images.ndim == 3:
        images = images[:, None]
        layout = "channels_first"
    if images.ndim != 4 or not images.size:
        raise FileError(
            f"{where} must be images, (n, h, w, c), (n, c, h, w) or (n, h, w), at least one; got shape {images.shape}. "
            "Reshape them before they are saved."
        )
    first, last = images.shape[1] in _CHANNELS, images.shape[3] in _CHANNELS
    if layout == "auto" and first and last:
        raise FileError(
            f"{where} must have its channels in one place; shape {images.shape} may be read both ways. Pass "
            "layout='channels_first' or layout='channels_last'."
        )
    is_first = first if layout == "auto" else layout == "channels_first"
    if not (first if is_first else last):
        position = "" if layout == "auto" else f" where layout={layout!r} has them"
        raise FileError(f"{where} must have one or three channels{position}; got shape {images.shape}.")
    return torch.from_numpy(np.ascontiguousarray(images if is_first else images.transpose(0, 3, 1, 2)))


def as_labels(labels: np.ndarray, n: int, *, where: str, n_classes: int | None = None) -> Tensor:
    """Return the labels of n images as (n,) int64; ``n_classes`` is None if it is not known."""
    if labels.dtype.kind not in "iu" or labels.shape != (n,):
        raise FileError(f"{where} must be {n:,} integers, one an image; got {labels.dtype} of shape {labels.shape}.")
    numbers = labels.astype(np.int64)
    outside = (numbers < 0) | (False if n_classes is None else numbers >= n_classes)
    if outside.any():
        row = int(outside.argmax())
        bounds = "be 0 or more" if n_classes is None else f"lie in 0..{n_classes - 1}, the classes of the network"
        cure = " If labels start at 1, subtract 1." if numbers[row] == n_classes and numbers.min() >= 1 else ""
        cure = " Remove rows without a label." if numbers[row] < 0 else cure
        raise FileError(f"{where} must {bounds}; got {numbers[row]} at image {row}.{cure}")
    return torch.from_numpy(numbers)


_PathLike: TypeAlias = str | os.PathLike[str]

_IMAGES = ("images", "data", "inputs", "x")
_BOTH_IN_ONE = "Write one with numpy.savez(path, images=images, labels=labels)."
_LABELS = ("labels", "targets", "y")


def read_shifted(
    path: _PathLike | tuple[_PathLike, _PathLike],
    *,
    n_classes: int | None = None,
    layout: ImageLayout = "auto",
    class_names: Sequence[str] = (),
    size: int | None = None,
) -> Samples:
    """Read images and labels that a network was not trained for, to evaluate it under a natural shift.

    Five ways to name them: a NumPy archive (``.npz``, as CIFAR-10.2) with ``images`` (or ``data``, ``inputs``, ``x``)
    and ``labels`` (or ``targets``, ``y``); a pair of ``.npy`` files; the first of such a pair, whose labels lie beside
    it, ``..._data.npy`` and ``..._labels.npy`` (CIFAR-10.1) or any name and ``labels.npy`` (CIFAR-10-C, whose files
    hold five severities one after the other); a folder with one such pair; or a folder of pictures, in a folder for
    each class that is named as the class is or by its number (ImageNet-v2). Nothing in them is run.

    Args:
        path: The archive, the folder, the file of images, or a pair (images, labels).
        n_classes: Number of classes of the network; None checks only for labels below 0. That class 3 of the file is
            class 3 of the network cannot be seen from numbers.
        layout: Position of the channels, if the shape leaves it open; images may be (n, h, w, c) or (n, c, h, w) with
            one or three channels, or grey (n, h, w).
        class_names: Classes of the network, in their order, where pictures are in folders of these names.
        size: Side of the network's images, to which pictures are cut and resized; arrays have theirs.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     np.savez(Path(folder, "new.npz"), images=np.zeros((2, 32, 32, 3), np.uint8), labels=[3, 0])
        ...     read_shifted(Path(folder, "new.npz"), n_classes=10).inputs.shape
        torch.Size([2, 3, 32, 32])
    """
    check_known(layout, get_args(ImageLayout), "layout")
    if n_classes is not None:
        n_classes = check_at_least(n_classes, 1, "n_classes")
    folder = Path(path) if isinstance(path, str | os.PathLike) else None
    inside = list(folder.iterdir()) if folder and folder.is_dir() else []
    if folder and any(one.is_dir() for one in inside) and not any(one.suffix == ".npy" for one in inside):
        if size is None:
            raise InputError(f"size must be that of the network's images, in pixels, for the pictures in {path}.")
        return read_class_folders(folder, size=size, class_names=class_names, n_classes=n_classes)
    (pixels, images_in), (classes, labels_in) = _stored(path)
    images = as_images(pixels, where=images_in, layout=layout)
    return Samples(images, as_labels(classes, len(images), where=labels_in, n_classes=n_classes))


_Stored: TypeAlias = tuple[tuple[np.ndarray, str], tuple[np.ndarray, str]]  # images, labels: arrays and their sources


def _stored(path: _PathLike | tuple[_PathLike, _PathLike]) -> _Stored:
    if isinstance(path, tuple | list):
        if len(path) != 2:
            raise InputError(f"path must be one path, or a pair (images, labels); got {len(path)} of them.")
        return _from_pair(Path(path[0]), Path(path[1]))
    file = Path(path)
    if file.is_dir():
        return _from_pair(*_pair_in(file))
    ending = file.suffix.lower()
    if ending == ".npy":
        labels_file = _labels_beside(file)
        if file.is_file() and not labels_file.exists():
            raise FileError(
                f"{file} must have its labels beside it, in {labels_file.name}; there is no such file. Save them there "
                f"with numpy.save, or both in one .npz file. {_BOTH_IN_ONE}"
            )
        return _from_pair(file, labels_file)
    if ending != ".npz":
        raise FileError(f"a file of shifted images must end in .npz or .npy; got {file}. {_BOTH_IN_ONE}")
    with numpy_archive(existing_file(file, holding="images")) as archive:
        names = [_only(archive.names, wanted, file) for wanted in (_IMAGES, _LABELS)]
        images, labels = archive.read(names)
    return (images, f"{file}: {names[0]!r}"), (labels, f"{file}: {names[1]!r}")


def _only(held: Sequence[str], wanted: Sequence[str], file: Path) -> str:
    present = [name for name in wanted if name in held]
    if len(present) == 1:
        return present[0]
    got = f"it has {' and '.join(present)}" if present else f"it has {', '.join(held) or 'nothing'}"
    raise FileError(f"{file} must have exactly one of the arrays {', '.join(wanted)}; {got}. Save it with the one.")


def _from_pair(images: Path, labels: Path) -> _Stored:
    pixels, classes = (read_npy(existing_file(path, holding="an array")) for path in (images, labels))
    return (pixels, str(images)), (classes, str(labels))


def _labels_beside(images: Path) -> Path:
    for ending in ("data", "images"):
        if images.stem.endswith(ending):
            return images.with_name(f"{images.stem.removesuffix(ending)}labels.npy")
    return images.with_name("labels.npy")


def _pair_in(folder: Path) -> tuple[Path, Path]:
    files = sorted(folder.glob("*.npy"))
    pairs = [file for file in files if file.stem.endswith(("data", "images")) and _labels_beside(file).is_file()]
    if len(pairs) == 1:
        return pairs[0], _labels_beside(pairs[0])
    names = [file.name for file in pairs or files or sorted(folder.iterdir())]
    cure = "Name the one that you mean" if pairs else "Name the file of images"
    raise FileError(
        f"{folder} must hold one pair ..._data.npy and ..._labels.npy, or a folder of pictures for each class; found "
        f"{listed(names, 5) or 'nothing'}. {cure}."
    )
