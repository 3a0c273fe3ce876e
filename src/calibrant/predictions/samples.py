"""Samples with their weights, and the record of their top label alone: checked once, here."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self, TypeVar, final

import numpy as np
import torch
from torch import Tensor

from calibrant.checks import as_tensor, check_real, check_rows, check_same_length, check_unit_interval, check_weights
from calibrant.errors import InputError, Row
from calibrant.labels import Words, encode
from calibrant.numerics.binning import sums_by

__all__ = ["TopLabel", "by_unit", "check_clusters", "check_unweighted", "counted_samples", "effective_counts"]

# Samples in a block: what is kept per sample stays within a few megabytes, whatever the number of samples.
ROWS_AT_ONCE = 1 << 17


class Samples(ABC):
    """Predictions for samples, each with a weight unless all count alike, perhaps in clusters; immutable."""

    weights: Tensor | None
    clusters: Tensor | None

    @property
    @abstractmethod
    def top(self) -> "TopLabel":
        """Confidence, correctness and log-odds of the predicted class."""

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """Where the samples are."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def __getitem__(self, rows: slice | Tensor) -> Self: ...

    @abstractmethod
    def _alike(self, weights: Tensor | None, clusters: Tensor | None) -> Self:
        """Return the same samples with other weights and clusters, which were checked."""

    @final
    def with_weights(self, weights: Any) -> Self:
        """Return the same samples with other weights, (n,), or with none."""
        return self._alike(None if weights is None else check_weights(weights, self.mass), self.clusters)

    @final
    def with_clusters(self, clusters: Any) -> Self:
        """Return the same samples in clusters, such as the answers to one question: the cluster of each, (n,)."""
        return self._alike(self.weights, None if clusters is None else check_clusters(clusters, self.mass))

    @property
    def mass(self) -> Tensor:
        """How many samples each stands for, (n,) float64: its weight, or 1 where all count alike."""
        return torch.ones(len(self), dtype=torch.float64, device=self.device) if self.weights is None else self.weights

    @property
    def effective_size(self) -> float:
        """Number of samples without weights that know as much: Kish's (Σ w)² / Σ w²."""
        return len(self) if self.sample_counts is None else float(self.sample_counts.sum())

    @property
    def n_clusters(self) -> int | None:
        """Number of clusters; None if samples are independent."""
        return None if self.clusters is None else int(self.clusters.unique().numel())

    @property
    def independent_size(self) -> float:
        """Effective number of independent units: of the clusters where there are any, else of the samples."""
        if self.clusters is None:
            return self.effective_size
        return float(effective_counts(self.cluster_sums(self.mass)).sum())

    def cluster_sums(self, values: Tensor) -> Tensor:
        """Return numbers per sample, (n,), added up by cluster; themselves where samples are independent."""
        return values if self.clusters is None else sums_by(self.clusters, values, int(self.clusters.max()) + 1)

    @cached_property
    def sample_counts(self) -> Tensor | None:
        """Weights that sum to the effective size, (n,), so that each sample counts as so many; None without weights."""
        return None if self.weights is None else effective_counts(self.weights)

    def with_positive_weights(self) -> Self:
        """Return the samples that count at all."""
        return self if self.weights is None or bool(self.weights.all()) else self[self.weights > 0]

    def blocks(self, rows: int | None = None) -> Iterator[Self]:
        """Yield the samples in pieces of bounded size, which is larger for few classes."""
        step = rows or self._usual_rows
        if step >= len(self):  # so that cached numbers of these samples are reused
            yield self
            return
        for start in range(0, len(self), step):
            yield self[start : start + step]

    @property
    def _usual_rows(self) -> int:
        return ROWS_AT_ONCE


def by_unit(n: int, clusters: Tensor | None, assign: Callable[[int], Tensor]) -> Tensor:
    """Return what is assigned to each of n samples, or to each of their clusters, given how many these are, (n,)."""
    if clusters is None:
        return assign(n)
    codes = clusters.unique(return_inverse=True)[1]
    own = assign(int(codes.max()) + 1)
    return own[codes.to(own.device)]


S = TypeVar("S", bound=Samples)


@final
@dataclass(frozen=True, eq=False)
class TopLabel(Samples):
    """Confidence of the predicted class, and whether it was right.

    Args:
        confidence: Shape (n,), in 0..1.
        correct: Shape (n,), bool (or 0 and 1 of an integer type).
        log_odds: Shape (n,); computed from the confidence unless given. Rankings use it, because it differs where
            float32 confidences have rounded to 1.0.
        weights: Shape (n,), how many samples each stands for; only ratios matter, 0 counts nothing. None: all alike.
        clusters: Shape (n,), whole numbers or words: samples of one cluster, such as the answers to one question, are
            not independent. None: all are.

    Example:
        >>> top = TopLabel([0.9, 0.8, 0.7], [True, True, False])
        >>> len(top), top.accuracy
        (3, 0.6666666666666666)
    """

    confidence: Tensor
    correct: Tensor
    log_odds: Tensor = None  # type: ignore[assignment]  # filled in below
    weights: Tensor | None = None
    clusters: Tensor | None = None

    def __post_init__(self) -> None:
        confidence = check_real(as_tensor(self.confidence, "confidence"), "confidence").double()
        correct = as_tensor(self.correct, "correct").to(confidence.device)
        if confidence.ndim != 1 or correct.ndim != 1:
            raise InputError(
                f"confidence and correct must have shape (n,); got {tuple(confidence.shape)} and "
                f"{tuple(correct.shape)}."
            )
        check_same_length(confidence, "confidence", correct, "correct")
        check_rows(confidence.shape[0])
        check_unit_interval(
            confidence, "confidence", "Divide percentages by 100, and take the exponential of log-probabilities."
        )
        if correct.dtype != torch.bool:
            stray = ((correct != 0) & (correct != 1)).nonzero()
            if stray.numel():
                row = int(stray[0])
                raise InputError(f"correct must be true/false or 0/1; got {correct[row].item()} at ", Row(row), ".")
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
                    f"{float(confidence[row]):.4g} at {Row(row)}."
                )
        weights = None if self.weights is None else check_weights(self.weights, confidence)
        set_fields(self, confidence=confidence, correct=correct.to(torch.bool), log_odds=log_odds, weights=weights)
        set_fields(self, clusters=None if self.clusters is None else check_clusters(self.clusters, confidence))

    @classmethod
    def _trusted(
        cls,
        confidence: Tensor,
        correct: Tensor,
        log_odds: Tensor,
        weights: Tensor | None,
        clusters: Tensor | None = None,
    ) -> Self:
        """Build from checked columns."""
        made = object.__new__(cls)
        columns = {"confidence": confidence, "correct": correct, "log_odds": log_odds}
        set_fields(made, **columns, weights=weights, clusters=clusters)
        return made

    def _alike(self, weights: Tensor | None, clusters: Tensor | None) -> Self:
        return self._trusted(self.confidence, self.correct, self.log_odds, weights, clusters)

    @property
    def top(self) -> Self:
        return self

    @property
    def device(self) -> torch.device:
        return self.confidence.device

    @property
    def accuracy(self) -> float:
        """Share of correct predictions, by weight where there are weights."""
        if self.weights is None:
            return float(self.correct.double().mean())
        return float(self.weights[self.correct].sum() / self.weights.sum())

    def __len__(self) -> int:
        return self.confidence.shape[0]

    def __repr__(self) -> str:
        return f"TopLabel(n={len(self)}, {self.device})"

    def __getitem__(self, rows: slice | Tensor) -> Self:
        confidence, *others = select(rows, self.confidence, self.weights, self.clusters)
        return self._trusted(confidence, self.correct[rows], self.log_odds[rows], *others)


def effective_counts(weights: Tensor) -> Tensor:
    """Return weights, (n,), scaled so that they sum to Kish's effective number of samples, (Σ w)² / Σ w²."""
    return weights * (weights.sum() / weights.square().sum())


def counted_samples(samples: S) -> S:
    """Return the samples of positive weight, with weights that add up to their effective number; equal ones are none.

    The same evidence, and the form in which it is resampled.
    """
    if not isinstance(samples, Samples):
        got = f"got {type(samples).__name__}. Predictions.from_probs(p, y) makes one"
        raise InputError(f"samples must be Predictions or TopLabel; {got}.")
    if samples.n_clusters == len(samples):  # of one sample each
        samples = samples.with_clusters(None)
    if samples.weights is None:
        return samples
    if not bool(samples.weights.any()):
        raise InputError("weights must not all be 0; got only zeros for these samples.")
    kept = samples.with_positive_weights()
    assert kept.weights is not None
    return kept.with_weights(None if bool((kept.weights == kept.weights[0]).all()) else kept.sample_counts)


def check_clusters(clusters: object, samples: Tensor) -> Tensor:
    """Return the number of the cluster of every sample, int64 (n,), from whole numbers or words."""
    if isinstance(clusters, Words):
        words, missing = clusters, clusters.lacking(())
    else:
        values = clusters.cpu().numpy() if isinstance(clusters, Tensor) else np.asarray(clusters)
        if values.shape != samples.shape[:1]:
            got = f"got shape {values.shape}"
            raise InputError(f"clusters must be one number or word a sample, shape ({len(samples)},); {got}.")
        if values.dtype.kind == "O":
            values = np.array(["" if value is None else str(value) for value in values])
        words = encode(values)
        is_unequal = torch.from_numpy(values != values)  # noqa: PLR0124  # to itself: NaN, or a date that is none
        missing = words.lacking(()) if values.dtype.kind in "US" else is_unequal
    if missing.any():
        where = Row(int(missing.nonzero()[0]))
        raise InputError("clusters must name the cluster of every sample; got none at ", where, ". Name it or drop it.")
    if len(words.distinct) < 2:
        raise InputError("clusters must be two or more, since one shows no noise; got the same for all samples.")
    return words.codes.to(samples.device)


def check_unweighted(samples: Samples, what: str) -> None:
    """Refuse weights where they would be ignored."""
    if samples.weights is not None:
        raise InputError(f"{what} must be given samples without weights; got weights, which it would ignore.")


def select(
    rows: Any, column: Tensor, weights: Tensor | None, clusters: Tensor | None
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Return some rows of columns; an InputError if there are none, or for a single number."""
    if isinstance(rows, int) or getattr(rows, "ndim", 1) == 0:  # also of NumPy and torch
        raise InputError(
            f"samples must be selected by a slice, a mask or positions; got the one number {rows}. For one sample: "
            f"[{rows}:{rows + 1 or ''}]."
        )
    selected = column[rows]
    check_rows(len(selected))
    return selected, None if weights is None else weights[rows], None if clusters is None else clusters[rows]


def check_rows_are_samples(scores: Tensor, labels: Any) -> None:
    """Check that scores, (n, k), are not transposed: that there are not as many labels as columns."""
    is_flat = hasattr(labels, "__len__") and getattr(labels, "ndim", 1) == 1
    if is_flat and len(labels) == scores.shape[1] != scores.shape[0]:
        raise InputError(
            f"logits or probs must have a row for each sample; got {tuple(scores.shape)} and {len(labels)} labels. "
            "If the samples are the columns, transpose the array."
        )


def set_fields(record: object, **fields: Any) -> None:
    """Set fields of a frozen record."""
    for name, value in fields.items():
        object.__setattr__(record, name, value)
