"""Predictions of a classifier with their labels, and the top label alone: checked once, here."""

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, Self, TypedDict, TypeVar, final

import torch
from torch import Tensor

from calibrant.checks import (
    as_tensor,
    as_whole_numbers,
    check_finite,
    check_labels,
    check_real,
    check_rows,
    check_same_length,
    check_unit_interval,
    check_weights,
)
from calibrant.errors import Argument, InputError, warn
from calibrant.labels import as_words, class_numbers
from calibrant.numerics.softmax import TOP_LABEL, Normalised, SoftmaxRows, Wanted, working_dtype
from calibrant.numerics.uniform_share import choose_share, floored

# Samples in a block: what is kept per sample stays within a few megabytes, whatever the number of samples.
ROWS_AT_ONCE = 1 << 17
_GPU_ROWS_AT_ONCE = 1 << 22  # starting its kernels costs more than a block of the usual size
_FEWEST_ROWS = 256  # in a small block: products of matrices stay efficient


@final
@dataclass(frozen=True, eq=False)
class TopLabel:
    """Confidence of the predicted class, and whether it was right.

    Args:
        confidence: Shape (n,), in 0..1.
        correct: Shape (n,), bool (or 0 and 1 of an integer type).
        log_odds: Shape (n,); computed from the confidence unless given. Rankings use it, because it differs where
            float32 confidences have rounded to 1.0.
        weights: Shape (n,), how many samples each stands for; only ratios matter, 0 counts nothing. None: all alike.

    Example:
        >>> top = TopLabel([0.9, 0.8, 0.7], [True, True, False])
        >>> len(top), top.accuracy
        (3, 0.6666666666666666)
    """

    confidence: Tensor
    correct: Tensor
    log_odds: Tensor = field(default=None, repr=False)  # type: ignore[assignment]  # filled in below
    weights: Tensor | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        confidence = check_real(as_tensor(self.confidence, "confidence"), "confidence").double()
        correct = as_tensor(self.correct, "correct").to(confidence.device)
        if confidence.ndim != 1 or correct.ndim != 1:
            raise InputError(
                "confidence and correct must be one number a row, shape (n,); "
                f"got shapes {tuple(confidence.shape)} and {tuple(correct.shape)}."
            )
        check_same_length(confidence, "confidence", correct, "correct")
        check_rows(confidence.shape[0])
        check_unit_interval(confidence, "confidence")
        if correct.dtype != torch.bool:
            stray = ((correct != 0) & (correct != 1)).nonzero()
            if stray.numel():
                row = int(stray[0])
                raise InputError(f"correct must be true/false or 0/1; got {correct[row].item()} at row {row}.")
        if self.log_odds is None:
            # Not torch.logit, which rounds the last entries of an array differently, so that ties would break.
            log_odds = confidence.log() - (-confidence).log1p()
        else:
            log_odds = as_tensor(self.log_odds, "log_odds").to(confidence)
            check_same_length(confidence, "confidence", log_odds, "log_odds")
            if log_odds.ndim != 1 or log_odds.isnan().any():
                raise InputError("log_odds must be one number a row and not NaN, so that samples can be ranked by it.")
            off = ((log_odds.sigmoid() - confidence).abs() > 1e-3).nonzero()
            if off.numel():
                row = int(off[0])
                raise InputError(
                    f"log_odds must belong to the confidence; got {float(log_odds[row]):.4g} for "
                    f"{float(confidence[row]):.4g} at row {row}."
                )
        weights = None if self.weights is None else check_weights(self.weights, confidence)
        _set(self, confidence=confidence, correct=correct.to(torch.bool), log_odds=log_odds, weights=weights)

    @classmethod
    def _trusted(cls, confidence: Tensor, correct: Tensor, log_odds: Tensor, weights: Tensor | None) -> Self:
        """Build from checked columns."""
        made = object.__new__(cls)
        _set(made, confidence=confidence, correct=correct, log_odds=log_odds, weights=weights)
        return made

    @property
    def effective_size(self) -> float:
        """Number of samples without weights that know as much: Kish's (Σ w)² / Σ w²."""
        return len(self) if self.weights is None else float(effective_counts(self.weights).sum())

    def with_weights(self, weights: Any) -> Self:
        """Return the same samples with other weights, (n,), or with none."""
        checked = None if weights is None else check_weights(weights, self.confidence)
        return self._trusted(self.confidence, self.correct, self.log_odds, checked)

    @property
    def top(self) -> Self:
        """Return itself, so that a metric of the top label takes either record."""
        return self

    @property
    def accuracy(self) -> float:
        """Share of correct predictions, by weight where there are weights."""
        if self.weights is None:
            return float(self.correct.double().mean())
        return float(self.weights[self.correct].sum() / self.weights.sum())

    def __len__(self) -> int:
        return self.confidence.shape[0]

    def __getitem__(self, rows: slice | Tensor) -> Self:
        confidence = self.confidence[_check_selects_samples(rows)]
        check_rows(len(confidence))
        return self._trusted(confidence, self.correct[rows], self.log_odds[rows], _rows_of(self.weights, rows))

    def blocks(self, rows: int | None = None) -> Iterator[Self]:
        """Yield the samples in pieces of bounded size."""
        step = rows or ROWS_AT_ONCE
        for start in range(0, len(self), step):
            yield self[start : start + step]


# Given probabilities below this are read as this in every type: float16 underflows far above it, float64 far below,
# and the difference carries no information.
PROB_FLOOR = 1e-30
# The log-loss of given probabilities counts a label's probability as this at least.
LABEL_FLOOR = 1e-15
# Below this a probability is tiny: the calibration samples decide whether it needs a floor.
_TINY = 1e-12
_MANY = 1e-3  # share of zeros from which a floor is chosen

# How far a row of probabilities may be from one. Float16 rows of a thousand classes stay within it.
SUM_TOLERANCE = 2e-3
_SUM_RATIO = 1.2  # between the largest and the smallest sum of rows that rounding to digits explains
_NORMALISE = Argument("normalise", "True", is_literal=False)
_ONE_PROBABILITY = (
    "For the probability p of the second class alone, use from_binary_probs(p, labels); of a file: ",
    Argument("positive", "NAME", is_literal=False),
    ".",
)


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


@final
@dataclass(frozen=True, eq=False)
class Predictions:
    """Logits and a label for each sample; immutable and checked once.

    The constructor decides whether scores are logits or probabilities (:meth:`from_logits`, :meth:`from_probs`, and for
    one number per sample :meth:`from_binary_logits`, :meth:`from_binary_probs`); their values never do. Two classes are
    ``k = 2``. Logits are kept as given, on their device, and not copied: do not change the array afterwards.

    Args:
        logits: Shape (n, k), k >= 2, finite.
        labels: Shape (n,), whole numbers in 0..k-1, or class names.
        class_names: One name a class, or None.
        weights: Shape (n,), how many samples each stands for: finite and at least 0. Only their ratios matter, and a
            sample of weight 0 counts nothing. None: all alike.

    Raises:
        InputError: If any of that does not hold; the message names the row.

    Example:
        >>> predictions = Predictions.from_logits([[2.0, 0.0], [0.0, 1.0], [3.0, 0.0]], [0, 1, 1])
        >>> predictions.predicted.tolist(), predictions.correct.tolist()
        ([0, 1, 0], [True, True, False])
    """

    logits: Tensor
    labels: Tensor
    class_names: tuple[str, ...] | None = None
    weights: Tensor | None = field(default=None, repr=False, kw_only=True)
    normalised: Normalised = field(default=Normalised.NO, init=False)  # whether the logits are log-probabilities
    given_as_probs: bool = field(default=False, init=False)  # built by from_probs, and unchanged since

    def __post_init__(self) -> None:
        logits = as_tensor(self.logits, "logits")
        if logits.ndim != 2 or logits.shape[1] < 2:
            one_column = logits.ndim == 1 or (logits.ndim == 2 and logits.shape[1] == 1)
            hint = " For one logit a row of a two-class model, use from_binary_logits." if one_column else ""
            raise InputError(
                f"logits must have shape (n, k) with at least two classes; got {tuple(logits.shape)}.{hint}"
            )
        logits = check_real(logits, "logits")
        check_rows(logits.shape[0])
        span = _checked_span(logits)
        if isinstance(self.class_names, str):
            raise InputError(f"class_names must be a sequence of names; got the one name {self.class_names!r}.")
        names = None if self.class_names is None else tuple(str(name) for name in self.class_names)
        if names is not None and len(names) != logits.shape[1]:
            raise InputError(f"class_names must name all {logits.shape[1]} classes; got {len(names)} names.")
        words = None if isinstance(self.labels, Tensor) else as_words(self.labels)
        labels = as_tensor(self.labels, "labels") if words is None else class_numbers(words, names)
        _check_rows_are_samples(logits, labels)
        check_same_length(logits, "logits", labels, "labels")
        labels = check_labels(as_whole_numbers(labels.to(logits.device)), logits.shape[1])
        weights = None if self.weights is None else check_weights(self.weights, logits)
        _set(self, logits=logits.contiguous(), labels=labels, class_names=names, weights=weights, span=span)

    def _with(
        self, logits: Tensor, labels: Tensor, weights: Tensor | None, *, normalised: Normalised | None = None
    ) -> Self:
        """Build from checked samples of the same classes."""
        made, is_same = object.__new__(type(self)), normalised is None
        _set(made, logits=logits, labels=labels, class_names=self.class_names, weights=weights)
        _set(
            made, normalised=self.normalised if is_same else normalised, given_as_probs=self.given_as_probs and is_same
        )
        return made

    @classmethod
    def from_logits(
        cls, logits: Any, labels: Any, *, class_names: Sequence[str] | None = None, weights: Any = None
    ) -> Self:
        """Build from unnormalised scores, shape (n, k): the output of a network before its softmax."""
        return cls(logits, labels, class_names, weights=weights)  # type: ignore[arg-type]  # made a tuple there

    @classmethod
    def from_probs(
        cls,
        probs: Any,
        labels: Any,
        *,
        class_names: Sequence[str] | None = None,
        weights: Any = None,
        normalise: bool = False,
    ) -> Self:
        """Build from probabilities, shape (n, k), rows summing to one; ``normalise`` divides each row by its sum.

        The logits are their logarithms. A probability below 1e-30, also one of exactly 0, is read as 1e-30 in every
        type; this does not change Brier score, calibration errors or ranks. The log-loss counts a label's probability
        as at least 1e-15; a :class:`CalibrantWarning` reports labels with probability 0, for which the log-loss without
        that floor is infinite. Calibrators choose their own floor from the samples (:attr:`uniform_share`).
        :attr:`zero_cells` counts the zeros.
        """
        probs = as_tensor(probs, "probs")
        if probs.ndim != 2 or probs.shape[1] < 2:
            raise InputError(
                f"probs must have shape (n, k) with at least two classes; got {tuple(probs.shape)}. ", *_ONE_PROBABILITY
            )
        check_rows(probs.shape[0])
        _check_rows_are_samples(probs, labels)
        probs = check_real(probs, "probs")
        if normalise:
            probs = _normalised(probs)
        else:
            check_unit_interval(probs, "probs", " For percentages, or counts, pass ", _NORMALISE, ".")
        sums = probs.sum(dim=1, dtype=torch.float64)
        off = ((sums - 1).abs() > SUM_TOLERANCE).nonzero()
        if off.numel():
            row = int(off[0])
            raise InputError(
                f"each row of probs must sum to one (within {SUM_TOLERANCE}); got {float(sums[row]):.6g} at row {row} "
                f"({off.numel()} such rows). If they were rounded, pass ",
                *(_NORMALISE, ", which divides each row by its sum; if they are logits, pass them as logits; "),
                "if scores of some classes are missing, add them.",
            )
        working = probs if probs.dtype == torch.float64 else probs.float()
        return cls._from_log_probs(working.clamp(min=PROB_FLOOR).log(), labels, class_names, weights, probs=working)

    @classmethod
    def from_binary_probs(
        cls, probs: Any, labels: Any, *, class_names: Sequence[str] | None = None, weights: Any = None
    ) -> Self:
        """Build from the probability of class 1 of a two-class model, shape (n,) or (n, 1): ``predict_proba(x)[:, 1]``.

        As :meth:`from_probs` of the columns 1 - p and p, except that 1 - p is not rounded.

        Example:
            >>> Predictions.from_binary_probs([0.9, 0.2], ["spam", "ham"], class_names=["ham", "spam"]).labels.tolist()
            [1, 0]
        """
        single = _one_column(check_real(as_tensor(probs, "probs"), "probs"), "probs")
        check_rows(len(single))
        check_unit_interval(single, "probs")
        working = single if single.dtype == torch.float64 else single.float()
        both = torch.stack([(-working).log1p(), working.log()], 1).clamp(min=math.log(PROB_FLOOR))
        return cls._from_log_probs(both, labels, class_names, weights, probs=torch.stack([1 - working, working], 1))

    @classmethod
    def _from_log_probs(
        cls, log_probs: Tensor, labels: Any, class_names: Sequence[str] | None, weights: Any, *, probs: Tensor
    ) -> Self:
        """Build from the logarithms of given probabilities; warn if a label's probability is 0."""
        made = cls.from_logits(log_probs, labels, class_names=class_names, weights=weights)
        _set(made, normalised=Normalised.ROUNDED, given_as_probs=True)
        impossible = int((probs.gather(1, made.labels[:, None]) == 0).sum())
        if impossible:
            warn(
                f"{impossible:,} of {len(made):,} true classes were given probability 0, so the log-loss without a "
                f"floor is infinite. It is reported with every one counted as {LABEL_FLOOR:g} at least, and depends on "
                "that choice."
            )
        return made

    @classmethod
    def from_binary_logits(
        cls, logits: Any, labels: Any, *, class_names: Sequence[str] | None = None, weights: Any = None
    ) -> Self:
        """Build from one logit per sample, shape (n,) or (n, 1), of a two-class model: the log-odds of class 1."""
        single = _one_column(check_real(as_tensor(logits, "logits"), "logits"), "logits")
        both = torch.stack([torch.zeros_like(single), single], 1)
        return cls.from_logits(both, labels, class_names=class_names, weights=weights)

    @classmethod
    def from_dense(
        cls,
        logits: Any,
        labels: Any,
        *,
        ignore_index: int | None = None,
        class_axis: int = 1,
        class_names: Sequence[str] | None = None,
    ) -> Self:
        """Build from logits for every pixel or token, each of which becomes a sample.

        Intervals treat samples as independent, and neighbouring pixels are not: they come out too narrow.

        Args:
            logits: Shape (n, k, ...), as segmentation networks return them: (n, k, height, width).
            labels: Shape (n, ...): that of the logits without the classes.
            ignore_index: Label of the pixels or tokens to leave out, for example 255 or -100; None leaves none out.
            class_axis: Axis of the classes; -1 for token classification, (n, length, k).
            class_names: One name a class, or None.

        Example:
            >>> logits = torch.randn(2, 5, 8, 8)  # two images of 8 x 8 pixels, five classes
            >>> labels = torch.zeros(2, 8, 8, dtype=torch.long)
            >>> labels[:, 0] = 255
            >>> Predictions.from_dense(logits, labels, ignore_index=255)
            Predictions(n=112, classes=5, torch.float32, cpu)
        """
        scores, given = as_tensor(logits, "logits"), as_tensor(labels, "labels")
        if not -scores.ndim <= class_axis < scores.ndim:
            raise InputError(f"class_axis must be an axis of the logits, {tuple(scores.shape)}; got {class_axis}.")
        rows = scores.movedim(class_axis, -1)
        if rows.shape[:-1] != given.shape:
            last = scores.ndim > 1 and scores.shape[:-1] == given.shape
            raise InputError(
                f"labels must have the shape of the logits without the classes, {tuple(rows.shape[:-1])}; got "
                f"{tuple(given.shape)}." + " If the classes are the last axis, pass class_axis=-1." * last
            )
        if ignore_index is None:
            ends = [number.item() for number in given.aminmax()] if given.numel() and given.dtype != torch.bool else []
            for stray in (end for end in ends if not 0 <= end < rows.shape[-1]):
                raise InputError(
                    f"labels must lie in 0..{rows.shape[-1] - 1}; got {stray:g}. If it marks pixels or tokens to leave "
                    f"out, pass ignore_index={stray:g}."
                )
            return cls.from_logits(rows.reshape(-1, rows.shape[-1]), given.reshape(-1), class_names=class_names)
        kept = given != ignore_index
        if not kept.any():
            raise InputError(f"labels must not all be ignore_index, {ignore_index}; got no other.")
        return cls.from_logits(rows[kept.to(rows.device)], given[kept], class_names=class_names)

    def __len__(self) -> int:
        return self.logits.shape[0]

    def __getitem__(self, rows: slice | Tensor) -> Self:
        logits = self.logits[_check_selects_samples(rows)]
        check_rows(len(logits))
        made = self._with(logits, self.labels[rows], _rows_of(self.weights, rows))
        kept = self.__dict__.get("_kept")
        if kept and isinstance(rows, slice):
            object.__setattr__(made, "_kept", {key: value[rows] for key, value in kept.items()})
        return made

    def part(self, rows: slice | Tensor) -> Self:
        """Return some of the samples, with the :attr:`uniform_share` of all: a fold, on which it hardly depends."""
        made = self[rows]
        object.__setattr__(made, "uniform_share", self.uniform_share)
        return made

    def __add__(self, other: Self) -> Self:
        """Return the samples of both; those without weights have weight 1 where the others have weights."""
        if other.n_classes != self.n_classes:
            raise InputError(f"both must have the same classes; got {self.n_classes} and {other.n_classes}.")
        if self.class_names != other.class_names:
            raise InputError(f"both must name the classes alike; got {self.class_names} and {other.class_names}.")
        logits, labels = torch.cat([self.logits, other.logits]), torch.cat([self.labels, other.labels])
        weights = None
        if self.weights is not None or other.weights is not None:
            parts = (
                part.labels.new_ones(len(part), dtype=torch.float64) if part.weights is None else part.weights
                for part in (self, other)
            )
            weights = torch.cat([*parts])
        if self.normalised == other.normalised and self.given_as_probs == other.given_as_probs:
            return self._with(logits, labels, weights)
        return self._with(logits, labels, weights, normalised=min(self.normalised, other.normalised))

    def with_logits(self, logits: Tensor, *, normalised: Normalised | bool | None = False) -> Self:
        """Return the same samples with other logits, (n, k), finite and on the same device.

        ``normalised``: whether these are log-probabilities (True: rounded ones); None for the numbers that they already
        have.
        """
        if logits.shape != self.logits.shape:
            raise InputError(f"logits must keep the shape {tuple(self.logits.shape)}; got {tuple(logits.shape)}.")
        check_finite(logits, "logits")
        known = None if normalised is None else Normalised(normalised)
        return self._with(logits.contiguous(), self.labels, self.weights, normalised=known)

    def with_weights(self, weights: Any) -> Self:
        """Return the same samples with other weights, (n,), or with none."""
        return self._with(self.logits, self.labels, None if weights is None else check_weights(weights, self.logits))

    def mixed_with_uniform(self, share: float) -> Self:
        """Return the samples with a share of the uniform distribution mixed in; confidences keep order and ties."""
        if not share:
            return self
        number, normalised = self.logits.new_tensor(share), bool(self.normalised)
        mixed = self.by_blocks(lambda block: floored(block.logits, number, normalised=normalised))
        return self.with_logits(mixed, normalised=True)

    def __repr__(self) -> str:
        return f"Predictions(n={len(self)}, classes={self.n_classes}, {self.logits.dtype}, {self.logits.device})"

    @property
    def n_classes(self) -> int:
        """Number of classes, from the logits."""
        return self.logits.shape[1]

    def blocks(self, rows: int | None = None) -> Iterator[Self]:
        """Yield the samples in pieces of bounded size, which is larger for few classes."""
        usual = min(2 * ROWS_AT_ONCE, max(ROWS_AT_ONCE, (1 << 21) // self.n_classes))
        step = rows or (usual if self.logits.device.type == "cpu" else _GPU_ROWS_AT_ONCE)
        if step >= len(self):  # so that cached numbers of these samples are reused
            yield self
            return
        for start in range(0, len(self), step):
            yield self[start : start + step]

    def small_blocks(self) -> Iterator[Self]:
        """Yield the samples in pieces of some two million logits, for work with several numbers beside each of them."""
        return self.blocks(min(2 * ROWS_AT_ONCE, max(_FEWEST_ROWS, (1 << 21) // self.n_classes)))

    def by_blocks(self, compute: Callable[[Self], Tensor]) -> Tensor:
        """Return numbers per sample, (n, ...), computed for small blocks, so that little is held beside them."""
        first, *others = self.small_blocks()
        values, start = compute(first), len(first)
        if not others:
            return values
        result = values.new_empty(len(self), *values.shape[1:])
        result[:start] = values
        for block in others:
            result[start : start + len(block)] = compute(block)
            start += len(block)
        return result

    def softmax_rows(self, wanted: Wanted = TOP_LABEL, group: Tensor | None = None) -> SoftmaxRows:
        """Return per-sample softmax statistics; they are cached, and computed again only if more is wanted of them.

        Args:
            wanted: Optional sums to compute.
            group: Groups of samples to sum over, shape (n,).
        """
        known: SoftmaxRows | None = self.__dict__.get("_softmax_rows")
        if known is None or not known.wanted.covers(wanted) or (group is not None and known.group is not group):
            wanted = wanted if known is None else known.wanted | wanted
            least, floor = (LABEL_FLOOR, PROB_FLOOR) if self.given_as_probs else (0.0, 0.0)
            known = SoftmaxRows(
                *(self.logits, self.labels, wanted),
                normalised=self.normalised,
                least=least,
                floor=floor,
                weights=self.weights,
                group=group,
            )
            object.__setattr__(self, "_softmax_rows", known)
        return known

    def cached(self, key: Hashable, compute: Callable[[], Tensor]) -> Tensor:
        """Return numbers per sample, (n, ...), computed once for these samples and for slices of them."""
        if "_kept" not in self.__dict__:
            object.__setattr__(self, "_kept", {})
        kept: dict[Hashable, Tensor] = self.__dict__["_kept"]
        if key not in kept:
            kept[key] = compute()
        return kept[key]

    @property
    def effective_size(self) -> float:
        """Number of samples without weights that know as much: Kish's (Σ w)² / Σ w²."""
        return len(self) if self.sample_counts is None else float(self.sample_counts.sum())

    @cached_property
    def sample_counts(self) -> Tensor | None:
        """Weights that sum to the effective size, (n,), so that each sample counts as so many; None without weights."""
        return None if self.weights is None else effective_counts(self.weights)

    def with_positive_weights(self) -> Self:
        """Return the samples that count at all."""
        return self if self.weights is None or bool(self.weights.all()) else self[self.weights > 0]

    @cached_property
    def span(self) -> float:
        """The largest difference of any two logits."""
        low, high = _ends(self.logits)
        return high - low

    @cached_property
    def zero_cells(self) -> ZeroCells | None:
        """Counts of given probabilities that are 0; None if logits were given."""
        if not self.given_as_probs:
            return None
        # A little above the floor's logarithm, because that has been rounded.
        least, label_least = math.log(PROB_FLOOR) + 1e-4, math.log(LABEL_FLOOR)
        label_logits = self.logits.gather(1, self.labels[:, None])
        zeros, cells = int((self.logits <= least).sum()), self.logits.numel()
        labels, floored_labels = int((label_logits <= least).sum()), int((label_logits < label_least).sum())
        positive = torch.where(self.logits > least, self.logits, math.inf).amin()
        return ZeroCells(zeros, cells, labels, floored_labels, float(positive.exp()) if zeros < cells else math.nan)

    @cached_property
    def uniform_share(self) -> float:
        """Share of the uniform distribution that calibrators mix in before they take logarithms; 0 for none.

        Chosen once from these samples, if probabilities were given and one in a thousand of them is 0, or a label's is
        below 1e-12.
        """
        if (zeros := self.zero_cells) is None:
            return 0.0
        lowest, of_labels = float(self.logits.amin()), self.logits.gather(1, self.labels[:, None])
        needed = needs_floor(zeros.cells, zeros.of_cells, lowest, float(of_labels.amin()))
        return choose_share(self.logits, self.labels, self.sample_counts) if needed else 0.0

    @cached_property
    def label_counts(self) -> Tensor:
        """Number of samples of every class, (k,)."""
        return torch.bincount(self.labels, minlength=self.n_classes)

    @cached_property
    def log_probs(self) -> Tensor:
        """Log-probabilities, (n, k), in the logits' own type."""
        return self.logits.log_softmax(dim=1)

    @cached_property
    def probs(self) -> Tensor:
        """Probabilities, (n, k), in the logits' own type."""
        # A confidence that is known exactly is not rounded again by a division.
        return self.logits.exp() if self.normalised == Normalised.EXACT else self.logits.softmax(dim=1)

    @cached_property
    def top(self) -> TopLabel:
        """Confidence, correctness and log-odds of the predicted class."""
        rows = self.softmax_rows()
        return TopLabel._trusted(rows.confidence.double(), rows.top == self.labels, rows.log_odds, self.weights)

    @property
    def confidence(self) -> Tensor:
        """Probability of the predicted class, (n,), float64."""
        return self.top.confidence

    @property
    def predicted(self) -> Tensor:
        """The class with the largest logit (the first of them on a tie), (n,)."""
        return self.softmax_rows().top

    @property
    def correct(self) -> Tensor:
        """Whether the prediction is the label, (n,), bool."""
        return self.top.correct


def needs_floor(zeros: float, cells: float, lowest: float, lowest_label: float) -> bool:
    """Return whether fits need a floor, given how many of all probabilities are 0, and the logarithms of the lowest."""
    return lowest < math.log(_TINY) and (zeros >= _MANY * cells or lowest_label < math.log(_TINY))


class Arrays(TypedDict, total=False):
    """Predictions as arrays by keyword: logits or probs with labels, or confidence with correct."""

    logits: Any  # (n, k)
    probs: Any  # (n, k)
    labels: Any  # (n,)
    confidence: Any  # (n,)
    correct: Any  # (n,)
    weights: Any  # (n,), beside any of these


def _check_rows_are_samples(scores: Tensor, labels: Any) -> None:
    is_flat = hasattr(labels, "__len__") and getattr(labels, "ndim", 1) == 1
    if is_flat and len(labels) == scores.shape[1] != scores.shape[0]:
        raise InputError(
            f"logits or probs must have a row for each sample; got {tuple(scores.shape)} and {len(labels)} labels. "
            "If the samples are the columns, transpose the array."
        )


def as_predictions(given: tuple[object, ...], caller: str, arrays: Arrays) -> Predictions | TopLabel:
    """Return the predictions that the function ``caller`` received, as one record or as arrays by keyword."""
    if len(given) == 1 and isinstance(given[0], Predictions | TopLabel) and not arrays:
        return given[0]
    names, weights = arrays.keys() - {"weights"}, arrays.get("weights")
    if not given and names == {"logits", "labels"}:
        return Predictions.from_logits(arrays["logits"], arrays["labels"], weights=weights)
    if not given and names == {"probs", "labels"}:
        return Predictions.from_probs(arrays["probs"], arrays["labels"], weights=weights)
    if not given and names == {"confidence", "correct"}:
        return TopLabel(arrays["confidence"], arrays["correct"], weights=weights)
    if unknown := sorted(arrays.keys() - Arrays.__annotations__.keys()):
        raise InputError(
            f"{caller} must be given its own arguments; {unknown[0]!r} is none. help({caller}) lists them."
        )
    received = [type(value).__name__ for value in given] + [f"{name}=…" for name in arrays]
    raise InputError(
        f"{caller} must be given Predictions, or arrays by keyword: {caller}(probs=p, labels=y), "
        f"{caller}(logits=z, labels=y) or {caller}(confidence=c, correct=r); got {', '.join(received) or 'nothing'}."
    )


def effective_counts(weights: Tensor) -> Tensor:
    """Return weights, (n,), scaled so that they sum to Kish's effective number of samples, (Σ w)² / Σ w²."""
    return weights * (weights.sum() / weights.square().sum())


Record = TypeVar("Record", bound=Predictions | TopLabel)


def counted_samples(samples: Record) -> Record:
    """Return the samples of positive weight, with weights that add up to their effective number; equal ones are none.

    The same evidence, and the form in which it is resampled.
    """
    if not isinstance(samples, Predictions | TopLabel):
        got = f"got {type(samples).__name__}. Predictions.from_probs(p, y) makes one"
        raise InputError(f"samples must be Predictions or TopLabel; {got}.")
    if samples.weights is None:
        return samples
    positive = samples.weights > 0
    if not bool(positive.any()):
        raise InputError("weights must not all be 0; got only zeros for these samples.")
    kept: Record = samples if bool(positive.all()) else samples[positive]  # type: ignore[assignment]  # of one kind
    weights = samples.weights[positive]
    if bool((weights == weights[0]).all()):
        return kept.with_weights(None)  # type: ignore[return-value]
    return kept.with_weights(effective_counts(weights))  # type: ignore[return-value]


def check_unweighted(samples: Predictions | TopLabel, what: str) -> None:
    """Refuse weights where they would be ignored."""
    if samples.weights is not None:
        raise InputError(f"{what} must be given samples without weights; got weights, which it would ignore.")


def _rows_of(weights: Tensor | None, rows: slice | Tensor) -> Tensor | None:
    return None if weights is None else weights[rows]


def _check_selects_samples(rows: Any) -> Any:
    if isinstance(rows, int):
        raise InputError(
            f"samples must be selected by a slice, a mask or positions; got the one number {rows}. For one sample: "
            f"[{rows}:{rows + 1 or ''}]."
        )
    return rows


def _set(record: object, **fields: Any) -> None:
    """Set fields of a frozen record."""
    for name, value in fields.items():
        object.__setattr__(record, name, value)


def _one_column(values: Tensor, name: str) -> Tensor:
    """Return one number per sample, (n,) or (n, 1), as (n,)."""
    values = values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values
    if values.ndim != 1:
        raise InputError(f"binary {name} must have shape (n,) or (n, 1); got {tuple(values.shape)}.")
    return values


def _normalised(probs: Tensor) -> Tensor:
    """Return every row divided by its sum; a warning if the sums are too different for rounding."""
    check_finite(probs, "probs")
    sums = probs.sum(dim=1, dtype=torch.float64)
    low, high = float(sums.min()), float(sums.max())
    if probs.min() < 0 or low <= 0:
        what, row = ("at least 0", (probs < 0).any(1)) if probs.min() < 0 else ("not all 0 in a row", sums <= 0)
        raise InputError(
            f"probs must be {what} to be normalised; row {int(row.nonzero()[0])} is not. "
            "If these are logits, pass them as logits."
        )
    if high > _SUM_RATIO * low:
        warn(
            f"The rows of probabilities summed to {low:.4g} up to {high:.4g} before each was divided by its sum, and "
            "rounding does not explain as much. Are the scores of a class missing?"
        )
    return (probs / sums[:, None]).to(probs.dtype)


def _checked_span(logits: Tensor) -> float:
    """Return the largest difference of any two logits; an InputError unless all, and the sum of losses, are finite."""
    low, high = _ends(logits)
    span = high - low
    if not (math.isfinite(low) and math.isfinite(high)):
        check_finite(logits, "logits")
    if span > torch.finfo(working_dtype(logits)).max or not math.isfinite(4.0 * len(logits) * span):
        raise InputError(
            f"logits must not differ by more than {logits.dtype} can hold, added up over the samples; "
            f"got {low:.3g} and {high:.3g}. Clip them: differences above about 1e4 change no probability."
        )
    return span


def _ends(logits: Tensor) -> tuple[float, float]:
    """Return the smallest and the largest logit, NaN if one is."""
    low, high = torch.stack(torch.aminmax(logits)).double().tolist()
    return low, high
