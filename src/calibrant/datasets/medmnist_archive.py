"""The arrays of a MedMNIST archive, and whether they are those of the part that they are taken for."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from calibrant.bad_file import reading
from calibrant.datasets.dataset import Dataset, Examples, PixelScale
from calibrant.datasets.medmnist_flags import MEDMNIST_FLAGS
from calibrant.errors import FileError

__all__ = ["read_archive"]


def read_archive(path: Path, flag: str) -> Dataset:
    """Read an ``.npz`` file in the collection's layout.

    Args:
        path: The file.
        flag: The part whose classes it must have, all of them, and whose channels.

    Raises:
        FileError: If it is damaged, of another layout, or has other classes or channels; the message names the part
            that has them.
    """
    with reading(path, "NumPy archive (.npz)"), path.open("rb") as file:
        # NumPy takes anything that does not start like a zip for a pickle.
        if file.read(2) != b"PK":
            raise FileError(f"{path} must be a NumPy archive (.npz); it is something else. Download it again.")
        file.seek(0)
        with np.load(file, allow_pickle=False) as archive:
            training, validation, test = (_part(archive, part, path) for part in ("train", "val", "test"))
    labels = torch.cat([part.labels.unique() for part in (training, validation, test)]).unique()
    _check_flag(path, flag, labels, training.inputs.shape[1])
    class_names, scale = MEDMNIST_FLAGS[flag].class_names, PixelScale.of(training.inputs)
    return Dataset(flag, class_names, training, test, validation, pixel_scale=scale, augmentation="crop-flip")


def _check_flag(path: Path, flag: str, labels: Tensor, channels: int) -> None:
    """A file of another part would be trained on without complaint, under the wrong names of its classes."""
    fitting = [
        name
        for name, part in MEDMNIST_FLAGS.items()
        if part.channels == channels and torch.equal(labels, torch.arange(len(part.class_names)))
    ]
    if flag in fitting:
        return
    expected = MEDMNIST_FLAGS[flag]
    last = len(expected.class_names) - 1
    if len(fitting) == 1:
        advice = f"Read it as medmnist(flag={fitting[0]}) if that is what it is."
    elif fitting:
        advice = f"Read it as the one of these that it is: {', '.join(f'medmnist(flag={name})' for name in fitting)}."
    else:
        advice = "No part of the collection is like that: check that no class is missing and that they count from 0."
    raise FileError(
        f"{path} must have the classes of {flag}, labels 0 to {last}, and {_COLOUR[expected.channels]} images; got "
        f"labels {_in_words(labels)} and {_COLOUR[channels]} images. {advice}"
    )


_COLOUR = {1: "grey", 3: "colour"}


def _in_words(labels: Tensor) -> str:
    first, last = ", ".join(map(str, labels[:-1][:12].tolist())), int(labels[-1])
    if len(labels) == last + 1:
        return f"0 to {last}"
    return f"{first}{', ...' if len(labels) > 13 else ''} and {last}" if first else f"{last} alone"


def _part(archive: Any, part: str, path: Path) -> Examples:
    names = f"{part}_images", f"{part}_labels"
    if absent := [name for name in names if name not in archive.files]:
        raise FileError(
            f"{path} must hold train_images, train_labels, val_..., test_...; it lacks {', '.join(absent)} and has "
            f"{', '.join(archive.files) or 'nothing'}."
        )
    images, labels = archive[names[0]], archive[names[1]]
    if images.dtype != np.uint8 or images.ndim not in {3, 4} or (images.ndim == 4 and images.shape[3] not in {1, 3}):
        raise FileError(
            f"{path}: {names[0]} must be bytes of n x height x width, or n x height x width x 3; got {images.dtype} "
            f"{images.shape}. Volumes (3D) cannot be read as images."
        )
    if labels.ndim == 2 and labels.shape[1] > 1:
        raise FileError(
            f"{path}: {names[1]} must give every image one label (n x 1); got {labels.shape[1]} labels at once, as in "
            "ChestMNIST. Such data have no classes of which one is right."
        )
    flat = labels.reshape(-1)
    if labels.dtype.kind not in "iu" or len(flat) != len(images) or not len(images):
        raise FileError(
            f"{path}: {names[1]} must be a whole number for each of {len(images):,} images; got {labels.dtype} "
            f"{labels.shape}."
        )
    if flat.min() < 0:
        row = int(flat.argmin())
        raise FileError(f"{path}: {names[1]} must be 0 or more; got {flat[row]} at image {row}.")
    channels_last = torch.from_numpy(images.reshape(*images.shape[:3], -1))
    return Examples(channels_last.permute(0, 3, 1, 2).contiguous(), torch.from_numpy(flat.astype(np.int64)))
