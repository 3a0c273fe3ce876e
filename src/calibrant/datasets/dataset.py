"""Data sets as tensors: inputs, labels and scaling; the interface of their readers; and their splits."""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal, TypeAlias, final
from urllib.parse import urlsplit

import torch
from torch import Tensor

from calibrant.checks import check_known, check_labels, check_same_length, check_seed
from calibrant.errors import CalibrantWarning, InputError
from calibrant.paper import Paper

__all__ = [
    "Augmentation",
    "Dataset",
    "DatasetReader",
    "Examples",
    "PixelScale",
    "RemoteFile",
    "Split",
    "all_splits",
    "split_dataset",
]

Augmentation: TypeAlias = Literal["none", "crop", "crop-flip"]


@final
@dataclass(frozen=True, eq=False)
class Examples:
    """Inputs and what they show: images as they were stored, or texts as numbered words."""

    inputs: Tensor  # (n, c, h, w) uint8, or (n, length) int64 words, 0 where the text has ended
    labels: Tensor  # (n,) int64

    def __post_init__(self) -> None:
        check_same_length(self.inputs, "inputs", self.labels, "labels")

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, rows: Tensor | slice) -> "Examples":
        return Examples(self.inputs[rows], self.labels[rows])


@final
@dataclass(frozen=True)
class PixelScale:
    """How stored pixels become network inputs: (pixel / peak - mean) / std, for each channel."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    peak: int = 255

    @classmethod
    def of(cls, images: Tensor, *, peak: int = 255) -> "PixelScale":
        """The scale that gives these images, (n, c, h, w), mean 0 and deviation 1 in each channel.

        Example:
            >>> PixelScale.of(torch.tensor([0, 255], dtype=torch.uint8).reshape(2, 1, 1, 1)).mean
            (0.5,)
        """
        # Counts of the 256 values, as the numbers themselves would take eight times the memory of the images.
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
    """A data set as its publisher divides it."""

    name: str
    class_names: tuple[str, ...]
    training: Examples
    test: Examples
    validation: Examples | None = None  # where the publisher sets one apart
    pixel_scale: PixelScale | None = None  # None for texts
    augmentation: Augmentation = "none"  # the usual one
    n_words: int | None = None  # of texts: numbers run from 0 (no word) to this, exclusive

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
        """How many classes there are."""
        return len(self.class_names)


@final
@dataclass(frozen=True)
class RemoteFile:
    """A file that the publisher offers, and how to know that it arrived whole.

    Args:
        url: Where it is.
        digest: What it must hash to, ``sha256:...`` or ``md5:...``.
        size: Its bytes, where they are known.
        unpack: Whether it must be unpacked to be read. Most archives are read as they are.

    Example:
        >>> RemoteFile("https://example.org/files/blood.npz?download=1", "md5:7053d0359d879ad8a5505303e11de1dc").name
        'blood.npz'
    """

    url: str
    digest: str
    size: int | None = None
    unpack: bool = False

    @property
    def name(self) -> str:
        """What the file is called on disk."""
        return urlsplit(self.url).path.rsplit("/", 1)[-1]


class DatasetReader(ABC):
    """Reads one data set from the files that its publisher gives out."""

    name: ClassVar[str]  # short: the catalogue's key and the word on the command line
    title: ClassVar[str]  # as people say it
    n_classes: ClassVar[int | tuple[int, int] | None]  # (fewest, most) of a collection; None where the files decide
    is_embedded: ClassVar[bool] = False  # whether the data come with the package: nothing to fetch, no folder to name
    why_no_remote: ClassVar[str] = "it has no stable address"  # said where there are no files to fetch
    paper: ClassVar[Paper]
    homepage: ClassVar[str]  # where a person gets the files

    @property
    @abstractmethod
    def remote(self) -> tuple[RemoteFile, ...]:
        """The files to fetch; none where no address is stable. A plain class variable will do."""

    @abstractmethod
    def read(self, folder: Path, *, checked: bool = True) -> Dataset:
        """Read the data set.

        Args:
            folder: Where the files lie, or the one file or archive itself.
            checked: Whether the files must be the published ones, to the byte. False reads a person's own files in the
                same layout; that the layout is right is checked all the same.

        Raises:
            FileError: If a file is missing, cut short, of another layout, or not the published one.
        """


@final
@dataclass(frozen=True, eq=False)
class Split:
    """A data set divided for a study of calibration."""

    training: Examples
    calibration: Examples
    test: Examples
    meta: Examples | None  # for methods that tune their loss while they train
    description: str


def all_splits() -> dict[str, str]:
    """Every named division, and what it does in words.

    Example:
        >>> all_splits()["holdout"]
        'a random tenth of the training part calibrates, the rest of it trains; the test part judges'
    """
    return {name: rule.title for name, rule in _RULES.items()}


def split_dataset(dataset: Dataset, protocol: str, *, seed: int) -> Split:
    """Divide a data set as a paper does.

    ``holdout`` is the choice for a network of one's own: 45,000 / 5,000 on CIFAR. ``half-test`` is for a network that
    was trained on all training images, as public ones are; half of the test part is then lost to judging. ``official``
    takes the validation part that the publisher set apart. ``8:1:1`` holds out a second part for meta-learning.

    Args:
        dataset: What to divide.
        protocol: One of :func:`all_splits`.
        seed: Random seed of the split; ``official`` has none.

    Raises:
        UnknownNameError: If there is no such division.
        InputError: If a part would be left without rows, or the publisher sets no validation part apart.

    Warns:
        CalibrantWarning: If a part lacks a class, which it then cannot learn or judge.

    Example:
        >>> from calibrant.datasets.digits import DigitsReader
        >>> split = split_dataset(DigitsReader().read(), "holdout", seed=0)
        >>> len(split.training), len(split.calibration), len(split.test)
        (1168, 129, 500)
    """
    check_known(protocol, _RULES, "protocol")
    seed = check_seed(seed)
    rule = _RULES[protocol]
    split = rule.divide(dataset, torch.Generator().manual_seed(seed), rule.title)
    parts = {"training": split.training, "calibration": split.calibration, "test": split.test, "meta": split.meta}
    for name, part in parts.items():
        if part is not None:
            _check_part(part, name, dataset, protocol)
    return split


def _check_part(part: Examples, name: str, dataset: Dataset, protocol: str) -> None:
    if not len(part):
        raise InputError(
            f"every part of a split must have rows; the {name} part of {dataset.name} divided by {protocol!r} has "
            "none. Choose another protocol, or more data."
        )
    absent = (torch.bincount(part.labels, minlength=dataset.n_classes) == 0).nonzero()[:, 0]
    if len(absent):
        first = dataset.class_names[int(absent[0])]
        warnings.warn(
            f"the {name} part of {dataset.name} divided by {protocol!r} ({len(part):,} rows) lacks {len(absent)} of "
            f"{dataset.n_classes} classes, the first of them {first!r}: nothing can be learned or judged of them.",
            CalibrantWarning,
            stacklevel=3,
        )


@dataclass(frozen=True)
class _Rule:
    """A named way to divide."""

    title: str
    divide: Callable[[Dataset, torch.Generator, str], Split]


def _holdout(dataset: Dataset, generator: torch.Generator, title: str) -> Split:
    held, rest = _drawn(len(dataset.training), (1,), generator)
    return Split(dataset.training[rest], dataset.training[held], dataset.test, None, title)


def _eight_one_one(dataset: Dataset, generator: torch.Generator, title: str) -> Split:
    meta, held, rest = _drawn(len(dataset.training), (1, 1), generator)
    return Split(dataset.training[rest], dataset.training[held], dataset.test, dataset.training[meta], title)


def _half_test(dataset: Dataset, generator: torch.Generator, title: str) -> Split:
    held, rest = _drawn(len(dataset.test), (5,), generator)
    return Split(dataset.training, dataset.test[held], dataset.test[rest], None, title)


def _official(dataset: Dataset, generator: torch.Generator, title: str) -> Split:
    del generator
    if dataset.validation is None:
        raise InputError(
            f"the protocol 'official' needs a validation part of the publisher's own; {dataset.name} has none. Use "
            "'holdout', or 'half-test' for a network that was trained on all of the training part."
        )
    return Split(dataset.training, dataset.validation, dataset.test, None, title)


def _drawn(n: int, tenths: tuple[int, ...], generator: torch.Generator) -> tuple[Tensor, ...]:
    """Disjoint random rows: so many tenths of them each, then those that are left; each in their own order."""
    sizes = [n * share // 10 for share in tenths]
    order = torch.randperm(n, generator=generator)
    return tuple(rows.sort().values for rows in order.split([*sizes, n - sum(sizes)]))


_RULES = {
    # Neural Clamping and Rethinking Calibration; the 9:1 of the other papers is the same.
    "holdout": _Rule(
        "a random tenth of the training part calibrates, the rest of it trains; the test part judges", _holdout
    ),
    # Meta-regularisation.
    "8:1:1": _Rule(
        "a random tenth of the training part tunes the loss and another calibrates, the rest trains; the test part "
        "judges",
        _eight_one_one,
    ),
    # Neural Clamping, on ImageNet.
    "half-test": _Rule(
        "all of the training part trains; a random half of the test part calibrates, the other half judges", _half_test
    ),
    "official": _Rule(
        "the training part trains, the publisher's validation part calibrates, the test part judges", _official
    ),
}
