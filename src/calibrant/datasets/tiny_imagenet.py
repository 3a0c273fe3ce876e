"""Tiny-ImageNet: two hundred classes of ImageNet at 64 x 64 pixels, from the unpacked folder."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, final

import torch

from calibrant.bad_file import reading
from calibrant.datasets.canonical import missing_files
from calibrant.datasets.dataset import Dataset, Examples, PixelScale
from calibrant.datasets.pictures import read_pictures, same_size
from calibrant.datasets.reader import DatasetReader, RemoteFile
from calibrant.errors import FileError
from calibrant.paper import Paper

__all__ = ["TinyImageNet"]

_FOLDER = "tiny-imagenet-200"
_SIDE = 64
_N_CLASSES, _N_TRAINING, _N_TEST = 200, 100_000, 10_000


@final
@dataclass(frozen=True)
class TinyImageNet(DatasetReader):
    """110,000 colour photographs of 64 x 64 pixels in two hundred classes; the 10,000 of the "val" folder test.

    Reads ``wnids.txt``, ``words.txt``, ``train`` and ``val`` as ``tiny-imagenet-200.zip`` unpacks them. The labels of
    the "test" folder were never given out, so the validation images judge, here as in the papers: a network whose
    settings were chosen on them looks better than it is. Classes are numbered in the order of their WordNet names.
    Only the counts are checked, as a folder of JPEG files has no digest.
    """

    name: ClassVar[str] = "tiny_imagenet"
    title: ClassVar[str] = "Tiny-ImageNet"
    n_classes: ClassVar[int] = _N_CLASSES
    paper: ClassVar[Paper] = Paper(
        "Le & Yang", 2015, "Tiny ImageNet Visual Recognition Challenge", "Stanford University, course CS 231N"
    )
    homepage: ClassVar[str] = "http://cs231n.stanford.edu/tiny-imagenet-200.zip"
    remote: ClassVar[tuple[RemoteFile, ...]] = (
        RemoteFile(homepage, "md5:90528d7ca1a48142e341f4ef8d21d0de", 248_100_043, unpack=True),
    )

    def read(self, folder: Path, *, checked: bool = True) -> Dataset:
        folder = Path(folder)
        root = folder if (folder / "wnids.txt").is_file() else folder / _FOLDER
        needed = ("wnids.txt", "words.txt", "train", "val/val_annotations.txt")
        if lacking := [name for name in needed if not (root / name).exists()]:
            raise missing_files(self, folder, f"{', '.join(needed)} (from {_FOLDER}.zip, unpacked)", lacking)
        wnids = sorted(_lines(root / "wnids.txt"))
        words = dict(line.split("\t", 1) for line in _lines(root / "words.txt") if "\t" in line)
        numbers = {wnid: number for number, wnid in enumerate(wnids)}
        training, test = _training(root, numbers), _validation(root, numbers)
        if checked:
            _check_counts(root, len(wnids), len(training), len(test))
        return Dataset(
            self.name,
            tuple(words.get(wnid, wnid).split(",")[0] for wnid in wnids),
            training,
            test,
            pixel_scale=PixelScale.of(training.inputs),
            augmentation="crop-flip",
        )


def _lines(path: Path) -> list[str]:
    with reading(path, "text file"):
        return [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def _training(root: Path, numbers: dict[str, int]) -> Examples:
    paths, labels = [], []
    for wnid, number in numbers.items():
        found = sorted((root / "train" / wnid / "images").glob("*.JPEG"))
        if not found:
            raise FileError(
                f"{root / 'train' / wnid / 'images'} must hold the .JPEG files of class {wnid}; there are none. "
                "Unpack the archive again."
            )
        paths += found
        labels += [number] * len(found)
    return Examples(read_pictures(paths, size=_SIDE, shape=same_size), torch.tensor(labels))


def _validation(root: Path, numbers: dict[str, int]) -> Examples:
    listed = root / "val" / "val_annotations.txt"
    paths, labels = [], []
    for row, line in enumerate(_lines(listed), start=1):
        name, wnid = (*line.split("\t"), "")[:2]
        if wnid not in numbers or Path(name).name != name:
            raise FileError(
                f"{listed} must say in every line a picture and a class of wnids.txt, with a tab between; line {row} "
                f"says {line[:60]!r}."
            )
        paths.append(root / "val" / "images" / name)
        labels.append(numbers[wnid])
    return Examples(read_pictures(paths, size=_SIDE, shape=same_size), torch.tensor(labels, dtype=torch.int64))


def _check_counts(root: Path, n_classes: int, n_training: int, n_test: int) -> None:
    if (n_classes, n_training, n_test) != (_N_CLASSES, _N_TRAINING, _N_TEST):
        raise FileError(
            f"{root} must hold {_N_CLASSES} classes, {_N_TRAINING:,} training and {_N_TEST:,} validation pictures; got "
            f"{n_classes}, {n_training:,} and {n_test:,}. Unpack the archive again, or, if these are your own pictures "
            "in the same layout, pass checked=False (--unchecked)."
        )
