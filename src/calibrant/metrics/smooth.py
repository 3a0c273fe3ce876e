"""Calibration errors from kernel smoothing: no bins, so no bin edges to argue about."""

from dataclasses import dataclass
from typing import ClassVar, Unpack, final

import torch
from torch import Tensor

from calibrant.checks import check_positive
from calibrant.metrics.base import Family, Metric
from calibrant.metrics.bins import Grid
from calibrant.metrics.statistics import Gridded
from calibrant.numerics.binning import (
    cosine_transform,
    integrate,
    integrate_smoothed,
    inverse_cosine_transform,
    triweight_damping,
)
from calibrant.numerics.inverse_temperature import falling_root
from calibrant.paper import Paper
from calibrant.predictions import Arrays, Predictions, TopLabel

__all__ = ["KDEECE", "SECE", "SECEPrinted", "SmECE", "kde_ece", "sece", "sece_printed", "smece"]

_BLASIOK = Paper("Błasiok & Nakkiran", 2023, "Smooth ECE: Principled Reliability Diagrams via Kernel Smoothing",
                 "arXiv:2309.12236")  # fmt: skip
_ZHANG = Paper("Zhang et al.", 2020, "Mix-n-Match: Ensemble and Compositional Methods for Uncertainty Calibration in "
               "Deep Learning", "arXiv:2003.07329")  # fmt: skip
_WANG = Paper(
    "Wang & Golebiowski", 2024, "Towards Unbiased Calibration using Meta-Regularization", "arXiv:2303.15057", "eq. 5-7"
)

# Node spacings below which a kernel falls between the nodes.
_NARROWEST = 2
# An error that is none, where its logarithm is wanted.
_TINY = 1e-300


@final
@dataclass(frozen=True)
class SmECE(Metric):
    """Smooth calibration error: the integrated gap after smoothing at the one width that equals its own answer.

    Continuous in the predictions, with no bins and no knob.

    Formula: the σ with ∫|Σ_i (a_i − c_i) K_σ(t, c_i)|/n dt = σ, K_σ the Gaussian reflected at 0 and 1
    Estimator: on 1025 nodes, σ solved to 1e-7 (the reference code stops at 1e-3), no narrower than .002. The reflected
        kernel; the logit-normal one of the same paper gives another number (.408 against .413 on the same data).
    Bias: upward, about .34·n^(−1/3) on calibrated data.
    Cost: O(n) plus a fixed transform; the state is 2050 numbers.
    """

    name: ClassVar[str] = "smece"
    title: ClassVar[str] = "Smooth calibration error"
    family: ClassVar[Family] = "calibration"
    paper: ClassVar[Paper] = _BLASIOK
    lower_is_better: ClassVar[bool | None] = True

    @property
    def statistic(self) -> Gridded:
        """Answers on the nodes."""
        return Gridded()

    def value(self, state: Grid) -> Tensor:
        """The width at which error and width agree."""
        coefficients = cosine_transform(_residual(state))
        narrowest = state.total.new_tensor(_NARROWEST / (state.total.shape[-1] - 1))
        # The error falls with the width, so the answer lies between the error at the narrowest width and the error at
        # the width of that size. Below the narrowest one, its error there is the closest answer.
        most = integrate_smoothed(coefficients, narrowest)
        high = torch.maximum(most, narrowest)
        least = torch.maximum(integrate_smoothed(coefficients, high), narrowest * _TINY)
        low = torch.maximum(least, narrowest)
        # Its logarithm is nearly a straight line in that of the width: few steps settle it.
        log_root = falling_root(
            lambda log_width: integrate_smoothed(coefficients, log_width.exp()).clamp_(min=_TINY).log_() - log_width,
            low.log(),
            high.log(),
            at_high=least.log() - high.log(),
        )
        return torch.minimum(log_root.exp(), most)


@final
@dataclass(frozen=True)
class KDEECE(Metric):
    """Calibration error with accuracy and density both estimated by kernels.

    Formula: ∫|t − π̂(t)| p̂(t) dt, π̂ the smoothed accuracy (at most 1), p̂ the smoothed density, triweight kernel
        mirrored at 0 and 1, width 1.06 s n^(−1/5), s the standard deviation of the confidences
    Estimator: on 1025 nodes by fast transform. The authors' code overwrites its width with that of the right answers
        only, divided by 2^(1/5); the paper's width is used here.
    Bias: upward by noise, downward by smoothing over the steep end near 1.
    Cost: O(n) plus a fixed transform; the state is 2050 numbers.
    """

    name: ClassVar[str] = "kde_ece"
    title: ClassVar[str] = "Kernel-density calibration error"
    family: ClassVar[Family] = "calibration"
    paper: ClassVar[Paper] = _ZHANG
    lower_is_better: ClassVar[bool | None] = True

    @property
    def statistic(self) -> Gridded:
        """Answers on the nodes."""
        return Gridded()

    def value(self, state: Grid) -> Tensor:
        """Integrated gap under the smoothed density."""
        t, n = _nodes(state), state.total.sum(-1)
        mean = (state.total * t).sum(-1) / n
        spread = ((state.total * t.square()).sum(-1) / n - mean.square()).clamp(min=0).sqrt()
        width = (1.06 * spread * n ** (-1 / 5)).clamp(min=_NARROWEST / (t.numel() - 1))
        damping = triweight_damping(width, t.numel())
        density = inverse_cosine_transform(cosine_transform(state.total) * damping).clamp(min=0)
        right = inverse_cosine_transform(cosine_transform(state.right) * damping).clamp(min=0)
        # |t - π| p = |t p - right|, with right at most p.
        return integrate((t * density - torch.minimum(right, density)).abs()) / integrate(density)


@final
@dataclass(frozen=True)
class SECE(Metric):
    """Smooth expected calibration error of meta-regularisation, normalised, as a metric.

    Formula: 1/n Σ_i |Σ_j a_j K(c_i, c_j)/Σ_j K(c_i, c_j) − c_i|, K Gaussian of width 0.01
    Estimator: on 1025 nodes; each row is its own neighbour, as in the paper.
    Bias: upward: .087/.047/.010 at n = 128/512/10,000 on calibrated data, larger than ece's. Not the unbiased
        estimator, nor the upper bound of ece, that the paper calls it; for width → 0 it is the mean of |a − c|.
    Cost: O(n) plus a fixed transform; the state is 2050 numbers.
    """

    name: ClassVar[str] = "sece"
    title: ClassVar[str] = "Smooth ECE of meta-regularisation"
    family: ClassVar[Family] = "calibration"
    paper: ClassVar[Paper] = _WANG
    lower_is_better: ClassVar[bool | None] = True
    width: float = 0.01

    def __post_init__(self) -> None:
        check_positive(self.width, "width")

    @property
    def statistic(self) -> Gridded:
        """Answers on the nodes."""
        return Gridded()

    def value(self, state: Grid) -> Tensor:
        """Mean gap between the neighbours' accuracy and the own confidence."""
        t = _nodes(state)
        neighbours, right = (_gaussian_sums(mass, self.width) for mass in (state.total, state.right))
        gap = (right / neighbours.clamp(min=1e-300) - t).abs()
        return (gap * state.total).sum(-1) / state.total.sum(-1)


@final
@dataclass(frozen=True)
class SECEPrinted(Metric):
    """Equation 5 of the meta-regularisation paper as printed: no normaliser, and the row's own correctness.

    Kept so that the paper can be checked. It is no calibration error: it grows in proportion to n.

    Formula: 1/n Σ_i |a_i Σ_j K(c_i, c_j) − c_i|, K Gaussian of width 0.01
    Estimator: on 1025 nodes.
    Bias: not an estimator of a calibration error.
    Cost: O(n) plus a fixed transform; the state is 2050 numbers.
    """

    name: ClassVar[str] = "sece_printed"
    title: ClassVar[str] = "Smooth ECE, equation 5 as printed"
    family: ClassVar[Family] = "description"
    paper: ClassVar[Paper] = _WANG
    lower_is_better: ClassVar[bool | None] = None
    width: float = 0.01

    def __post_init__(self) -> None:
        check_positive(self.width, "width")

    @property
    def statistic(self) -> Gridded:
        """Answers on the nodes."""
        return Gridded()

    def value(self, state: Grid) -> Tensor:
        """Mean over rows, right and wrong ones apart."""
        t = _nodes(state)
        neighbours = _gaussian_sums(state.total, self.width)
        total = state.right * (neighbours - t).abs() + (state.total - state.right) * t
        return total.sum(-1) / state.total.sum(-1)


def _nodes(state: Grid) -> Tensor:
    return torch.linspace(0, 1, state.total.shape[-1], dtype=torch.float64, device=state.total.device)


def _residual(state: Grid) -> Tensor:
    """Correctness minus confidence at every node, per row."""
    return (state.right - state.total * _nodes(state)) / state.total.sum(-1, keepdim=True)


def _gaussian_sums(mass: Tensor, width: float) -> Tensor:
    """Σ_j mass_j exp(−(t_i − t_j)²/2w²) at every node, not reflected, by convolution."""
    m = mass.shape[-1]
    offsets = torch.arange(m, dtype=torch.float64, device=mass.device) / (m - 1)
    kernel = torch.exp(-(offsets / width).square() / 2)
    circle = torch.cat([kernel, kernel[1:-1].flip(-1)])
    spectrum = torch.fft.rfft(circle)
    smooth = torch.fft.irfft(torch.fft.rfft(mass, n=2 * (m - 1)) * spectrum, n=2 * (m - 1))
    return smooth[..., :m].clamp(min=0)


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
