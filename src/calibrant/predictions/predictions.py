"""Predictions of a classifier for every class, with their labels: checked once, here."""

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self, TypedDict, final

import torch
from torch import Tensor

from calibrant import checks
from calibrant.errors import Argument, Caveat, InputError, warn
from calibrant.labels import as_words, class_numbers
from calibrant.numerics.softmax import TOP_LABEL, Normalised, SoftmaxRows, Wanted, is_by_class, working_dtype
from calibrant.numerics.uniform_share import choose_share, floored
from calibrant.predictions import scores
from calibrant.predictions.samples import (
    ROWS_AT_ONCE,
    Samples,
    TopLabel,
    check_clusters,
    check_rows_are_samples,
    select,
    set_fields,
)

__all__ = ["Arrays", "Predictions", "as_predictions", "as_risk", "check_predictions", "has_risk"]

_GPU_ROWS_AT_ONCE = 1 << 22  # in a block: starting its kernels costs more than one of the usual size
_FEWEST_ROWS = 256  # in a small block: products of matrices stay efficient


@final
@dataclass(frozen=True, eq=False)
class Predictions(Samples):
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
        clusters: Shape (n,), whole numbers or words: samples of one cluster, such as the answers to one question or the
            images of one patient, are not independent. None: all are.

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
    clusters: Tensor | None = field(default=None, repr=False, kw_only=True)
    normalised: Normalised = field(default=Normalised.NO, init=False)  # whether the logits are log-probabilities
    given_as_probs: bool = field(default=False, init=False)  # built by from_probs, and unchanged since

    @checks.with_devices_of_inputs
    def __post_init__(self) -> None:
        logits = checks.as_tensor(self.logits, "logits")
        if logits.ndim != 2 or logits.shape[1] < 2:
            one_column = logits.ndim == 1 or (logits.ndim == 2 and logits.shape[1] == 1)
            hint = " For one logit a row of a two-class model, use from_binary_logits." if one_column else ""
            raise InputError(f"logits must have shape (n, k) of two or more classes; got {tuple(logits.shape)}.{hint}")
        logits = checks.check_real(logits, "logits")
        checks.check_rows(logits.shape[0])
        span = _checked_span(logits)
        if isinstance(self.class_names, str):
            raise InputError(f"class_names must be a sequence of names; got the one name {self.class_names!r}.")
        names = None if self.class_names is None else tuple(str(name) for name in self.class_names)
        if names is not None and len(names) != logits.shape[1]:
            raise InputError(f"class_names must name all {logits.shape[1]} classes; got {len(names)} names.")
        words = None if isinstance(self.labels, Tensor) else as_words(self.labels)
        labels = checks.as_tensor(self.labels, "labels") if words is None else class_numbers(words, names)
        check_rows_are_samples(logits, labels)
        checks.check_same_length(logits, "logits", labels, "labels")
        labels = checks.check_labels(checks.as_whole_numbers(labels.to(logits.device)), logits.shape[1])
        weights = None if self.weights is None else checks.check_weights(self.weights, logits)
        clusters = None if self.clusters is None else check_clusters(self.clusters, logits)
        set_fields(self, labels=labels, class_names=names, weights=weights, clusters=clusters, span=span)
        del self.__dict__["logits"]
        self._keep(logits)

    def _keep(self, logits: Tensor) -> None:
        """Keep logits; those of a table by columns, as they are, until rows are asked for."""
        by_class = is_by_class(logits)
        set_fields(self, **{"_by_class" if by_class else "logits": logits if by_class else logits.contiguous()})

    if not TYPE_CHECKING:  # for which any name would be one

        def __getattr__(self, name: str) -> Tensor:
            """Lay logits out by rows."""
            if name == "logits" and (by_class := self.__dict__.get("_by_class")) is not None:
                set_fields(self, logits=by_class.contiguous())
                self.__dict__.pop("_by_class", None)
            return super().__getattribute__(name)

    @property
    def stored(self) -> Tensor:
        """The logits, (n, k), by rows or by columns, as they are in memory."""
        by_class: Tensor | None = self.__dict__.get("_by_class")
        return self.logits if by_class is None else by_class

    def _with(
        self,
        logits: Tensor,
        labels: Tensor,
        weights: Tensor | None,
        clusters: Tensor | None = None,
        *,
        normalised: Normalised | None = None,
    ) -> Self:
        """Build from checked samples of the same classes."""
        made, is_same = object.__new__(type(self)), normalised is None
        known = {"normalised": self.normalised if is_same else normalised, "class_names": self.class_names}
        given_as_probs = self.given_as_probs and is_same
        set_fields(made, labels=labels, weights=weights, clusters=clusters, given_as_probs=given_as_probs, **known)
        made._keep(logits)
        return made

    @classmethod
    def from_logits(
        cls, logits: Any, labels: Any, *, class_names: Sequence[str] | None = None, weights: Any = None
    ) -> Self:
        """Build from unnormalised scores, shape (n, k): the output of a network before its softmax.

        Without ``class_names``, the columns of a data frame are called as their classes: ``cat`` or ``logit_cat``.
        """
        if class_names is None and not isinstance(logits, Tensor):
            labels, class_names = scores.by_columns(logits, labels)
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
        given = scores.read_probs(probs, labels, normalise=normalise)
        if class_names is None:
            labels, class_names = scores.by_columns(probs, labels)
        return cls._from_log_probs(*given, labels, class_names, weights)

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
        return cls._from_log_probs(*scores.read_binary_probs(probs, labels), labels, class_names, weights)

    @classmethod
    def _from_log_probs(
        cls, log_probs: Tensor, probs: Tensor, labels: Any, class_names: Sequence[str] | None, weights: Any
    ) -> Self:
        """Build from the logarithms of given probabilities; warn if a label's probability is 0."""
        made = cls.from_logits(log_probs, labels, class_names=class_names, weights=weights)
        set_fields(made, normalised=Normalised.ROUNDED, given_as_probs=True)
        impossible = int((probs.gather(1, made.labels[:, None]) == 0).sum())
        if impossible:
            warn(
                f"{impossible:,} of {len(made):,} true classes were given probability 0, so the log-loss without a "
                f"floor is infinite. It counts each of them as {scores.LABEL_FLOOR:g}, and depends on that choice.",
                caveat=Caveat.floored_labels,
            )
        return made

    @classmethod
    def from_binary_logits(
        cls, logits: Any, labels: Any, *, class_names: Sequence[str] | None = None, weights: Any = None
    ) -> Self:
        """Build from one logit per sample, shape (n,) or (n, 1), of a two-class model: the log-odds of class 1."""
        single = scores.one_column(logits, "logits")
        both = torch.stack([torch.zeros_like(single), single], 1)
        made = cls.from_logits(both, labels, class_names=class_names, weights=weights)
        if len(made) >= scores.FEW and single.min() >= 0 and single.max() <= 1 and len(single.unique()) > 2:
            warn(
                "The logits of class 1 all lie in 0..1, as probabilities do. If they are, give them as probabilities: "
                "read as log-odds, none of them is below 50 %."
            )
        if len(made) >= scores.FEW and single.max() <= 0 and made.labels.double().mean() > scores.NOT_RARE:
            warn(
                f"The logits of class 1 are all at most 0, as log-probabilities are, and {int(made.labels.sum()):,} of "
                f"{len(made):,} labels are 1. If they are log-probabilities, give their exponentials as probabilities."
            )
        return made

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
        kept = scores.dense_rows(logits, labels, ignore_index=ignore_index, class_axis=class_axis)
        return cls.from_logits(*kept, class_names=class_names)

    def __len__(self) -> int:
        return self.labels.shape[0]

    def __getitem__(self, rows: slice | Tensor) -> Self:
        logits, *others = select(rows, self.stored, self.weights, self.clusters)
        made = self._with(logits, self.labels[rows], *others)
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
        """Return the samples of both; those without weights have weight 1 where the others have weights.

        Clusters of the same number or word in both are not known to be the same, so samples in clusters are refused.
        """
        if self.clusters is not None or other.clusters is not None:
            raise InputError("sets must be joined before samples are put in clusters; got clusters. See with_clusters.")
        if other.n_classes != self.n_classes:
            raise InputError(f"both must have the same classes; got {self.n_classes} and {other.n_classes}.")
        if self.class_names != other.class_names:
            raise InputError(f"both must name the classes alike; got {self.class_names} and {other.class_names}.")
        logits, labels = torch.cat([self.logits, other.logits]), torch.cat([self.labels, other.labels])
        is_weighted = self.weights is not None or other.weights is not None
        weights = torch.cat([self.mass, other.mass]) if is_weighted else None
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
        checks.check_finite(logits, "logits")
        known = None if normalised is None else Normalised(normalised)
        return self._with(logits, self.labels, self.weights, self.clusters, normalised=known)

    def _alike(self, weights: Tensor | None, clusters: Tensor | None) -> Self:
        return self._with(self.stored, self.labels, weights, clusters)

    def mixed_with_uniform(self, share: float) -> Self:
        """Return the samples with a share of the uniform distribution mixed in; confidences keep order and ties."""
        if not share:
            return self
        number, normalised = self.logits.new_tensor(share), bool(self.normalised)
        mixed = self.by_blocks(lambda block: floored(block.logits, number, normalised=normalised))
        return self.with_logits(mixed, normalised=True)

    def __repr__(self) -> str:
        return f"Predictions(n={len(self)}, classes={self.n_classes}, {self.stored.dtype}, {self.device})"

    @property
    def device(self) -> torch.device:
        return self.labels.device

    @property
    def n_classes(self) -> int:
        """Number of classes, from the logits."""
        return self.stored.shape[1]

    @property
    def _usual_rows(self) -> int:
        usual = min(2 * ROWS_AT_ONCE, max(ROWS_AT_ONCE, (1 << 21) // self.n_classes))
        return usual if self.device.type == "cpu" else _GPU_ROWS_AT_ONCE

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

    @checks.with_devices_of_inputs
    def softmax_rows(self, wanted: Wanted = TOP_LABEL, group: Tensor | None = None) -> SoftmaxRows:
        """Return per-sample softmax statistics; they are cached, and computed again only if more is wanted of them.

        Args:
            wanted: Optional sums to compute.
            group: Groups of samples to sum over, shape (n,).
        """
        known: SoftmaxRows | None = self.__dict__.get("_softmax_rows")
        if known is None or not known.wanted.covers(wanted) or (group is not None and known.group is not group):
            wanted = wanted if known is None else known.wanted | wanted
            floors = {"least": scores.LABEL_FLOOR, "floor": scores.PROB_FLOOR} if self.given_as_probs else {}
            known = SoftmaxRows(
                self.stored,
                self.labels,
                wanted,
                normalised=self.normalised,
                weights=self.weights,
                group=group,
                **floors,
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

    @cached_property
    def span(self) -> float:
        """The largest difference of any two logits."""
        low, high = _ends(self.stored)
        return high - low

    @cached_property
    def zero_cells(self) -> scores.ZeroCells | None:
        """Counts of given probabilities that are 0; None if logits were given."""
        return scores.count_zeros(self.logits, self.labels) if self.given_as_probs else None

    @cached_property
    def uniform_share(self) -> float:
        """Share of the uniform distribution that calibrators mix in before they take logarithms; 0 for none.

        Chosen once from these samples, if probabilities were given and one in a thousand of them is 0, or a label's is
        below 1e-12.
        """
        if (zeros := self.zero_cells) is None:
            return 0.0
        lowest, of_labels = float(self.logits.amin()), self.logits.gather(1, self.labels[:, None])
        needed = scores.needs_floor(zeros.cells, zeros.of_cells, lowest, float(of_labels.amin()))
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
        columns = (rows.confidence.double(), rows.top == self.labels, rows.log_odds)
        return TopLabel._trusted(*columns, self.weights, self.clusters)

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


def _checked_span(logits: Tensor) -> float:
    """Return the largest difference of any two logits; an InputError unless all, and the sum of losses, are finite."""
    low, high = _ends(logits)
    span = high - low
    if not (math.isfinite(low) and math.isfinite(high)):
        checks.check_finite(logits, "logits")
    if span > torch.finfo(working_dtype(logits)).max or not math.isfinite(4.0 * len(logits) * span):
        raise InputError(
            f"logits must not differ by more than {logits.dtype} can hold, added up over the samples; "
            f"got {low:.3g} and {high:.3g}. Clip them: differences above about 1e4 change no probability."
        )
    if low >= 0 and high <= 1 and scores.look_like_probs(logits):
        warn(
            "The logits of every sample lie in 0..1 and sum to one, as probabilities do. If they are, give them as "
            "probabilities: a second softmax makes any classifier underconfident."
        )
    return span


def _ends(logits: Tensor) -> tuple[float, float]:
    """Return the smallest and the largest logit, NaN if one is."""
    stored = logits.T if is_by_class(logits) else logits
    return float(stored.amin()), float(stored.amax())


class Arrays(TypedDict, total=False):
    """Predictions as arrays by keyword: logits or probs with labels, or confidence with correct."""

    logits: Any  # (n, k)
    probs: Any  # (n, k)
    labels: Any  # (n,)
    confidence: Any  # (n,)
    correct: Any  # (n,)
    weights: Any  # (n,), beside any of these
    clusters: Any  # (n,), likewise
    class_names: Any  # (k,), beside labels


def has_risk(*samples: object) -> bool:
    """Return whether all of these are predictions of two classes, whose second is the positive one."""
    return all(isinstance(one, Predictions) and one.n_classes == 2 for one in samples)


def as_risk(samples: Predictions | TopLabel) -> TopLabel:
    """Return the risk of class 1 of two as a confidence, and whether a sample is of that class as correctness."""
    if isinstance(samples, TopLabel):
        return samples
    if samples.n_classes != 2:
        raise InputError(
            f"a risk must be the probability of one of two classes; got {samples.n_classes} classes. Evaluate one at a "
            "time: a file with its probability and 0/1, read with ",
            *(Argument("positive", "NAME", is_literal=False), "; for arrays, from_binary_probs."),
        )
    log_odds = samples.logits.double().diff(dim=1)[:, 0]
    top = TopLabel(log_odds.sigmoid(), samples.labels == 1, log_odds, weights=samples.weights)
    return top if samples.clusters is None else top.with_clusters(samples.clusters)


def check_predictions(given: object, caller: str) -> None:
    """Check that the function ``caller``, which needs the scores of all classes, received Predictions."""
    if not isinstance(given, Predictions):
        raise InputError(
            f"{caller} must be given Predictions; got {type(given).__name__}. Make them: Predictions.from_logits(z, y)."
        )


def as_predictions(given: tuple[object, ...], caller: str, arrays: Arrays) -> Predictions | TopLabel:
    """Return the predictions that the function ``caller`` received, as one record or as arrays by keyword."""
    if len(given) == 1 and isinstance(given[0], Predictions | TopLabel) and not arrays:
        return given[0]
    names, weights, words = arrays.keys() - {"weights", "clusters"}, arrays.get("weights"), arrays.get("class_names")
    made: Predictions | TopLabel | None = None
    if not given and names - {"class_names"} == {"logits", "labels"}:
        made = Predictions.from_logits(arrays["logits"], arrays["labels"], weights=weights, class_names=words)
    elif not given and names - {"class_names"} == {"probs", "labels"}:
        made = Predictions.from_probs(arrays["probs"], arrays["labels"], weights=weights, class_names=words)
    elif not given and names == {"confidence", "correct"}:
        made = TopLabel(arrays["confidence"], arrays["correct"], weights=weights)
    if made is not None:
        return made if arrays.get("clusters") is None else made.with_clusters(arrays["clusters"])
    if unknown := sorted(arrays.keys() - Arrays.__annotations__.keys()):
        raise InputError(f"{caller} must be given its own arguments; {unknown[0]!r} is none. See help({caller}).")
    received = [type(value).__name__ for value in given] + [f"{name}=…" for name in arrays]
    raise InputError(
        f"{caller} must be given Predictions, or arrays by keyword: {caller}(probs=p, labels=y), "
        f"{caller}(logits=z, labels=y) or {caller}(confidence=c, correct=r); got {', '.join(received) or 'nothing'}."
    )
