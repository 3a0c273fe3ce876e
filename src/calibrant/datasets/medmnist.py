"""MedMNIST: small medical images, from the collection's ``.npz`` files or any file in the same layout."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, final

from calibrant.checks import check_known
from calibrant.datasets.canonical import find_file, missing_files
from calibrant.datasets.dataset import Dataset
from calibrant.datasets.integrity import check_file
from calibrant.datasets.medmnist_archive import read_archive
from calibrant.datasets.medmnist_flags import MEDMNIST_FLAGS, named_flag
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
_COUNTS = [len(part.class_names) for part in MEDMNIST_FLAGS.values()]
_MANY_LABELS = "chestmnist gives it any of fourteen at once"


@final
@dataclass(frozen=True)
class MedMNIST(DatasetReader):
    """One part of the MedMNIST collection, with the publisher's own training, validation and test parts.

    Reads ``<flag>.npz``. A path to an ``.npz`` file of another name, such as one with larger images or with another
    division, is read too: it must have the layout and all of the part's classes, but no digest is known for it. Parts
    with as many classes and the same channels cannot be told apart by what they hold: the flag must then be right.
    ChestMNIST gives an image several labels at once, and the 3D parts are no pictures; neither can be read.

    Args:
        flag: Which part, as the collection calls it. None goes by the file's name (``pathmnist.npz``,
            ``pathmnist_64.npz``); in a folder, by the name of the only such file.

    Example:
        >>> MedMNIST("pathmnist").remote[0].name
        'pathmnist.npz'
    """

    name: ClassVar[str] = "medmnist"
    title: ClassVar[str] = "MedMNIST"
    n_classes: ClassVar[tuple[int, int]] = (min(_COUNTS), max(_COUNTS))
    why_no_remote: ClassVar[str] = "it is a collection, and a part must be named, as in medmnist(flag=bloodmnist)"
    paper: ClassVar[Paper] = _PAPER
    homepage: ClassVar[str] = _HOMEPAGE

    flag: str | None = None

    def __post_init__(self) -> None:
        if self.flag == "chestmnist":
            raise InputError(
                f"flag must name a part that gives every image one label; {_MANY_LABELS}. "
                f"Choose one of {', '.join(MEDMNIST_FLAGS)}."
            )
        if self.flag is not None:
            check_known(self.flag, MEDMNIST_FLAGS, "flag")

    @property
    def remote(self) -> tuple[RemoteFile, ...]:
        return () if self.flag is None else (_remote(self.flag),)

    def read(self, folder: Path, *, checked: bool = True) -> Dataset:
        path = Path(folder)
        if self.flag is not None:
            return _read(self, self.flag, path, checked=checked)
        if not path.is_file():
            path = self._only_file(path)
        return _read(self, _flag_by_name(path), path, checked=checked)

    def _only_file(self, folder: Path) -> Path:
        """The one file of the folder that bears the name of a part."""
        found = sorted(path for path in folder.glob("*.npz") if named_flag(path) and path.is_file())
        if not found:
            raise missing_files(self, folder, "<flag>.npz, such as pathmnist.npz,", [])
        if len(found) > 1:
            raise FileError(
                f"flag must be given for a folder with several parts; {folder} holds "
                f"{', '.join(path.name for path in found)}. Write medmnist(flag={named_flag(found[0])}), or name the "
                "file itself."
            )
        return found[0]


@final
@dataclass(frozen=True)
class BloodMNIST(DatasetReader):
    """17,092 blood cells under the microscope, 28 x 28 pixels in colour, eight kinds; 1,712 validate and 3,421 test.

    As ``MedMNIST("bloodmnist")``. Training and test show cells of the same few people.
    """

    name: ClassVar[str] = "bloodmnist"
    title: ClassVar[str] = "BloodMNIST"
    n_classes: ClassVar[int] = len(MEDMNIST_FLAGS["bloodmnist"].class_names)
    paper: ClassVar[Paper] = _PAPER
    homepage: ClassVar[str] = _HOMEPAGE

    @property
    def remote(self) -> tuple[RemoteFile, ...]:
        return (_remote("bloodmnist"),)

    def read(self, folder: Path, *, checked: bool = True) -> Dataset:
        return _read(self, "bloodmnist", Path(folder), checked=checked)


def _flag_by_name(path: Path) -> str:
    flag = named_flag(path)
    if flag is None:
        several = f" A part must give every image one label; {_MANY_LABELS}." * path.name.startswith("chestmnist")
        raise FileError(
            f"flag must be given for a file named {path.name}; one of {', '.join(MEDMNIST_FLAGS)}. Write, for blood "
            f"cells, medmnist(flag=bloodmnist).{several}"
        )
    return flag


def _remote(flag: str) -> RemoteFile:
    return RemoteFile(f"{_HOMEPAGE}/files/{flag}.npz?download=1", MEDMNIST_FLAGS[flag].digest)


def _read(reader: DatasetReader, flag: str, folder: Path, *, checked: bool) -> Dataset:
    name = f"{flag}.npz"
    path = folder if folder.is_file() else find_file(reader, folder, name)
    # Some parts differ in nothing that could be checked but in what their classes mean.
    if (named := named_flag(path)) not in {None, flag}:
        raise FileError(
            f"{path} must be {flag}; by its name it is {named}. Read it as medmnist(flag={named}), or, if it is your "
            "own file, give it another name."
        )
    if checked and path.name == name:
        check_file(path, digest=MEDMNIST_FLAGS[flag].digest)
    return read_archive(path, flag)
