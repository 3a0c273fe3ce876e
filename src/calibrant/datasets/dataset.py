"""Data sets as tensors: inputs, labels and scaling; the interface of their readers; and their splits."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal, TypeAlias, final
from urllib.parse import urlsplit

import torch
from torch import Tensor

from calibrant.checks import Finite, Positive, check_known, check_labels, check_options, check_same_length, check_seed
from calibrant.datasets.pictures import Pictures
from calibrant.errors import InputError, warn
from calibrant.paper import Paper

Augmentation: TypeAlias = Literal["none", "crop", "crop-flip", "resized-crop-flip"]


@final
@dataclass(frozen=True, eq=False)
class Samples:
    """Inputs with their labels: images as stored, in memory or in files, or texts as numbered words."""

    # (n, c, h, w) uint8, or (n, length) int64 word numbers, 0 after the end of the text
    inputs: Tensor | Pictures
    labels: Tensor  # (n,) int64

    def __post_init__(self) -> None:
        if isinstance(self.inputs, Tensor):
            check_same_length(self.inputs, "inputs", self.labels, "labels")

    @property
    def tensor(self) -> Tensor:
        """The inputs in memory; pictures in files are read."""
        return self.inputs.read_all() if isinstance(self.inputs, Pictures) else self.inputs

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, rows: Tensor | slice) -> "Samples":
        return Samples(self.inputs[rows], self.labels[rows])


@final
@dataclass(frozen=True)
class PixelScale:
    """Scale from stored pixels to network inputs: (pixel / peak - mean) / std in each channel."""

    mean: tuple[Finite, ...]
    std: tuple[Positive, ...]
    peak: Positive = 255

    @classmethod
    def of(cls, images: Tensor, *, peak: int = 255) -> "PixelScale":
        """Return the scale that gives these images, (n, c, h, w), mean 0 and deviation 1 in each channel."""
        # Counts of the 256 values: the values in float64 would take eight times the memory of the images.
        values = torch.arange(256, dtype=torch.float64) / peak
        means, deviations = [], []
        for channel in range(images.shape[1]):
            blocks = (block[:, channel].flatten() for block in images.split(10_000))
            counts = torch.stack([torch.bincount(block, minlength=256) for block in blocks]).sum(0).double()
            mean = counts @ values / counts.sum()
            means.append(round(float(mean), 4))
            spread = (counts @ (values - mean) ** 2 / (counts.sum() - 1).clamp(min=1)).sqrt()
            deviations.append(max(round(float(spread), 4), 1e-4))
        return cls(tuple(means), tuple(deviations), peak)


@final
@dataclass(frozen=True, eq=False)
class Dataset:
    """A data set in the parts that its publisher defines."""

    name: str
    class_names: tuple[str, ...]
    training: Samples
    test: Samples
    validation: Samples | None = None  # if the publisher defines one
    pixel_scale: PixelScale | None = None  # None for texts
    augmentation: Augmentation = "none"  # the usual one
    n_words: int | None = None  # for texts: word numbers are 0 (no word) to n_words - 1

    def __post_init__(self) -> None:
        for part in filter(None, (self.training, self.test, self.validation)):
            check_labels(part.labels, len(self.class_names))
            if part.inputs.shape[1:] != self.training.inputs.shape[1:]:
                raise InputError(
                    f"all parts of {self.name} must have inputs of one shape; got "
                    f"{tuple(part.inputs.shape[1:])} beside {tuple(self.training.inputs.shape[1:])}."
                )

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return len(self.class_names)

    @property
    def are_files(self) -> bool:
        """Whether the training samples are pictures that are read in batches."""
        return isinstance(self.training.inputs, Pictures)


@final
@dataclass(frozen=True)
class RemoteFile:
    """A file that the publisher offers."""

    url: str
    digest: str  # sha256:... or md5:...
    size: int | None = None  # bytes, if known
    unpack: bool = False  # whether it is a .zip archive to unpack after the download; others are read packed

    @property
    def name(self) -> str:
        """Name of the file on disk."""
        return urlsplit(self.url).path.rsplit("/", 1)[-1]


class DatasetReader(ABC):
    """Reads one data set from the files of its publisher; concrete ones are frozen dataclasses of their options."""

    name: ClassVar[str]  # key of the catalogue and of the command line
    title: ClassVar[str]
    n_classes: ClassVar[int | tuple[int, int] | None]  # (fewest, most) of a collection; None if the files decide
    is_embedded: ClassVar[bool] = False  # whether the data are shipped with the package
    why_no_remote: ClassVar[str] = "it has no stable address"  # shown if there are no files to download
    paper: ClassVar[Paper]
    homepage: ClassVar[str]  # where the files can be downloaded by hand

    def __post_init__(self) -> None:
        check_options(self)

    @property
    @abstractmethod
    def remote(self) -> tuple[RemoteFile, ...]:
        """Files to download; empty if there is no stable address. May be a class attribute."""

    @abstractmethod
    def read(self, folder: Path, *, checked: bool = True) -> Dataset:
        """Read the data set.

        Args:
            folder: Folder of the files, or the one file or archive itself.
            checked: Whether the files must be the published ones, to the byte, and not only of their layout.

        Raises:
            FileError: If a file is missing, cut short, of another layout, or not the published one.
        """


@final
@dataclass(frozen=True, eq=False)
class Split:
    """A data set divided for a study of calibration."""

    training: Samples
    calibration: Samples
    test: Samples
    meta: Samples | None  # for methods that tune their loss during training


_SPLITS = {
    # Neural Clamping and Rethinking Calibration; the 9:1 of the other papers is the same.
    "holdout": "a random tenth of the training part calibrates, the rest of it trains; the test part tests",
    # Meta-regularisation.
    "8:1:1": "two random tenths of the training part tune the loss and calibrate, the rest trains; the test part tests",
    # Neural Clamping, on ImageNet.
    "half-test": "all of the training part trains; a random half of the test part calibrates, the other half tests",
    "official": "the training part trains, the publisher's validation part calibrates, the test part tests",
}


def all_splits() -> dict[str, str]:
    """Return the name and the description of every split."""
    return dict(_SPLITS)


def split_dataset(dataset: Dataset, protocol: str, *, seed: int) -> Split:
    """Divide a data set as a paper does; warn if a part has no sample of a class.

    ``holdout`` is the choice for a network of one's own: 45,000 / 5,000 on CIFAR. ``half-test`` is for a network that
    was trained on all training images, as public ones are; it leaves half of the test part for testing. ``official``
    takes the validation part that the publisher defines. ``8:1:1`` holds out a second part for meta-learning.

    Args:
        dataset: The data set to divide.
        protocol: One of :func:`all_splits`.
        seed: Random seed of the split; ``official`` ignores it.

    Example:
        >>> from calibrant.datasets.digits import DigitsReader
        >>> split = split_dataset(DigitsReader().read(), "holdout", seed=0)
        >>> len(split.training), len(split.calibration), len(split.test)
        (1168, 129, 500)
    """
    check_known(protocol, _SPLITS, "protocol")
    generator = torch.Generator().manual_seed(check_seed(seed))
    training, calibration, test, meta = dataset.training, dataset.validation, dataset.test, None
    if protocol == "holdout":
        calibration, training = _divide(training, (1,), generator)
    elif protocol == "8:1:1":
        meta, calibration, training = _divide(training, (1, 1), generator)
    elif protocol == "half-test":
        calibration, test = _divide(test, (5,), generator)
    elif calibration is None:
        raise InputError(
            f"the protocol 'official' needs a validation part of the publisher's own; {dataset.name} has none. Use "
            "'holdout', or 'half-test' for a network that was trained on all of the training part."
        )
    assert calibration is not None
    parts = {"training": training, "calibration": calibration, "test": test} | ({} if meta is None else {"meta": meta})
    for name, part in parts.items():
        _check_part(part, name, dataset, protocol)
    return Split(training, calibration, test, meta)


def _divide(samples: Samples, tenths: tuple[int, ...], generator: torch.Generator) -> tuple[Samples, ...]:
    """Draw disjoint random parts of so many tenths, then the rest; each keeps the order of the samples."""
    n = len(samples)
    sizes = [n * share // 10 for share in tenths]
    order = torch.randperm(n, generator=generator)
    return tuple(samples[rows.sort().values] for rows in order.split([*sizes, n - sum(sizes)]))


def _check_part(part: Samples, name: str, dataset: Dataset, protocol: str) -> None:
    if not len(part):
        raise InputError(
            f"every part of a split must have samples; the {name} part of {dataset.name} divided by {protocol!r} has "
            "none. Choose another protocol, or more data."
        )
    absent = (torch.bincount(part.labels, minlength=dataset.n_classes) == 0).nonzero()[:, 0]
    if len(absent):
        first = dataset.class_names[int(absent[0])]
        warn(
            f"the {name} part of {dataset.name} divided by {protocol!r} ({len(part):,} samples) lacks {len(absent)} of "
            f"{dataset.n_classes} classes, the first of them {first!r}: nothing can be learned or measured about them."
        )
