"""Scores as they are given: probabilities and their zeros, one number per sample, or some for every pixel.

:mod:`calibrant.numerics.uniform_share` says which floors probabilities of exactly 0 meet.
"""

import math
import re
from os.path import commonprefix
from typing import Any, NamedTuple

import torch
from torch import Tensor

from calibrant.checks import as_tensor, check_finite, check_real, check_rows, check_unit_interval
from calibrant.errors import MULTI_LABEL, Argument, InputError, Row, warn
from calibrant.labels import as_words, class_numbers, whole_number, words_of
from calibrant.numerics.softmax import working_dtype
from calibrant.predictions.samples import check_rows_are_samples

__all__ = ["LABEL_FLOOR", "OF_CORRECTNESS", "PROB_FLOOR", "SUM_TOLERANCE", "ZeroCells", "column_names", "needs_floor"]

# Given probabilities below this are read as this in every type: float16 underflows far above it, float64 far below,
# and the difference carries no information.
PROB_FLOOR = 1e-30
# The log-loss of given probabilities counts a label's probability as this at least.
LABEL_FLOOR = 1e-15
OF_CORRECTNESS = ("wrong", "right")  # classes of a confidence in being right, which methods may take across 50 %
# Below this a probability is tiny: the calibration samples decide whether it needs a floor.
_TINY = 1e-12
_MANY = 1e-3  # share of zeros from which a floor is chosen

# How far a row of probabilities may be from one. Float16 rows of a thousand classes stay within it.
SUM_TOLERANCE = 2e-3
FEW = 10  # samples whose logits may sum to one, or be negative, by chance
NOT_RARE = 0.25  # share of a class that a model does not give less than one half for all samples
_SUM_RATIO = 1.2  # between the largest and the smallest sum of rows that rounding to digits explains
_NORMALISE = Argument("normalise", "True", is_literal=False)
_PREFIX = re.compile(r"(logits?|(log_?)?probs?|proba|probabilit(y|ies)|column)[_.]")  # "column_": polars' own names
_ONE_COLUMN = Argument("positive", "NAME", is_literal=False)
_AS_LOGITS = "If these are logits, pass them as logits."


class ZeroCells(NamedTuple):
    """Counts of given probabilities that are 0, or so small that they are read as :data:`PROB_FLOOR`."""

    cells: int  # probabilities that are 0, or below the floor
    of_cells: int  # all probabilities
    labels: int  # labels whose probability is 0: one makes the log-loss without a floor infinite
    floored_labels: int  # labels below LABEL_FLOOR, which the log-loss counts as that
    smallest: float  # the smallest probability that is not 0; NaN if all are

    def as_dict(self) -> dict[str, int | float]:
        """Return the counts and the two floors, for a report."""
        return self._asdict() | {"read_as": PROB_FLOOR, "label_floor": LABEL_FLOOR}


def count_zeros(logits: Tensor, labels: Tensor) -> ZeroCells:
    """Count the probabilities that are 0, from their logarithms, (n, k), with a floor."""
    # A little above the floor's logarithm, because that has been rounded.
    least, label_least = math.log(PROB_FLOOR) + 1e-4, math.log(LABEL_FLOOR)
    of_labels, zeros, cells = logits.gather(1, labels[:, None]), int((logits <= least).sum()), logits.numel()
    zero_labels, floored_labels = int((of_labels <= least).sum()), int((of_labels < label_least).sum())
    positive = torch.where(logits > least, logits, math.inf).amin()
    return ZeroCells(zeros, cells, zero_labels, floored_labels, float(positive.exp()) if zeros < cells else math.nan)


def needs_floor(zeros: float, cells: float, lowest: float, lowest_label: float) -> bool:
    """Return whether fits need a floor, given how many of all probabilities are 0, and the logarithms of the lowest."""
    return lowest < math.log(_TINY) and (zeros >= _MANY * cells or lowest_label < math.log(_TINY))


def by_columns(scores: Any, labels: Any) -> tuple[Any, tuple[str, ...] | None]:
    """Return the labels and the class names that the columns of a data frame give; without them, None for the names.

    Columns are called as their classes, also after ``prob_`` or the like; 0, 1, ... are no names. Labels are looked up
    among the names, and among numbers other than 0, 1, ... too; numbers beside words are class numbers.
    """
    full, names = column_names(scores)
    if names is None:
        return labels, None
    words = None if isinstance(labels, Tensor) else as_words(labels)
    if words is None and None not in map(whole_number, names):
        words = words_of(as_tensor(labels, "labels"), "labels")
    return labels if words is None else class_numbers(words, names, others=full), names


def column_names(scores: Any) -> tuple[list[str], tuple[str, ...] | None]:
    """Return the names of the columns of a data frame, and those of classes in them; None if there are none."""
    columns = getattr(scores, "column_names", None) or getattr(scores, "columns", None)  # pyarrow; pandas, polars
    full = [] if columns is None else [str(name) for name in columns]
    prefix = _PREFIX.match(commonprefix(full))  # noqa: RUF071 - by character is meant
    names = tuple(name.removeprefix(prefix[0] if prefix else "") for name in full)
    return full, None if len(full) < 2 or [*map(whole_number, names)] == [*range(len(full))] else names


def read_probs(probs: Any, labels: Any, *, normalise: bool) -> tuple[Tensor, Tensor]:
    """Return log-probabilities with a floor and probabilities, (n, k); an InputError unless every row sums to one."""
    probs = as_tensor(probs, "probs")
    if probs.ndim != 2 or probs.shape[1] < 2:
        raise InputError(
            f"probs must have shape (n, k) with at least two classes; got {tuple(probs.shape)}. For the probability p "
            "of the second class alone, use from_binary_probs(p, labels); of a file: ",
            *(_ONE_COLUMN, "."),
        )
    check_rows(probs.shape[0])
    check_rows_are_samples(probs, labels)
    _check_as_many_labels(probs, labels)
    probs = check_real(probs, "probs")
    if normalise:
        probs = _normalised(probs)
    else:
        check_unit_interval(probs, "probs", _AS_LOGITS, " For percentages, or counts, pass ", _NORMALISE, ".")
    sums = probs.sum(dim=1, dtype=torch.float64)
    off = ((sums - 1).abs() > SUM_TOLERANCE).nonzero()
    if off.numel():
        row = int(off[0])
        others = f", one of {off.numel():,} such rows" if off.numel() > 1 else ""
        raise InputError(
            f"each row of probs must sum to one (within {SUM_TOLERANCE}); got {float(sums[row]):.6g} at ",
            *(Row(row), f"{others}. If they were rounded, pass "),
            *(_NORMALISE, "; if they are logits, pass them as logits; if classes are missing, add them. "),
            *MULTI_LABEL,
        )
    probs = probs.to(working_dtype(probs))
    return probs.clamp(min=PROB_FLOOR).log(), probs


def _check_as_many_labels(probs: Tensor, labels: Any) -> None:
    """Check that there is a label for each row of probabilities, before they are called logits."""
    if hasattr(labels, "__len__") and getattr(labels, "ndim", 1) == 1 and len(labels) != len(probs):
        raise InputError(f"probs and labels must have the same number of rows; got {len(probs)} and {len(labels)}.")


def look_like_probs(logits: Tensor) -> bool:
    """Return whether numbers in 0..1, (n, k), are probabilities by their sums; not if they are few, or all 0 or 1."""
    off = (logits.sum(dim=1, dtype=torch.float64) - 1).abs().max()
    return len(logits) >= FEW and bool(off <= SUM_TOLERANCE and (logits > 0).sum() > len(logits))


def _normalised(probs: Tensor) -> Tensor:
    """Return every row divided by its sum; a warning if the sums are too different for rounding."""
    check_finite(probs, "probs")
    sums = probs.sum(dim=1, dtype=torch.float64)
    low, high = float(sums.min()), float(sums.max())
    if probs.min() < 0 or low <= 0:
        what, row = ("at least 0", (probs < 0).any(1)) if probs.min() < 0 else ("not all 0 in a row", sums <= 0)
        first = Row(int(row.nonzero()[0]))
        raise InputError(f"probs must be {what} to be normalised; ", first, f" is not. {_AS_LOGITS}")
    if high > _SUM_RATIO * low:
        warn(
            f"The rows of probabilities summed to {low:.4g} up to {high:.4g} before each was divided by its sum, and "
            "rounding does not explain as much. Are scores of a class missing, or can a sample have several classes?"
        )
    return (probs / sums[:, None]).to(probs.dtype)


def read_binary_probs(given: Any, labels: Any) -> tuple[Tensor, Tensor]:
    """Return log-probabilities with a floor and probabilities, (n, 2), from those of class 1, (n,) or (n, 1)."""
    single = one_column(given, "probs")
    check_rows(len(single))
    _check_as_many_labels(single, labels)
    percent = Argument("percent", "True", is_literal=False)
    check_unit_interval(single, "probs", _AS_LOGITS, " Divide percentages by 100, or load them with ", percent, ".")
    p = single.to(working_dtype(single))
    log_probs = torch.stack([(-p).log1p(), p.log()], 1).clamp(min=math.log(PROB_FLOOR))
    return log_probs, torch.stack([1 - p, p], 1)


def one_column(given: Any, name: str) -> Tensor:
    """Return one number per sample, (n,) or (n, 1), as (n,)."""
    values = check_real(as_tensor(given, name), name)
    values = values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values
    if values.ndim != 1:
        raise InputError(f"binary {name} must have shape (n,) or (n, 1); got {tuple(values.shape)}.")
    return values


def dense_rows(logits: Any, labels: Any, *, ignore_index: int | None, class_axis: int) -> tuple[Tensor, Tensor]:
    """Return logits for every pixel or token, (n, k), and their labels, (n,), without those to leave out."""
    scores, given = as_tensor(logits, "logits"), as_tensor(labels, "labels")
    if not -scores.ndim <= class_axis < scores.ndim:
        raise InputError(f"class_axis must be an axis of the logits, {tuple(scores.shape)}; got {class_axis}.")
    rows = scores.movedim(class_axis, -1)
    if rows.shape[:-1] != given.shape:
        is_last = scores.ndim > 1 and scores.shape[:-1] == given.shape
        hint = " If the classes are the last axis, pass class_axis=-1." if is_last else ""
        raise InputError(
            f"labels must have the shape of the logits without the classes, {tuple(rows.shape[:-1])}; got "
            f"{tuple(given.shape)}.{hint}"
        )
    if ignore_index is None:
        ends = [number.item() for number in given.aminmax()] if given.numel() and given.dtype != torch.bool else []
        for stray in (end for end in ends if not 0 <= end < rows.shape[-1]):
            raise InputError(
                f"labels must lie in 0..{rows.shape[-1] - 1}; got {stray:g}. If it marks pixels or tokens to leave "
                f"out, pass ignore_index={stray:g}."
            )
        return rows.reshape(-1, rows.shape[-1]), given.reshape(-1)
    kept = given != ignore_index
    if not kept.any():
        raise InputError(f"labels must not all be ignore_index, {ignore_index}; got no other.")
    return rows[kept.to(rows.device)], given[kept]
