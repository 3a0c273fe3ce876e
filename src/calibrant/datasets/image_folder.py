"""Folders of pictures: one folder a class, in memory or read in batches; ImageNet and Tiny-ImageNet."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated, final

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset as TorchDataset

from calibrant.checks import AtLeastOne, check_at_least, check_positive, check_real_number, expression_of
from calibrant.datasets.dataset import Dataset, DatasetReader, PixelScale, RemoteFile, Samples
from calibrant.datasets.pictures import Pictures, Shape, fit_square, picture_names, read_pictures, same_size, unreadable
from calibrant.datasets.publisher_files import UNCHECKED, missing_files
from calibrant.errors import FileError, reading
from calibrant.paper import Paper

_IMAGENET = Paper(
    "Deng et al.", 2009, "ImageNet: A Large-Scale Hierarchical Image Database", "doi:10.1109/CVPR.2009.5206848"
)
# Of the pixels of ImageNet, in 0..1.
_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@final
@dataclass(frozen=True)
class ImageFolder(DatasetReader):
    """Pictures in ``train/<class>/`` and ``test/<class>/`` (or ``val/<class>/``), as ImageNet is laid out.

    If both ``val`` and ``test`` exist, ``val`` is the validation part; a single one is the test part. Classes are
    numbered in alphabetical order. The largest square in the middle of every picture is resized to ``size`` pixels, in
    colour; the edges of a long picture are lost.

    Args:
        size: Side of the images, in pixels.
    """

    name = "image_folder"
    title = "Folders of pictures"
    n_classes = None  # as many as there are folders
    paper = _IMAGENET
    homepage = "https://image-net.org"
    remote = ()

    size: AtLeastOne = 64

    def read(self, folder: Path, *, checked: bool = True) -> Dataset:
        del checked  # no published files to compare with
        read = partial(read_class_folders, size=self.size)
        names, training, test, validation = _parts(self, Path(folder), read)
        scale = PixelScale.of(training.tensor)
        return Dataset(expression_of(self), names, training, test, validation, scale, augmentation="crop-flip")


@final
@dataclass(frozen=True)
class LargeImageFolder(DatasetReader):
    """Pictures as those of ``image_folder``, which stay in their files: data that do not fit into memory.

    They are read in batches. Networks are trained on random parts of them (``resized-crop-flip``), and evaluated on the
    middle: of the largest square the share ``crop`` of its side, resized to ``size`` pixels. The scale is that of
    ImageNet, whatever the pictures.

    Args:
        size: Side of the images, in pixels.
        crop: Share that is kept of the side of the largest square in the middle of a picture.
    """

    name = "large_image_folder"
    title = "Folders of large pictures"
    n_classes = None
    paper = _IMAGENET
    homepage = "https://image-net.org"
    remote = ()

    size: AtLeastOne = 224
    crop: Annotated[float, partial(check_real_number, least=0.01, most=1)] = 0.875

    def read(self, folder: Path, *, checked: bool = True) -> Dataset:
        del checked  # no published files to compare with
        read = partial(pictures_by_class, size=self.size, crop=self.crop)
        name, scale = expression_of(self), PixelScale(_MEAN, _STD)
        return Dataset(name, *_parts(self, Path(folder), read), scale, augmentation="resized-crop-flip")


_IMAGENET_COUNTS = (1000, 1_281_167, 50_000)


@final
@dataclass(frozen=True)
class ImageNet(DatasetReader):
    """1,281,167 photographs in a thousand classes, and 50,000 of the validation part, which test; read in batches.

    Reads ``train/<wnid>/`` and ``val/<wnid>/``, in the folder or in ``imagenet`` inside it. The publisher's archive of
    the validation part has no folders: sort its pictures into those of their classes first. Classes are numbered in the
    order of their WordNet names. Only the counts are checked, as folders of JPEG files have no digest. Networks are
    trained and evaluated as with ``large_image_folder``.
    """

    name = "imagenet"
    title = "ImageNet (ILSVRC 2012)"
    n_classes = 1000
    why_no_remote = "its publisher asks for a registration"
    paper = _IMAGENET
    homepage = "https://image-net.org/download.php"
    remote = ()

    def read(self, folder: Path, *, checked: bool = True) -> Dataset:
        folder = Path(folder)
        root = folder if (folder / "train").is_dir() else folder / self.name
        if lacking := [part for part in ("train", "val") if not (root / part).is_dir()]:
            raise missing_files(self, folder, "train/<wnid> and val/<wnid>, also inside imagenet", lacking)
        dataset = LargeImageFolder().read(root)
        if checked:
            _check_counts(root, (dataset.n_classes, len(dataset.training), len(dataset.test)), _IMAGENET_COUNTS)
        return replace(dataset, name=self.name)


def _check_counts(root: Path, got: tuple[int, int, int], published: tuple[int, int, int]) -> None:
    """Check the numbers of classes, and of training and validation pictures: folders of JPEG files have no digest."""
    if got != published:
        wanted = f"{published[0]:,} classes, {published[1]:,} training and {published[2]:,} validation pictures"
        raise FileError(f"{root} must hold {wanted}; got {got[0]:,}, {got[1]:,} and {got[2]:,}. {UNCHECKED}")


def _parts(
    reader: DatasetReader, folder: Path, read: Callable[..., Samples]
) -> tuple[tuple[str, ...], Samples, Samples, Samples | None]:
    """Return the classes, and the samples that train, test and, if there are three parts, validate."""
    held = [part for part in ("val", "test") if (folder / part).is_dir()]
    if not held or not (folder / "train").is_dir():
        raise FileError(
            f"{reader.name} needs folders train/<class>/ and test/<class>/ (or val/<class>/) in {folder}; "
            f"{_listing(folder)}. Move the pictures so, one folder a class."
        )
    class_names = _class_names(folder / "train")
    for part in held:
        _check_classes(folder / part, class_names)
    training, *others = (read(folder / part, class_names=class_names) for part in ("train", *held))
    return tuple(class_names), training, others[-1], others[0] if len(others) == 2 else None


def pictures_by_class(
    folder: Path, *, size: int, crop: float, class_names: Sequence[str] = (), n_classes: int | None = None
) -> Samples:
    """Return the pictures of :func:`read_class_folders`, cropped to a share of their side, in their files."""
    names, labels = list[str](), list[int]()
    for number, held in _numbered(folder, class_names, n_classes).items():
        own = picture_names(held)
        names += [f"{held.name}/{name}" for name in own]
        labels += [number] * len(own)
    return Samples(Pictures(folder, names, size=size, crop=crop), torch.tensor(labels))


def read_class_folders(
    folder: Path, *, size: int, class_names: Sequence[str] = (), n_classes: int | None = None
) -> Samples:
    """Read pictures in a folder for each class, named as the classes are or by their numbers, as in ImageNet-v2.

    There need not be a folder for every class. ``size`` is the side of the images, in pixels: of the largest square in
    the middle of a picture. ``class_names`` are those of the network, in their order, and ``n_classes`` is how many
    numbers there are, where the folders have numbers.
    """
    return _by_class(_numbered(folder, class_names, n_classes), size, fit_square)


def _numbered(folder: Path, class_names: Sequence[str], n_classes: int | None) -> dict[int, Path]:
    """Return the folders in a folder by the number of their class."""
    names, known = _class_names(folder), list(class_names)
    strange = [name for name in names if name not in known]
    if not strange:
        return {known.index(name): folder / name for name in names}
    most = len(known) if n_classes is None else n_classes
    if not all(name.isascii() and name.isdigit() and int(name) < (most or int(name) + 1) for name in names):
        held = f"{', '.join(known[:3])}, …" if known else "not given"
        raise FileError(
            f"the folders in {folder} must be named as the classes of the network ({held}), or by their numbers "
            f"below {most or 'their count'}; {strange[0]!r} is neither. Rename it."
        )
    return {int(name): folder / name for name in sorted(names, key=int)}


@final
class PictureDataset(TorchDataset[tuple[Tensor, int]]):
    """Pictures in a folder for each class, each read when it is asked for: data that do not fit into memory.

    An item is an image, (3, size, size) float32 as the network takes it, and its class. Neural Clamping, ConfidNet and
    a DataLoader take it; a published network of ImageNet was evaluated on images like these.

    Args:
        folder: Folder that holds those of the classes; without ``class_names`` they are numbered in alphabetical order.
        size: Side of the images, in pixels.
        crop: Share that is kept of the side of the largest square in the middle of a picture.
        mean: Subtracted from pixels in 0..1, a number for each channel; those of ImageNet unless given.
        std: Divides the difference.
        class_names: Those of the network, in their order, if a folder is missing or the order is another.

    Example:
        >>> import tempfile
        >>> from PIL import Image
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Path(folder, "goldfish").mkdir()
        ...     Image.new("RGB", (500, 375)).save(Path(folder, "goldfish", "1.png"))
        ...     image, label = PictureDataset(folder)[0]
        >>> image.shape, label
        (torch.Size([3, 224, 224]), 0)
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        size: int = 224,
        crop: float = 0.875,
        mean: tuple[float, float, float] = _MEAN,
        std: tuple[float, float, float] = _STD,
        class_names: Sequence[str] = (),
    ) -> None:
        self.size = check_at_least(size, 1, "size")
        self.crop = check_real_number(crop, "crop", least=0.01, most=1)
        for deviation in std:
            check_positive(deviation, "std")
        self.mean, self.std = (torch.tensor(values).view(3, 1, 1) for values in (mean, std))
        self.class_names = tuple(class_names or _class_names(Path(folder)))
        samples = pictures_by_class(Path(folder), size=self.size, crop=self.crop, class_names=self.class_names)
        assert isinstance(samples.inputs, Pictures)
        self._pictures, self.labels = samples.inputs, samples.labels.tolist()

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, number: int) -> tuple[Tensor, int]:
        try:
            pixels = self._pictures.read(number)
        except FileError as error:
            raise unreadable([str(error)]) from error
        image = torch.from_numpy(pixels.astype(np.float32)).div_(255)
        return (image - self.mean) / self.std, self.labels[number]


def _by_class(folders: Mapping[int, Path], size: int, shape: Shape) -> Samples:
    """Read the pictures of folders, by the number of their class."""
    held = {number: [folder / name for name in picture_names(folder)] for number, folder in folders.items()}
    labels = [number for number, paths in held.items() for _ in paths]
    return Samples(read_pictures(list(chain(*held.values())), size=size, shape=shape), torch.tensor(labels))


def _class_names(folder: Path) -> list[str]:
    held = folder.iterdir() if folder.is_dir() else ()
    names = sorted(path.name for path in held if path.is_dir() and path.name[0] != ".")
    if not names:
        raise FileError(f"{folder} must hold a folder for every class; {_listing(folder)}.")
    return names


def _check_classes(folder: Path, expected: Sequence[str]) -> None:
    got = _class_names(folder)
    if got != list(expected):
        differing = [f"{name!r} is only in {folder.name}" for name in got if name not in expected]
        differing += [f"{name!r} is only in train" for name in expected if name not in got]
        problem = "; ".join(differing[:4])
        raise FileError(f"{folder} must have the same class folders as train; {problem}. Rename or add the others.")


def _listing(folder: Path) -> str:
    if not folder.is_dir():
        return "it is no folder"
    names = sorted(path.name for path in folder.iterdir())
    return f"found {', '.join(names[:5])}{' ...' if len(names) > 5 else ''}" if names else "it is empty"


_FOLDER = "tiny-imagenet-200"
_SIDE = 64
_TINY_COUNTS = (200, 100_000, 10_000)


@final
@dataclass(frozen=True)
class TinyImageNet(DatasetReader):
    """110,000 colour photographs of 64 x 64 pixels in two hundred classes; the 10,000 of the "val" folder test.

    Reads ``wnids.txt``, ``words.txt``, ``train`` and ``val`` as ``tiny-imagenet-200.zip`` unpacks them. The labels of
    the "test" folder were never published, so the validation images test, here as in the papers: a network whose
    settings were chosen on them looks better than it is. Classes are numbered in the order of their WordNet names.
    Only the counts are checked, as a folder of JPEG files has no digest.
    """

    name = "tiny_imagenet"
    title = "Tiny-ImageNet"
    n_classes = 200
    paper = Paper(
        "Le & Yang", 2015, "Tiny ImageNet Visual Recognition Challenge", "Stanford University, course CS 231N"
    )
    homepage = "http://cs231n.stanford.edu/tiny-imagenet-200.zip"
    remote = (RemoteFile(homepage, "md5:90528d7ca1a48142e341f4ef8d21d0de", 248_100_043, unpack=True),)

    def read(self, folder: Path, *, checked: bool = True) -> Dataset:
        folder = Path(folder)
        root = folder if (folder / "wnids.txt").is_file() else folder / _FOLDER
        needed = ("wnids.txt", "words.txt", "train", "val/val_annotations.txt")
        if lacking := [name for name in needed if not (root / name).exists()]:
            raise missing_files(self, folder, f"{', '.join(needed)} (from {_FOLDER}.zip, unpacked)", lacking)
        wnids = sorted(_lines(root / "wnids.txt"))
        words = dict(line.split("\t", 1) for line in _lines(root / "words.txt") if "\t" in line)
        numbers = {wnid: number for number, wnid in enumerate(wnids)}
        folders = {number: root / "train" / wnid / "images" for wnid, number in numbers.items()}
        training = _by_class(folders, _SIDE, same_size)
        test = _validation(root, numbers)
        if checked:
            _check_counts(root, (len(wnids), len(training), len(test)), _TINY_COUNTS)
        names, scale = tuple(words.get(wnid, wnid).split(",")[0] for wnid in wnids), PixelScale.of(training.tensor)
        return Dataset(self.name, names, training, test, pixel_scale=scale, augmentation="crop-flip")


def _lines(path: Path) -> list[str]:
    with reading(path, "text file"):
        return [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def _validation(root: Path, numbers: dict[str, int]) -> Samples:
    listed = root / "val" / "val_annotations.txt"
    paths, labels = [], []
    for row, line in enumerate(_lines(listed), start=1):
        name, wnid = (*line.split("\t"), "")[:2]
        if wnid not in numbers or Path(name).name != name:
            wanted = "a picture and a class of wnids.txt, with a tab between"
            raise FileError(f"{listed} must say in every line {wanted}; line {row} says {line[:60]!r}.")
        paths.append(root / "val" / "images" / name)
        labels.append(numbers[wnid])
    return Samples(read_pictures(paths, size=_SIDE, shape=same_size), torch.tensor(labels, dtype=torch.int64))
