"""A person's own pictures, in folders named after what they show."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, final

import torch

from calibrant.checks import check_at_least
from calibrant.datasets.dataset import Dataset, Examples, PixelScale
from calibrant.datasets.pictures import PICTURE_ENDINGS, fit_square, read_pictures
from calibrant.datasets.reader import DatasetReader, RemoteFile
from calibrant.errors import FileError
from calibrant.paper import Paper

__all__ = ["ImageFolder"]


@final
@dataclass(frozen=True)
class ImageFolder(DatasetReader):
    """Pictures in ``train/<class>/`` and ``test/<class>/`` (or ``val/<class>/``), as ImageNet is laid out.

    Where both ``val`` and ``test`` are there, ``val`` is the validation part; where only one is, it judges. Classes are
    numbered in alphabetical order. Of every picture the largest square in its middle is taken and made ``size`` pixels
    wide, in colour; what stands at the edges of a long picture is lost.

    Args:
        size: Side of the images, in pixels.
    """

    name: ClassVar[str] = "image_folder"
    title: ClassVar[str] = "Folders of pictures"
    n_classes: ClassVar[None] = None  # as many as there are folders
    paper: ClassVar[Paper] = Paper(
        "Deng et al.", 2009, "ImageNet: A Large-Scale Hierarchical Image Database", "doi:10.1109/CVPR.2009.5206848"
    )
    homepage: ClassVar[str] = "https://image-net.org"
    remote: ClassVar[tuple[RemoteFile, ...]] = ()

    size: int = 64

    def __post_init__(self) -> None:
        check_at_least(self.size, 1, "size")

    def read(self, folder: Path, *, checked: bool = True) -> Dataset:
        del checked  # there is nothing published to compare with
        folder = Path(folder)
        held = [part for part in ("val", "test") if (folder / part).is_dir()]
        if not held or not (folder / "train").is_dir():
            raise FileError(
                f"{self.name} needs folders train/<class>/ and test/<class>/ (or val/<class>/) in {folder}; "
                f"{_found(folder)}. Move the pictures so, one folder a class."
            )
        class_names = _class_names(folder / "train")
        for part in held:
            _check_classes(folder / part, class_names)
        training, *others = (self._part(folder / part, class_names) for part in ("train", *held))
        return Dataset(
            self.name,
            tuple(class_names),
            training,
            test=others[-1],
            validation=others[0] if len(others) == 2 else None,
            pixel_scale=PixelScale.of(training.inputs),
            augmentation="crop-flip",
        )

    def _part(self, folder: Path, class_names: Sequence[str]) -> Examples:
        paths: list[Path] = []
        labels: list[int] = []
        for number, name in enumerate(class_names):
            found = sorted(path for path in (folder / name).iterdir() if path.suffix.lower() in PICTURE_ENDINGS)
            if not found:
                raise FileError(
                    f"{folder / name} must hold pictures ({', '.join(PICTURE_ENDINGS)}); there are none. Add some, or "
                    "remove the class from every part."
                )
            paths += found
            labels += [number] * len(found)
        return Examples(read_pictures(paths, size=self.size, shape=fit_square), torch.tensor(labels))


def _class_names(folder: Path) -> list[str]:
    names = sorted(path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    if not names:
        raise FileError(f"{folder} must hold a folder for every class; {_found(folder)}.")
    return names


def _check_classes(folder: Path, expected: Sequence[str]) -> None:
    got = _class_names(folder)
    if got != list(expected):
        differing = [f"{name!r} is only in {folder.name}" for name in got if name not in expected]
        differing += [f"{name!r} is only in train" for name in expected if name not in got]
        raise FileError(
            f"{folder} must have the same class folders as train; {'; '.join(differing[:4])}. Rename them, or add what "
            "is missing."
        )


def _found(folder: Path) -> str:
    if not folder.is_dir():
        return "it is no folder"
    names = sorted(path.name for path in folder.iterdir())
    return f"found {', '.join(names[:5])}{' ...' if len(names) > 5 else ''}" if names else "it is empty"
