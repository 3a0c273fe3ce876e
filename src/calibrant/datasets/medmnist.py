"""MedMNIST: small medical images, from the collection's ``.npz`` files or any file in the same layout."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, final

import numpy as np
import torch

from calibrant.checks import check_known
from calibrant.datasets.canonical import find_file
from calibrant.datasets.dataset import Dataset, Examples, PixelScale
from calibrant.datasets.integrity import check_file, reading
from calibrant.datasets.medmnist_flags import MEDMNIST_FLAGS
from calibrant.datasets.reader import DatasetReader, RemoteFile
from calibrant.errors import FileError, InputError
from calibrant.paper import Paper

__all__ = ["BloodMNIST", "MedMNIST"]

_PAPER = Paper(
    "Yang et al.",
    2023,
    "MedMNIST v2 - A large-scale lightweight benchmark for 2D and 3D biomedical image classification",
    "doi:10.1038/s41597-022-01721-8",
)
_HOMEPAGE = "https://zenodo.org/records/10519652"


@final
@dataclass(frozen=True)
class MedMNIST(DatasetReader):
    """One part of the MedMNIST collection, with the publisher's own training, validation and test parts.

    Reads ``<flag>.npz``. A path to an ``.npz`` file of another name, such as one with larger images or with another
    division, is read too: it must have the layout, but no digest is known for it. ChestMNIST gives an image several
    labels at once, and the 3D parts are no pictures; neither can be read.

    Args:
        flag: Which part, as the collection calls it.

    Example:
        >>> MedMNIST("pathmnist").remote[0].name
        'pathmnist.npz'
    """

    name: ClassVar[str] = "medmnist"
    title: ClassVar[str] = "MedMNIST"
    paper: ClassVar[Paper] = _PAPER
    homepage: ClassVar[str] = _HOMEPAGE

    flag: str = "pathmnist"

    def __post_init__(self) -> None:
        if self.flag == "chestmnist":
            raise InputError(
                "flag must name a part that gives every image one label; chestmnist gives it any of fourteen at once. "
                f"Choose one of {', '.join(MEDMNIST_FLAGS)}."
            )
        check_known(self.flag, MEDMNIST_FLAGS, "flag")

    @property
    def remote(self) -> tuple[RemoteFile, ...]:
        return (_remote(self.flag),)

    def read(self, folder: Path, *, checked: bool = True) -> Dataset:
        return _read(self, self.flag, Path(folder), checked=checked)


@final
@dataclass(frozen=True)
class BloodMNIST(DatasetReader):
    """17,092 blood cells under the microscope, 28 x 28 pixels in colour, eight kinds; 1,712 validate and 3,421 test.

    As ``MedMNIST("bloodmnist")``. Training and test show cells of the same few people.
    """

    name: ClassVar[str] = "bloodmnist"
    title: ClassVar[str] = "BloodMNIST"
    paper: ClassVar[Paper] = _PAPER
    homepage: ClassVar[str] = _HOMEPAGE

    @property
    def remote(self) -> tuple[RemoteFile, ...]:
        return (_remote("bloodmnist"),)

    def read(self, folder: Path, *, checked: bool = True) -> Dataset:
        return _read(self, "bloodmnist", Path(folder), checked=checked)


def _remote(flag: str) -> RemoteFile:
    return RemoteFile(f"{_HOMEPAGE}/files/{flag}.npz?download=1", MEDMNIST_FLAGS[flag].digest)


def _read(reader: DatasetReader, flag: str, folder: Path, *, checked: bool) -> Dataset:
    name = f"{flag}.npz"
    path = folder if folder.is_file() else find_file(reader, folder, name)
    if checked and path.name == name:
        check_file(path, digest=MEDMNIST_FLAGS[flag].digest)
    class_names = MEDMNIST_FLAGS[flag].class_names
    with reading(path, "NumPy archive (.npz)"), path.open("rb") as file:
        # NumPy takes anything that does not start like a zip for a pickle.
        if file.read(2) != b"PK":
            raise FileError(f"{path} must be a NumPy archive (.npz); it is something else. Download it again.")
        file.seek(0)
        with np.load(file, allow_pickle=False) as archive:
            parts = [_part(archive, part, path, len(class_names)) for part in ("train", "val", "test")]
    training, validation, test = parts
    scale = PixelScale.of(training.inputs)
    return Dataset(flag, class_names, training, test, validation, pixel_scale=scale, augmentation="crop-flip")


def _part(archive: Any, part: str, path: Path, n_classes: int) -> Examples:
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
    if flat.min() < 0 or flat.max() >= n_classes:
        row = int(np.flatnonzero((flat < 0) | (flat >= n_classes))[0])
        raise FileError(
            f"{path}: {names[1]} must lie in 0..{n_classes - 1}; got {flat[row]} at image {row}. It is another part of "
            "the collection: choose its flag."
        )
    channels_last = torch.from_numpy(images.reshape(*images.shape[:3], -1))
    return Examples(channels_last.permute(0, 3, 1, 2).contiguous(), torch.from_numpy(flat.astype(np.int64)))
