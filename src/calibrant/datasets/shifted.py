"""Images that the world shifted: a file of other pictures of the same classes, such as CIFAR-10.1."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias, get_args

import numpy as np

from calibrant.checks import check_at_least, check_known
from calibrant.datasets.dataset import Examples
from calibrant.datasets.image_arrays import ImageLayout, as_class_numbers, as_images
from calibrant.datasets.stored_arrays import read_npy, read_npz
from calibrant.errors import FileError, InputError

__all__ = ["read_shifted"]

_PathLike: TypeAlias = str | os.PathLike[str]

_IMAGES = ("images", "data", "inputs", "x")
_BOTH_IN_ONE = "Write one with numpy.savez(path, images=images, labels=labels)."
_LABELS = ("labels", "targets", "y")


def read_shifted(
    path: _PathLike | tuple[_PathLike, _PathLike], *, n_classes: int | None = None, layout: ImageLayout = "auto"
) -> Examples:
    """Read images and labels that a network was not trained for, to judge it under a natural shift.

    Four ways to name them: a NumPy archive (``.npz``, as CIFAR-10.2) with ``images`` (or ``data``, ``inputs``, ``x``)
    and ``labels`` (or ``targets``, ``y``); a pair of ``.npy`` files; the first of such a pair, whose labels lie beside
    it, ``..._data.npy`` and ``..._labels.npy`` (CIFAR-10.1) or any name and ``labels.npy`` (CIFAR-10-C, whose files
    hold five severities one after the other); or a folder with one such pair. Nothing in them is run.

    Args:
        path: The archive, the folder, the file of images, or a pair (images, labels).
        n_classes: How many classes the network knows; None looks only for labels below 0. That class 3 of the file is
            class 3 of the network cannot be seen from numbers.
        layout: Where the channels stand, if the shape leaves it open; images may be (n, h, w, c) or (n, c, h, w) with
            one or three channels, or grey (n, h, w).

    Returns:
        Images, (n, c, h, w) uint8, and labels.

    Raises:
        FileError: If a file is missing, damaged, or a pickle; if images are not bytes or their layout is not plain; if
            labels are not whole numbers, one an image, in 0..k-1.
        InputError: If an option is out of range.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     np.save(Path(folder, "new_data.npy"), np.zeros((2, 32, 32, 3), dtype=np.uint8))
        ...     np.save(Path(folder, "new_labels.npy"), np.array([3, 0]))
        ...     examples = read_shifted(folder, n_classes=10)
        >>> tuple(examples.inputs.shape), examples.labels.tolist()
        ((2, 3, 32, 32), [3, 0])
    """
    check_known(layout, get_args(ImageLayout), "layout")
    if n_classes is not None:
        n_classes = check_at_least(n_classes, 1, "n_classes")
    stored = _stored(path)
    images = as_images(stored.images, where=stored.images_in, layout=layout)
    return Examples(images, as_class_numbers(stored.labels, len(images), where=stored.labels_in, n_classes=n_classes))


class _Stored(NamedTuple):
    """Arrays, and what messages call the places they come from."""

    images: np.ndarray
    labels: np.ndarray
    images_in: str
    labels_in: str


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
        return _from_pair(file, _found_beside(file))
    if ending != ".npz":
        raise FileError(f"a file of shifted images must end in .npz or .npy; got {file}. {_BOTH_IN_ONE}")
    names: list[str] = []

    def choose(held: Sequence[str]) -> Sequence[str]:
        names.extend((_only(held, _IMAGES, file), _only(held, _LABELS, file)))
        return names

    images, labels = read_npz(file, choose)
    return _Stored(images, labels, f"{file}: {names[0]!r}", f"{file}: {names[1]!r}")


def _only(held: Sequence[str], wanted: Sequence[str], file: Path) -> str:
    found = [name for name in wanted if name in held]
    if len(found) == 1:
        return found[0]
    got = f"it has {' and '.join(found)}" if found else f"it has {', '.join(held) or 'nothing'}"
    raise FileError(f"{file} must have exactly one of the arrays {', '.join(wanted)}; {got}. Save it with the one.")


def _from_pair(images: Path, labels: Path) -> _Stored:
    return _Stored(read_npy(images), read_npy(labels), str(images), str(labels))


def _labels_beside(images: Path) -> Path:
    for ending in ("data", "images"):
        if images.stem.endswith(ending):
            return images.with_name(f"{images.stem.removesuffix(ending)}labels.npy")
    return images.with_name("labels.npy")


def _found_beside(images: Path) -> Path:
    labels = _labels_beside(images)
    if images.is_file() and not labels.exists():
        raise FileError(
            f"{images} must have its labels beside it, in {labels.name}; there is no such file. Save them there with "
            f"numpy.save, or both in one .npz file. {_BOTH_IN_ONE}"
        )
    return labels


def _pair_in(folder: Path) -> tuple[Path, Path]:
    files = sorted(folder.glob("*.npy"))
    found = [file for file in files if file.stem.endswith(("data", "images")) and _labels_beside(file).is_file()]
    if len(found) == 1:
        return found[0], _labels_beside(found[0])
    names = [file.name for file in found or files or sorted(folder.iterdir())]
    listed = f"{', '.join(names[:5])}{' ...' if len(names) > 5 else ''}" or "nothing"
    cure = "Name the one that you mean" if found else "Name the file of images"
    raise FileError(f"{folder} must hold one pair ..._data.npy and ..._labels.npy; found {listed}. {cure}.")
