"""MedMNIST: small medical images, from the collection's ``.npz`` files or any file in the same layout."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import final

import torch
from torch import Tensor

from calibrant.checks import check_known
from calibrant.datasets.dataset import Dataset, DatasetReader, PixelScale, RemoteFile, Samples
from calibrant.datasets.image_arrays import as_images, as_labels
from calibrant.datasets.publisher_files import FileLayout, check_file, find_files, missing_files
from calibrant.errors import FileError, InputError
from calibrant.npy import NumpyArchive, numpy_archive
from calibrant.paper import Paper
from calibrant.text import listed


@final
@dataclass(frozen=True)
class MedMNISTFlag:
    """One part of the collection."""

    digest: str
    class_names: tuple[str, ...]
    channels: int  # 1 is grey, 3 is colour


def _flag(digest: str, channels: int, class_names: str) -> MedMNISTFlag:
    return MedMNISTFlag(f"md5:{digest}", tuple(class_names.split("; ")), channels)


_ORGANS = (
    "bladder; femur-left; femur-right; heart; kidney-left; kidney-right; liver; lung-left; lung-right; pancreas; spleen"
)
MEDMNIST_FLAGS = {
    "pathmnist": _flag(
        "a8b06965200029087d5bd730944a56c1",
        3,
        "adipose; background; debris; lymphocytes; mucus; smooth muscle; normal colon mucosa; "
        "cancer-associated stroma; colorectal adenocarcinoma epithelium",
    ),
    "dermamnist": _flag(
        "0744692d530f8e62ec473284d019b0c7",
        3,
        "actinic keratoses and intraepithelial carcinoma; basal cell carcinoma; benign keratosis-like lesions; "
        "dermatofibroma; melanoma; melanocytic nevi; vascular lesions",
    ),
    "octmnist": _flag(
        "c68d92d5b585d8d81f7112f81e2d0842", 1, "choroidal neovascularization; diabetic macular edema; drusen; normal"
    ),
    "pneumoniamnist": _flag("28209eda62fecd6e6a2d98b1501bb15f", 1, "normal; pneumonia"),
    "retinamnist": _flag("bd4c0672f1bba3e3a89f0e4e876791e4", 3, "0; 1; 2; 3; 4"),
    "breastmnist": _flag("750601b1f35ba3300ea97c75c52ff8f6", 1, "malignant; normal, benign"),
    "bloodmnist": _flag(
        "7053d0359d879ad8a5505303e11de1dc",
        3,
        "basophil; eosinophil; erythroblast; immature granulocytes; lymphocyte; monocyte; neutrophil; platelet",
    ),
    "tissuemnist": _flag(
        "ebe78ee8b05294063de985d821c1c34b",
        1,
        "Collecting Duct, Connecting Tubule; Distal Convoluted Tubule; Glomerular endothelial cells; "
        "Interstitial endothelial cells; Leukocytes; Podocytes; Proximal Tubule Segments; Thick Ascending Limb",
    ),
    # The publisher has corrected three of these once; the digests are of the corrected files.
    "organamnist": _flag("68e3f8846a6bd62f0c9bf841c0d9eacc", 1, _ORGANS),
    "organcmnist": _flag("b9ceb9546e10131b32923c5bbeaea2b1", 1, _ORGANS),
    "organsmnist": _flag("9ab87b696fb54e2a387ebe992d6ed5f1", 1, _ORGANS),
}
_COLOUR = {1: "grey", 3: "colour"}
_PAPER = Paper("Yang et al.", 2023,
               "MedMNIST v2 - A large-scale lightweight benchmark for 2D and 3D biomedical image classification",
               "doi:10.1038/s41597-022-01721-8")  # fmt: skip
_HOMEPAGE = "https://zenodo.org/records/10519652"


def _named_flag(path: Path) -> str | None:
    """Return the flag in a file's name, which may end in the side of its images; None for another name."""
    match = re.fullmatch(r"([a-z]+)(?:_\d+)?\.npz", path.name)
    return match[1] if match and match[1] in MEDMNIST_FLAGS else None


def _remote(flag: str) -> RemoteFile:
    return RemoteFile(f"{_HOMEPAGE}/files/{flag}.npz?download=1", MEDMNIST_FLAGS[flag].digest)


def _read(reader: DatasetReader, flag: str, folder: Path, *, checked: bool) -> Dataset:
    name = f"{flag}.npz"
    path = folder if folder.is_file() else find_files(reader, folder, [FileLayout((name,))]).paths[name]
    # Some parts have the same shape and labels, and differ only in the meaning of their classes.
    if (named := _named_flag(path)) not in {None, flag}:
        raise FileError(
            f"{path} must be {flag}; by its name it is {named}. Read it as medmnist(flag={named}), or, if it is your "
            "own file, give it another name."
        )
    if checked and path.name == name:
        check_file(path, digest=MEDMNIST_FLAGS[flag].digest)
    with numpy_archive(path) as archive:
        training, validation, test = (_part(archive, part, path) for part in ("train", "val", "test"))
    labels = torch.cat([part.labels.unique() for part in (training, validation, test)]).unique()
    _check_flag(path, flag, labels, training.inputs.shape[1])
    class_names, scale = MEDMNIST_FLAGS[flag].class_names, PixelScale.of(training.tensor)
    return Dataset(flag, class_names, training, test, validation, pixel_scale=scale, augmentation="crop-flip")


def _part(archive: NumpyArchive, part: str, path: Path) -> Samples:
    names = f"{part}_images", f"{part}_labels"
    if absent := [name for name in names if name not in archive.names]:
        raise FileError(
            f"{path} must hold train_images, train_labels, val_..., test_...; it lacks {', '.join(absent)} and has "
            f"{', '.join(archive.names) or 'nothing'}."
        )
    images, labels = archive.read(names)
    if labels.ndim == 2 and labels.shape[1] > 1:
        raise FileError(
            f"{path}: {names[1]} must give every image one label (n x 1); got {labels.shape[1]} labels at once, as in "
            "ChestMNIST. Such data have no classes of which one is right."
        )
    pixels = as_images(images, where=f"{path}: {names[0]}", layout="channels_last")
    return Samples(pixels, as_labels(labels.reshape(-1), len(pixels), where=f"{path}: {names[1]}"))


def _check_flag(path: Path, flag: str, labels: Tensor, channels: int) -> None:
    """Check the classes: a file of another part would train well, under the wrong names of its classes."""
    fitting = [
        name
        for name, part in MEDMNIST_FLAGS.items()
        if part.channels == channels and torch.equal(labels, torch.arange(len(part.class_names)))
    ]
    if flag in fitting:
        return
    expected = MEDMNIST_FLAGS[flag]
    advice = "No part of the collection is like that: check that no class is missing and that they count from 0."
    if fitting:
        advice = f"Read it as what it is: {' or '.join(f'medmnist(flag={name})' for name in fitting)}."
    raise FileError(
        f"{path} must have the classes of {flag}, labels 0 to {len(expected.class_names) - 1}, and "
        f"{_COLOUR[expected.channels]} images; got labels {listed(labels.tolist(), 12)} and {_COLOUR[channels]} "
        f"images. {advice}"
    )


_COUNTS = [len(part.class_names) for part in MEDMNIST_FLAGS.values()]
_MANY_LABELS = "chestmnist gives it any of fourteen at once"


@final
@dataclass(frozen=True)
class MedMNIST(DatasetReader):
    """One part of the MedMNIST collection, with the publisher's own training, validation and test parts.

    Reads ``<flag>.npz``. A path to an ``.npz`` file of another name, such as one with larger images or with another
    division, is read too: it must have the layout and all of the part's classes, but no digest is known for it. Parts
    with as many classes and the same channels cannot be distinguished by their content: the flag must then be right.
    ChestMNIST gives an image several labels at once, and the 3D parts are not images; neither can be read.

    Args:
        flag: Name of the part. None goes by the file's name (``pathmnist.npz``, ``pathmnist_64.npz``); in a folder, by
            the name of the only such file.
    """

    name = "medmnist"
    title = "MedMNIST"
    n_classes = (min(_COUNTS), max(_COUNTS))
    why_no_remote = "it is a collection, and a part must be named, as in medmnist(flag=bloodmnist)"
    paper = _PAPER
    homepage = _HOMEPAGE

    flag: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
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
        if self.flag is None and not path.is_file():
            path = self._only_file(path)
        flag = self.flag or _named_flag(path)
        if flag is None:
            is_multi_label = path.name.startswith("chestmnist")
            several = f" A part must give every image one label; {_MANY_LABELS}." if is_multi_label else ""
            raise FileError(
                f"flag must be given for a file named {path.name}; one of {', '.join(MEDMNIST_FLAGS)}. Write, for "
                f"blood cells, medmnist(flag=bloodmnist).{several}"
            )
        return _read(self, flag, path, checked=checked)

    def _only_file(self, folder: Path) -> Path:
        """Return the only file of the folder that is named after a part."""
        files = sorted(path for path in folder.glob("*.npz") if _named_flag(path) and path.is_file())
        if not files:
            raise missing_files(self, folder, "<flag>.npz, such as pathmnist.npz,", [])
        if len(files) > 1:
            raise FileError(
                f"flag must be given for a folder with several parts; {folder} holds "
                f"{', '.join(path.name for path in files)}. Write medmnist(flag={_named_flag(files[0])}), or name the "
                "file."
            )
        return files[0]


@final
@dataclass(frozen=True)
class BloodMNIST(DatasetReader):
    """17,092 blood cells under the microscope, 28 x 28 pixels in colour, eight kinds; 1,712 validate and 3,421 test.

    As ``MedMNIST("bloodmnist")``. Training and test show cells of the same few people.
    """

    name = "bloodmnist"
    title = "BloodMNIST"
    n_classes = len(MEDMNIST_FLAGS["bloodmnist"].class_names)
    paper = _PAPER
    homepage = _HOMEPAGE
    remote = (_remote("bloodmnist"),)

    def read(self, folder: Path, *, checked: bool = True) -> Dataset:
        return _read(self, "bloodmnist", Path(folder), checked=checked)
