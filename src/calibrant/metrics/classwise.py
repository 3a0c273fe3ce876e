"""Calibration errors class by class."""

from dataclasses import dataclass
from typing import ClassVar, Unpack, final

from torch import Tensor

from calibrant.metrics.base import Family, Metric
from calibrant.metrics.bins import ClassBins
from calibrant.metrics.statistics import BinnedByPrediction, BinnedClasswise
from calibrant.paper import Paper
from calibrant.predictions import Arrays, Predictions

__all__ = ["SCE", "TLECE", "sce", "tl_ece"]

_NIXON = Paper("Nixon et al.", 2019, "Measuring Calibration in Deep Learning", "arXiv:1904.01685")
_GUPTA = Paper("Gupta & Ramdas", 2022, "Top-label Calibration and Multiclass-to-binary Reductions",
               "arXiv:2107.08353")  # fmt: skip


@final
@dataclass(frozen=True)
class SCE(Metric):
    """Static calibration error, also called classwise ECE: the ece of every class's probability, averaged.

    Looks at all probabilities, not only the largest. With many classes nearly all of them are near 0 and so is their
    gap: compare values only at the same number of classes. The papers print it times 100 or 1000.

    Formula: 1/k Σ_k Σ_b |B_bk|/n · |share of class k in B_bk − mean p_k in B_bk|, all n rows binned by p_k
    Estimator: plug-in, bins (lo, hi]; the class count comes from the logits.
    Bias: upward, as ece.
    Cost: one pass over the probabilities; the state is 3 numbers a class and bin.
    """

    name: ClassVar[str] = "sce"
    title: ClassVar[str] = "Classwise calibration error"
    family: ClassVar[Family] = "calibration"
    paper: ClassVar[Paper] = _NIXON
    lower_is_better: ClassVar[bool | None] = True
    n_bins: int = 15

    @property
    def statistic(self) -> BinnedClasswise:
        """Bins of every class."""
        return BinnedClasswise(self.n_bins)

    def value(self, state: ClassBins) -> Tensor:
        """Mean over the classes of the summed gaps."""
        return self.by_class(state).mean(-1)

    def by_class(self, state: ClassBins) -> Tensor:
        """The error of every class, (..., k)."""
        n = state.count[..., 0, :].sum(-1)
        return (state.probability - state.hits).abs().sum(-1) / n[..., None]


@final
@dataclass(frozen=True)
class TLECE(Metric):
    """Top-label-conditional calibration error: as ece, with the rows binned by predicted class and confidence.

    Sees what ece averages away: a model overconfident on cats and as underconfident on dogs.

    Formula: Σ_k Σ_b |B_bk|/n · |acc(B_bk) − conf(B_bk)|, B_bk the rows predicted k with confidence in bin b
    Estimator: plug-in, bins (lo, hi].
    Bias: upward, and more than ece's: k times as many bins share the same rows. Read it beside its floor.
    Cost: O(n) after the softmax; the state is 3 numbers a class and bin.
    """

    name: ClassVar[str] = "tl_ece"
    title: ClassVar[str] = "Top-label-conditional ECE"
    family: ClassVar[Family] = "calibration"
    paper: ClassVar[Paper] = _GUPTA
    lower_is_better: ClassVar[bool | None] = True
    n_bins: int = 15

    @property
    def statistic(self) -> BinnedByPrediction:
        """Bins of every predicted class."""
        return BinnedByPrediction(self.n_bins)

    def value(self, state: ClassBins) -> Tensor:
        """Sum of all gaps."""
        return (state.probability - state.hits).abs().sum((-1, -2)) / state.count.sum((-1, -2))


def sce(*predictions: Predictions, n_bins: int = 15, **arrays: Unpack[Arrays]) -> float:
    """Classwise calibration error (:class:`SCE`)."""
    return SCE(n_bins)(*predictions, **arrays)


def tl_ece(*predictions: Predictions, n_bins: int = 15, **arrays: Unpack[Arrays]) -> float:
    """Top-label-conditional calibration error (:class:`TLECE`)."""
    return TLECE(n_bins)(*predictions, **arrays)
