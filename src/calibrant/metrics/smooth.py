"""Calibration errors by kernels: of the top label without bins, and of the whole probability vector."""

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Self, Unpack, final

import torch
from torch import Tensor

from calibrant.checks import Positive, check_at_least, check_positive
from calibrant.errors import InputError
from calibrant.metrics.base import DESCRIPTION, Facts, GridMetric, Metric
from calibrant.metrics.states import Grid, Gridded, LabelStatistic, Sums, effective_number, full_predictions, weighted
from calibrant.numerics import binning
from calibrant.numerics.inverse_temperature import root_of_decreasing
from calibrant.numerics.softmax import positions, row_blocks
from calibrant.paper import WANG_24, ZHANG, Paper
from calibrant.predictions import Arrays, Predictions, TopLabel

__all__ = [
    "KDEECE", "SECE", "SKCE", "SECEPrinted", "SmECE", "kde_ece", "sece", "sece_printed", "skce", "smece",
]  # fmt: skip

_BLASIOK = Paper("Błasiok & Nakkiran", 2023, "Smooth ECE: Principled Reliability Diagrams via Kernel Smoothing",
                 "arXiv:2309.12236")  # fmt: skip
_WIDMANN = Paper("Widmann et al.", 2019, "Calibration Tests in Multi-class Classification: A Unifying Framework",
                 "arXiv:1910.11385")  # fmt: skip

_SIGNED_ERROR: Facts = {"family": "calibration", "may_be_negative": True, "noise": "subtracted"}
_NARROWEST = 2  # node spacings below which a kernel falls between the nodes
_ALONE = 1e-9  # share of the pairs of different samples below which there is one sample only
_TINY = 1e-300  # an error that is none, where its logarithm is wanted


@final
@dataclass(frozen=True)
class SmECE(GridMetric, name="smece", title="Smooth calibration error", paper=_BLASIOK):
    """Smooth calibration error: the integrated gap after smoothing at the one width that equals its own answer.

    Continuous in the predictions, with no bins and no knob.

    Formula: the σ with ∫|Σ_i (a_i − c_i) K_σ(t, c_i)|/n dt = σ, K_σ the Gaussian reflected at 0 and 1
    Estimator: on 1025 nodes, σ solved to 1e-7 (the reference code stops at 1e-3), no narrower than .002. The reflected
        kernel; the logit-normal one of the same paper gives another number (.408 against .413 on the same data).
    Bias: upward, about .34·n^(−1/3) on calibrated data.
    Cost: O(n) plus a fixed transform; the state is 2050 numbers.
    """

    def value(self, state: Grid) -> Tensor:
        residual = state.right - state.total * state.nodes  # correctness minus confidence
        coefficients = binning.cosine_transform(residual / state.total.sum(-1, keepdim=True))
        narrowest = state.total.new_tensor(_NARROWEST / (state.total.shape[-1] - 1))
        # The error falls with the width, so the answer lies between the error at the narrowest width and the error at
        # the width of that size. Below the narrowest one, its error there is the closest answer.
        most = binning.integrate_smoothed(coefficients, narrowest)
        high = torch.maximum(most, narrowest)
        least = torch.maximum(binning.integrate_smoothed(coefficients, high), narrowest * _TINY)
        low = torch.maximum(least, narrowest)

        # Its logarithm is nearly a straight line in that of the width: few steps settle it.
        def excess(log_width: Tensor) -> Tensor:
            return binning.integrate_smoothed(coefficients, log_width.exp()).clamp_(min=_TINY).log_() - log_width

        log_root = root_of_decreasing(excess, low.log(), high.log(), at_high=least.log() - high.log())
        return torch.minimum(log_root.exp(), most)


@final
@dataclass(frozen=True)
class KDEECE(GridMetric, name="kde_ece", title="Kernel-density calibration error", paper=ZHANG):
    """Calibration error with accuracy and density both estimated by kernels.

    Formula: ∫|t − π̂(t)| p̂(t) dt, π̂ the smoothed accuracy (at most 1), p̂ the smoothed density, triweight kernel
        mirrored at 0 and 1, width 1.06 s n^(−1/5), s the standard deviation of the confidences
    Estimator: on 1025 nodes by fast transform. The authors' code overwrites its width with that of the right
        predictions only, divided by 2^(1/5); the paper's width is used here.
    Bias: upward by noise, downward by smoothing over the steep end near 1.
    Cost: O(n) plus a fixed transform; the state is 2050 numbers.
    """

    def value(self, state: Grid) -> Tensor:
        size = state.total.shape[-1]
        damping = binning.triweight_damping(state.kernel_width().clamp(min=_NARROWEST / (size - 1)), size)
        density, right = (binning.damped_density(mass, damping) for mass in (state.total, state.right))
        # |t - π| p = |t p - right|, with right at most p.
        return binning.integrate((state.nodes * density - torch.minimum(right, density)).abs()) / binning.integrate(
            density
        )


@final
@dataclass(frozen=True)
class SECE(GridMetric, name="sece", title="Smooth ECE of meta-regularisation", paper=WANG_24):
    """Smooth expected calibration error of meta-regularisation, normalised, as a metric.

    Formula: 1/n Σ_i |Σ_j a_j K(c_i, c_j)/Σ_j K(c_i, c_j) − c_i|, K Gaussian of width 0.01
    Estimator: on 1025 nodes; each sample is its own neighbour, as in the paper.
    Bias: upward: .087/.047/.010 at n = 128/512/10,000 on calibrated data, larger than ece's. Not the unbiased
        estimator, nor the upper bound of ece, that the paper calls it; for width → 0 it is the mean of |a − c|.
    Cost: O(n) plus a fixed transform; the state is 2050 numbers.
    """

    width: Positive = 0.01

    def value(self, state: Grid) -> Tensor:
        neighbours, right = (binning.gaussian_sums(mass, self.width) for mass in (state.total, state.right))
        gap = (right / neighbours.clamp(min=1e-300) - state.nodes).abs()
        return (gap * state.total).sum(-1) / state.total.sum(-1)


@final
@dataclass(frozen=True)
class SECEPrinted(Metric, name="sece_printed", title="Smooth ECE, equation 5 as printed", paper=WANG_24, **DESCRIPTION):
    """Equation 5 of the meta-regularisation paper as printed: no normaliser, and the sample's own correctness.

    Kept so that the paper can be checked. It is no calibration error: it grows in proportion to n.

    Formula: 1/n Σ_i |a_i Σ_j K(c_i, c_j) − c_i|, K Gaussian of width 0.01
    Estimator: on 1025 nodes.
    Bias: not an estimator of a calibration error.
    Cost: O(n) plus a fixed transform; the state is 2050 numbers.
    """

    statistic = Gridded()
    width: Positive = 0.01

    def value(self, state: Grid) -> Tensor:
        n = state.total.sum(-1, keepdim=True)
        of_weight_one = effective_number(n, state.squared_weights[..., None]) / n
        t, neighbours = state.nodes, binning.gaussian_sums(state.total, self.width) * of_weight_one
        total = state.right * (neighbours - t).abs() + (state.total - state.right) * t
        return total.sum(-1) / state.total.sum(-1)


def smece(*predictions: Predictions | TopLabel, **arrays: Unpack[Arrays]) -> float:
    """Smooth calibration error (:class:`SmECE`)."""
    return SmECE()(*predictions, **arrays)


def kde_ece(*predictions: Predictions | TopLabel, **arrays: Unpack[Arrays]) -> float:
    """Kernel-density calibration error (:class:`KDEECE`)."""
    return KDEECE()(*predictions, **arrays)


def sece(*predictions: Predictions | TopLabel, width: float = 0.01, **arrays: Unpack[Arrays]) -> float:
    """Smooth expected calibration error of meta-regularisation (:class:`SECE`)."""
    return SECE(width)(*predictions, **arrays)


def sece_printed(*predictions: Predictions | TopLabel, width: float = 0.01, **arrays: Unpack[Arrays]) -> float:
    """Equation 5 as printed (:class:`SECEPrinted`)."""
    return SECEPrinted(width)(*predictions, **arrays)


_BLOCK = 1 << 18  # numbers worked on at a time
_KEPT, _GPU_KEPT = 1 << 22, 1 << 26  # the most numbers that are kept with the samples


@final
@dataclass(frozen=True, eq=False)
class FeatureSums(Sums):
    """Residuals summed against the features of the kernel."""

    count: Tensor  # (...)
    squares: Tensor  # (...) sum of squared residual lengths, times the squared weights
    product: Tensor  # (..., features, k)
    squared_weights: Tensor  # (...) their sum, without weights the count

    def reweighted(self, weights: Tensor) -> Self:
        """Return r weighted sums from weights (r, g), of the products only their lengths.

        The value needs no more, and lengths follow from the scalar products of the g states, where the sums would be
        128 numbers per class each.
        """
        lengths = ((weights @ self._scalar_products) * weights).sum(dim=-1).clamp(min=0).sqrt()
        count, squares, squared_weights = (weights @ f for f in (self.count, self.squares, self.squared_weights))
        return type(self)(count, squares, lengths[..., None, None], squared_weights)

    @cached_property
    def _scalar_products(self) -> Tensor:  # of g stacked states with each other, (g, g)
        products = self.product.flatten(1)
        return products @ products.T


@final
@dataclass(frozen=True)
class KernelFeatures(LabelStatistic):
    """Sum over the samples of (features of the probabilities) x (one-hot label minus probabilities).

    The features are cosines and sines at random frequencies, which make a Gaussian kernel in the limit. Any number of
    them is a proper kernel by itself, so the estimator is exact for that kernel, and it adds up over samples where the
    usual double sum does not.
    """

    takes_weights = True

    width: float = 0.5
    features: int = 128
    seed: int = 0

    def __post_init__(self) -> None:
        check_positive(self.width, "width")
        check_at_least(self.features, 2, "features")
        if self.features % 2:  # each frequency gives a cosine and a sine
            raise InputError(f"features must be even; got {self.features}.")

    def __call__(self, samples: Predictions | TopLabel) -> FeatureSums:
        samples = full_predictions(samples)
        blocks = samples.blocks(max(1, _BLOCK // max(self.features, samples.n_classes)))
        return FeatureSums.merge([self._of_block(block) for block in blocks])

    def frequencies(self, k: int) -> Tensor:
        """Frequencies of the kernel for k classes, (k, features/2)."""
        return _directions(k, self.features // 2, self.seed) / self.width

    def of(self, probs: Tensor, frequencies: Tensor) -> Tensor:
        """Features of probability vectors, (n, k) -> (n, features); each has length one."""
        angle = probs @ frequencies.to(probs.dtype)
        features = probs.new_empty(len(probs), self.features)
        for place, wave in zip(features.chunk(2, dim=1), (torch.cos, torch.sin), strict=True):
            wave(angle, out=place)
        return features.mul_(math.sqrt(2 / self.features))

    def _probs_and_features(self, samples: Predictions) -> tuple[Tensor, Tensor]:
        """Return probabilities, (n, k), and their features, (n, features), in float64; kept unless they are large."""

        def features() -> Tensor:
            return self.of(probs, self.frequencies(samples.n_classes).to(probs.device))

        if self._is_large(samples):
            probs = samples.logits.double().softmax(dim=1)
            return probs, features()
        probs = samples.cached("probs in float64", lambda: samples.logits.double().softmax(dim=1))
        return probs, samples.cached(self, features)

    def _is_large(self, samples: Predictions) -> bool:
        most = _KEPT if samples.logits.device.type == "cpu" else _GPU_KEPT
        return len(samples) * max(self.features, samples.n_classes) > most

    def _of_block(self, block: Predictions) -> FeatureSums:
        probs, features = self._probs_and_features(block)
        residual = weighted(_label_residual(probs, block.labels), block.weights)
        product, weights = features.T @ residual, block.weights
        count = product.new_tensor(float(len(block))) if weights is None else weights.sum()
        squared_weights = count if weights is None else weights.square().sum()
        return FeatureSums(count, residual.square().sum(), product, squared_weights)

    def by_group(self, samples: Predictions, group: Tensor) -> FeatureSums:
        if self._is_large(samples):
            stacked = super().by_group(samples, group)
            assert isinstance(stacked, FeatureSums)
            return stacked
        probs, features = self._probs_and_features(samples)
        residual = weighted(_label_residual(probs, samples.labels), samples.weights)
        members = torch.bincount(group)
        order, sizes = group.argsort(stable=True), members.tolist()
        pairs = zip(features[order].split(sizes), residual[order].split(sizes), strict=True)
        product = torch.stack([some.T @ other for some, other in pairs])
        squares = binning.sums_by(group, residual.square().sum(dim=1), len(sizes))
        if samples.weights is None:
            return FeatureSums(members.double(), squares, product, members.double())
        masses = (samples.weights, samples.weights.square())
        count, squared_weights = (binning.sums_by(group, mass, len(sizes)) for mass in masses)
        return FeatureSums(count, squares, product, squared_weights)

    def states_for_labels(self, samples: Predictions, labels: Tensor) -> FeatureSums:
        probs, features = self._probs_and_features(samples)
        features, weights = weighted(features, samples.weights), samples.weights
        expected = features.T @ probs
        lengths = probs.square().sum(dim=1) + 1 - 2 * probs.T.gather(0, labels)
        squares = (lengths if weights is None else lengths * weights.square()).sum(dim=1)
        # Most labels drawn are the class that is predicted: only the others are moved.
        most_likely = probs.argmax(dim=1)
        kept = torch.zeros_like(expected.T).index_add_(0, most_likely, features) - expected.T
        sums = kept.repeat(len(labels), 1).view(len(labels), samples.n_classes, -1)
        for draws in row_blocks(len(labels), _BLOCK // (16 * len(samples))):
            drawn, some_sums = labels[draws], sums[draws].flatten(0, 1)
            moved = positions((drawn != most_likely).flatten())
            sample, first = moved % len(samples), moved // len(samples) * samples.n_classes
            some = features.index_select(0, sample)
            some_sums.index_add_(0, first + drawn.flatten().index_select(0, moved), some)
            some_sums.index_add_(0, first + most_likely.index_select(0, sample), some, alpha=-1)
        product = sums.transpose(1, 2)
        count = len(samples) if weights is None else float(weights.sum())
        squared_weights = count if weights is None else float(weights.square().sum())
        return FeatureSums(torch.full_like(squares, count), squares, product, torch.full_like(squares, squared_weights))


@lru_cache(maxsize=4)
def _directions(k: int, number: int, seed: int) -> Tensor:  # not to be changed
    return torch.randn(k, number, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _label_residual(probs: Tensor, labels: Tensor) -> Tensor:
    """One-hot labels minus probabilities, (n, k)."""
    residual = -probs
    residual[torch.arange(len(labels), device=probs.device), labels] += 1
    return residual


@final
@dataclass(frozen=True)
class SKCE(Metric, name="skce", title="Squared kernel calibration error", paper=_WIDMANN, **_SIGNED_ERROR):
    """Squared kernel calibration error of the whole probability vector: zero exactly for a calibrated model.

    Sees any miscalibration of any class, not only of the top label. Its unit means little; its p-value is the point.
    Every class has frequencies of its own, so another order of the classes gives a slightly different kernel.

    Formula: 2/(n(n − 1)) Σ_{i<j} k(p_i, p_j) (e_{y_i} − p_i)·(e_{y_j} − p_j)
    Estimator: unbiased, exact for the kernel k(p, q) = mean of cos(ω·(p − q)) over 64 fixed Gaussian frequencies ω,
        which approximates exp(−‖p − q‖²/(2·0.5²)) and lets the double sum be taken sample by sample.
    Bias: none; may be negative.
    Cost: O(n k) times 128 features; the state is 128 numbers per class.
    """

    width: float = 0.5
    features: int = 128

    @property
    def statistic(self) -> KernelFeatures:
        return KernelFeatures(self.width, self.features)

    def value(self, state: FeatureSums) -> Tensor:
        all_pairs = state.count.square()
        pairs = all_pairs - state.squared_weights
        pairs = torch.where(pairs > _ALONE * all_pairs, pairs, torch.inf)  # of a single sample there are none
        # Not the sum of squares, which would be another array as large as the state.
        return (torch.linalg.vector_norm(state.product, dim=(-1, -2)).square() - state.squares) / pairs


def skce(*predictions: Predictions, **arrays: Unpack[Arrays]) -> float:
    """Squared kernel calibration error (:class:`SKCE`)."""
    return SKCE()(*predictions, **arrays)
