"""Who trains, who calibrates, who judges: the divisions of a data set that the papers use, by name.

Rows are drawn at random without regard to class, as in the papers, and every division keeps the parts disjoint: what
calibrates has not trained, and what judges has done neither.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from calibrant.checks import check_known, check_seed
from calibrant.datasets.dataset import Dataset, Examples
from calibrant.errors import CalibrantWarning, InputError

__all__ = ["Split", "all_splits", "split_dataset"]


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
        seed: Of the draw; ``official`` draws nothing.

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
        "all of the training part trains; a random half of the test part calibrates, the other half judges",
        _half_test,
    ),
    "official": _Rule(
        "the training part trains, the publisher's validation part calibrates, the test part judges", _official
    ),
}
