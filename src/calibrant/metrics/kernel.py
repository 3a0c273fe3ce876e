"""Squared kernel calibration error: calibration of the whole probability vector, with a test."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self, Unpack, final

import torch
from torch import Tensor

from calibrant.checks import check_at_least, check_positive
from calibrant.errors import InputError
from calibrant.metrics.base import Family, LabelStatistic, Metric
from calibrant.metrics.states import Sums
from calibrant.metrics.statistics import full_predictions
from calibrant.numerics.binning import sums_by
from calibrant.numerics.softmax import positions
from calibrant.paper import Paper
from calibrant.predictions import Arrays, Predictions, TopLabel

__all__ = ["SKCE", "KernelFeatures", "skce"]

_WIDMANN = Paper("Widmann et al.", 2019, "Calibration Tests in Multi-class Classification: A Unifying Framework",
                 "arXiv:1910.11385")  # fmt: skip


# Numbers worked on at a time.
_BLOCK = 1 << 18
# The most numbers that are kept with the samples.
_KEPT = 1 << 22


@final
@dataclass(frozen=True, eq=False)
class FeatureSums(Sums):
    """Residuals summed against the kernel's features."""

    count: Tensor  # (...)
    squares: Tensor  # (...) sum of squared residual lengths
    product: Tensor  # (..., features, k)

    def reweighted(self, weights: Tensor) -> Self:
        """From g stacked states and weights (r, g), the r weighted sums; of their products only the lengths.

        Nothing else of a product is asked for, and they follow from the scalar products of the g states alone, where
        the sums would be 128 numbers a class each.
        """
        lengths = ((weights @ self._scalar_products) * weights).sum(dim=-1).clamp(min=0).sqrt()
        return type(self)(weights @ self.count, weights @ self.squares, lengths[..., None, None])

    @cached_property
    def _scalar_products(self) -> Tensor:
        """Of the products of g stacked states with each other, (g, g)."""
        products = self.product.flatten(1)
        return products @ products.T


@final
@dataclass(frozen=True)
class KernelFeatures(LabelStatistic):
    """Sum over the rows of (features of the probabilities) x (one-hot label minus probabilities).

    The features are cosines and sines at random frequencies, which make a Gaussian kernel in the limit. Any number of
    them is a proper kernel by itself, so the estimator is exact for that kernel, and it adds up over rows where the
    usual double sum does not.
    """

    width: float = 0.5
    features: int = 128
    seed: int = 0

    def __post_init__(self) -> None:
        check_positive(self.width, "width")
        check_at_least(self.features, 2, "features")
        if self.features % 2:  # each frequency gives a cosine and a sine
            raise InputError(f"features must be even; got {self.features}.")

    def __call__(self, rows: Predictions | TopLabel) -> FeatureSums:
        rows = full_predictions(rows)
        return FeatureSums.merge([self._of_block(block) for block in rows.blocks(max(1, _BLOCK // rows.n_classes))])

    def frequencies(self, k: int) -> Tensor:
        """Frequencies of the kernel for k classes, (k, features/2)."""
        generator = torch.Generator().manual_seed(self.seed)
        return torch.randn(k, self.features // 2, generator=generator, dtype=torch.float64) / self.width

    def of(self, probs: Tensor, frequencies: Tensor) -> Tensor:
        """Features of probability vectors, (n, k) -> (n, features); each row has length one."""
        angle = probs @ frequencies.to(probs.dtype)
        return torch.cat([torch.cos(angle), torch.sin(angle)], dim=1).mul_(math.sqrt(2 / self.features))

    def _probs_and_features(self, rows: Predictions) -> tuple[Tensor, Tensor]:
        """Probabilities, (n, k), and their features, (n, features), in float64.

        The value, the bootstrap and the calibrated labels all ask for them: unless they are large, they are kept.
        """

        def features() -> Tensor:
            return self.of(probs, self.frequencies(rows.n_classes).to(probs.device))

        if len(rows) * max(self.features, rows.n_classes) > _KEPT:
            probs = rows.logits.double().softmax(dim=1)
            return probs, features()
        probs = rows.keep("probs in float64", lambda: rows.logits.double().softmax(dim=1))
        return probs, rows.keep(self, features)

    def _of_block(self, block: Predictions) -> FeatureSums:
        probs, features = self._probs_and_features(block)
        residual = _residual(probs, block.labels)
        product = features.T @ residual
        return FeatureSums(product.new_tensor(float(len(block))), residual.square().sum(), product)

    def by_group(self, rows: Predictions, group: Tensor) -> FeatureSums:
        """The features are worked out once for all groups."""
        probs, features = self._probs_and_features(rows)
        residual = _residual(probs, rows.labels)
        count = torch.bincount(group)
        order, sizes = group.argsort(stable=True), count.tolist()
        pairs = zip(features[order].split(sizes), residual[order].split(sizes), strict=True)
        product = torch.stack([some.T @ other for some, other in pairs])
        return FeatureSums(count.double(), sums_by(group, residual.square().sum(dim=1), len(sizes)), product)

    def relabelled(self, rows: Predictions, labels: Tensor) -> FeatureSums:
        """The labels' rows of the identity are summed anew, the probabilities' part stays."""
        probs, features = self._probs_and_features(rows)
        expected = features.T @ probs
        lengths = probs.square().sum(dim=1) + 1
        squares = (lengths - 2 * probs.T.gather(0, labels)).sum(dim=1)
        # Most labels drawn are the class that is predicted: only the others are moved.
        most_likely = probs.argmax(dim=1)
        kept = torch.zeros_like(expected.T).index_add_(0, most_likely, features) - expected.T
        moved = positions((labels != most_likely).flatten())
        sample, first = moved % len(rows), moved // len(rows) * rows.n_classes
        some, sums = features.index_select(0, sample), kept.repeat(len(labels), 1)
        sums.index_add_(0, first + labels.flatten().index_select(0, moved), some)
        sums.index_add_(0, first + most_likely.index_select(0, sample), some, alpha=-1)
        product = sums.view(len(labels), rows.n_classes, -1).transpose(1, 2)
        return FeatureSums(torch.full_like(squares, len(rows)), squares, product)


def _residual(probs: Tensor, labels: Tensor) -> Tensor:
    """One-hot labels minus probabilities, (n, k)."""
    residual = -probs
    residual[torch.arange(len(labels), device=probs.device), labels] += 1
    return residual


@final
@dataclass(frozen=True)
class SKCE(Metric):
    """Squared kernel calibration error of the whole probability vector: zero exactly for a calibrated model.

    Sees any miscalibration of any class, not only of the top label. Its unit means little; its p-value is the point.
    Every class has frequencies of its own, so another order of the classes gives a slightly different kernel.

    Formula: 2/(n(n − 1)) Σ_{i<j} k(p_i, p_j) (e_{y_i} − p_i)·(e_{y_j} − p_j)
    Estimator: unbiased, exact for the kernel k(p, q) = mean of cos(ω·(p − q)) over 64 fixed Gaussian frequencies ω,
        which approximates exp(−‖p − q‖²/(2·0.5²)) and lets the double sum be taken row by row.
    Bias: none; may be negative.
    Cost: O(n k) times 128 features; the state is 128 numbers a class.
    """

    name: ClassVar[str] = "skce"
    title: ClassVar[str] = "Squared kernel calibration error"
    family: ClassVar[Family] = "calibration"
    paper: ClassVar[Paper] = _WIDMANN
    lower_is_better: ClassVar[bool | None] = True
    width: float = 0.5
    features: int = 128

    @property
    def statistic(self) -> KernelFeatures:
        """Residuals against features."""
        return KernelFeatures(self.width, self.features)

    def value(self, state: FeatureSums) -> Tensor:
        """Squared length of the sum, less the pairs of a row with itself."""
        pairs = (state.count * (state.count - 1)).clamp(min=1)
        return (state.product.square().sum((-1, -2)) - state.squares) / pairs


def skce(*predictions: Predictions, **arrays: Unpack[Arrays]) -> float:
    """Squared kernel calibration error (:class:`SKCE`)."""
    return SKCE()(*predictions, **arrays)
