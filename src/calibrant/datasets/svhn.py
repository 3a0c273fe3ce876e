"""SVHN: house numbers photographed from the street, from the cropped digits in MATLAB files."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, final

import numpy as np
import torch

from calibrant.bad_file import reading
from calibrant.datasets.canonical import Layout, find_files
from calibrant.datasets.dataset import Dataset, Examples, PixelScale
from calibrant.datasets.integrity import check_file
from calibrant.datasets.reader import DatasetReader, RemoteFile
from calibrant.errors import FileError
from calibrant.paper import Paper

__all__ = ["SVHN"]


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
            parts.append(_part(path))
        training, test = parts
        scale = PixelScale.of(training.inputs)
        # No mirror images: they are no digits.
        return Dataset(self.name, tuple("0123456789"), training, test, pixel_scale=scale, augmentation="crop")


def _part(path: Path) -> Examples:
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
