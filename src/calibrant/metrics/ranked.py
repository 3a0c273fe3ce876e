"""Metrics of ranked confidences: calibration errors without fixed bins, error detection, selective classification."""

from dataclasses import dataclass
from typing import Unpack, final

import torch
from torch import Tensor

from calibrant.checks import BinCount, Positive
from calibrant.metrics.base import Facts, RankMetric
from calibrant.metrics.states import Ranked, TopState, as_divisor
from calibrant.numerics.softmax import positions
from calibrant.paper import CORBIERE, GUPTA, KUMAR_18, Paper
from calibrant.predictions import Arrays, Predictions, TopLabel

__all__ = [
    "ACE", "AUGRC", "AURC", "AUROC", "EAURC", "FPR95", "KS", "MMCE", "AUPRError", "AUPRSuccess", "ace", "augrc",
    "aupr_error", "aupr_success", "aurc", "auroc", "e_aurc", "fpr95", "ks", "mmce",
]  # fmt: skip

_NGUYEN = Paper("Nguyen & O'Connor", 2015, "Posterior Calibration and Exploratory Analysis for Natural Language "
                "Processing Models", "arXiv:1508.05154")  # fmt: skip
_SINGH = Paper("Singh et al.", 2021, "On the Dark Side of Calibration for Modern Neural Networks", "arXiv:2106.09385",
               "eq. 4")  # fmt: skip
_GEIFMAN = Paper("Geifman et al.", 2019, "Bias-Reduced Uncertainty Estimation for Deep Neural Classifiers",
                 "arXiv:1805.08206")  # fmt: skip
_TRAUB = Paper("Traub et al.", 2024, "Overcoming Common Flaws in the Evaluation of Selective Classification Systems",
               "arXiv:2407.01032")  # fmt: skip

_ERROR: Facts = {"family": "calibration", "smallest_effect": 0.001, "largest": 1.0}
_DETECTION: Facts = {
    "lower_is_better": False, "smallest_effect": 0.005, "interval_method": "influence", "largest": 1.0,
}  # fmt: skip
_THRESHOLD: Facts = {"smallest_effect": 0.005, "interval_method": "threshold", "largest": 1.0}
_SELECTIVE: Facts = {"interval_method": "influence", "counts_all_samples": True, "largest": 1.0}


@final
@dataclass(frozen=True)
class ACE(RankMetric, name="ace", title="Adaptive calibration error", paper=_NGUYEN, **_ERROR):
    """Adaptive calibration error: as ece, with bins that hold equally many samples.

    Formula: Σ_b |B_b|/n · |acc(B_b) − conf(B_b)|, sizes differing by at most one
    Estimator: plug-in; bins cut by rank, each tied sample carrying its tie group's mean correctness, so that the order
        of the samples cannot matter. Weighted samples are cut at whole effective ones; one that lies across a cut is
        in both bins, in parts.
    Bias: upward, as ece.
    Cost: O(n log n); exact state 8 bytes per sample, or ``ranks=RankedCells()`` in bounded memory.
    """

    n_bins: BinCount = 15

    def value(self, state: TopState) -> Tensor:
        ranked = state.ranked.in_effective_samples()
        rank = ranked.cumulative_total
        drift = ranked.gap.cumsum(-1, dtype=torch.float64)
        # Inside a tie group the drift grows evenly: that is what exchangeable ties mean.
        steps = torch.arange(self.n_bins + 1, dtype=torch.float64, device=rank.device)
        edges = (ranked.n[..., None] * steps / self.n_bins + _ROUNDING).floor()
        edges[..., -1] = ranked.n  # an effective number of samples need not be whole
        at_edges = _interpolate(rank, drift, edges)
        return at_edges.diff(dim=-1).abs().sum(-1) / ranked.n


@final
@dataclass(frozen=True)
class KS(RankMetric, name="ks", title="Kolmogorov-Smirnov error", paper=GUPTA, **_ERROR):
    """Kolmogorov-Smirnov calibration error: the largest cumulative gap over the samples sorted by confidence. No bins.

    Formula: max_j |Σ_{i ≤ j} (a_i − c_i)|/n, i in order of confidence
    Estimator: plug-in; tied samples count together.
    Bias: upward, about 1.25·√(mean c(1 − c)/n) on calibrated data. Gaps that change sign along the confidence cancel.
    Cost: O(n log n); exact state 8 bytes per sample, or ``ranks=RankedCells()`` in bounded memory.
    """

    def value(self, state: TopState) -> Tensor:
        ranked = state.ranked
        return ranked.gap.cumsum(-1, dtype=torch.float64).abs_().amax(-1) / ranked.n


@final
@dataclass(frozen=True)
class MMCE(RankMetric, name="mmce", title="Maximum mean calibration error", paper=KUMAR_18, **_ERROR):
    """Maximum mean calibration error: the largest correlation of the gaps with a smooth function of confidence.

    Formula: √(Σ_ij (a_i − c_i)(a_j − c_j) exp(−|c_i − c_j|/0.4))/n
    Estimator: the V-statistic of the paper, exact in O(n log n): on sorted confidences the kernel factors into
        exp(−c_j/h)·exp(c_i/h), so a running sum replaces the double one.
    Bias: upward, about √(mean c(1 − c)/n) on calibrated data.
    Cost: O(n log n).
    """

    width: Positive = 0.4

    def value(self, state: TopState) -> Tensor:
        ranked = state.ranked
        gap, confidence = ranked.gap.double(), ranked.confidence.double()
        double_sum = gap.square().sum(-1)
        # Σ_{i<j} g_i g_j exp(−(c_j − c_i)/h), piece by piece along the confidence, so that no exponential overflows.
        piece = (confidence / (_REACH * self.width)).floor()
        running, reached = torch.zeros_like(double_sum), confidence[0]
        for size in torch.unique_consecutive(piece, return_counts=True)[1].tolist():
            here, confidence = confidence[:size], confidence[size:]
            part, gap = gap[..., :size], gap[..., size:]
            rising = torch.exp((here - here[0]) / self.width)
            running = running * torch.exp((reached - here[0]) / self.width)
            summed = (part * rising).cumsum(-1)
            before = running[..., None] + summed - part * rising
            double_sum = double_sum + 2 * (part / rising * before).sum(-1)
            running, reached = running + summed[..., -1], here[0]
        return double_sum.clamp(min=0).sqrt() / ranked.n


_ROUNDING = 1e-9  # by which a whole number may be missed
_REACH = 300  # kernel widths that one piece of the running sum may span


def _interpolate(x: Tensor, y: Tensor, at: Tensor) -> Tensor:
    """Piecewise linear through (0, 0) and (x, y), (..., m), at (..., b); x may lack the leading dimensions of y."""
    right = torch.searchsorted(x.contiguous(), at.contiguous()).clamp(max=x.shape[-1] - 1)
    left = (right - 1).clamp(min=0)
    first, leading = right == 0, (*y.shape[:-1], -1)
    x0 = torch.where(first, 0.0, x.gather(-1, left))
    y0 = torch.where(first, 0.0, y.gather(-1, left.expand(leading)))
    x1, y1 = x.gather(-1, right), y.gather(-1, right.expand(leading))
    share = (at - x0) / (x1 - x0).clamp(min=1e-12)
    return y0 + share.clamp(0, 1) * (y1 - y0)


def ace(*predictions: Predictions | TopLabel, n_bins: int = 15, **arrays: Unpack[Arrays]) -> float:
    """Calibration error over equal-mass bins (:class:`ACE`).

    Example:
        >>> ace(TopLabel([0.6] * 10, [True] * 5 + [False] * 5), n_bins=5)  # whatever the order of the samples
        0.1
    """
    return ACE(n_bins)(*predictions, **arrays)


def ks(*predictions: Predictions | TopLabel, **arrays: Unpack[Arrays]) -> float:
    """Kolmogorov-Smirnov calibration error (:class:`KS`)."""
    return KS()(*predictions, **arrays)


def mmce(*predictions: Predictions | TopLabel, **arrays: Unpack[Arrays]) -> float:
    """Maximum mean calibration error (:class:`MMCE`)."""
    return MMCE()(*predictions, **arrays)


@final
@dataclass(frozen=True)
class AUROC(RankMetric, name="auroc", title="AUROC of correctness", paper=_SINGH, **_DETECTION):
    """Probability that a right prediction is more confident than a wrong one (ties count half).

    0.5 is guessing, 1 perfect separation. Undefined (NaN) when all predictions are right, or all wrong.

    Formula: P(c_right > c_wrong) + ½ P(c_right = c_wrong)
    Estimator: exact, mid-ranks, on log-odds, so that confidences which round to 1.0 still count. (The rank formula
        printed in the paper exceeds 1; Hand and Till's correction is subtracted.)
    Bias: none.
    Cost: O(n log n); exact state 8 bytes per sample, or ``ranks=RankedCells()`` in bounded memory.
    """

    def value(self, state: TopState) -> Tensor:
        ranked = state.ranked
        above = (ranked.n_right[..., None] - ranked.cumulative_right).add_(ranked.right, alpha=0.5)
        pairs = ranked.n_right * (ranked.n - ranked.n_right)
        return above.mul_(ranked.wrong).sum(-1) / pairs


@final
@dataclass(frozen=True)
class AUPRSuccess(RankMetric, name="aupr_success", title="AUPR, right answers", paper=CORBIERE, **_DETECTION):
    """Average precision of finding right predictions by high confidence.

    Its baseline is the accuracy, not 0.5: compare only models of the same accuracy. NaN when all predictions are wrong.

    Formula: Σ_j (recall_j − recall_{j−1}) · precision_j, from the most confident down
    Estimator: step-wise average precision; tied samples enter together.
    Bias: slightly upward in small samples.
    Cost: O(n log n); exact state 8 bytes per sample, or ``ranks=RankedCells()`` in bounded memory.
    """

    def value(self, state: TopState) -> Tensor:
        ranked = state.ranked
        right_above, above = _from_the_top(ranked)
        return (ranked.right * right_above / as_divisor(above)).sum(-1) / ranked.n_right


@final
@dataclass(frozen=True)
class AUPRError(RankMetric, name="aupr_error", title="AUPR, wrong answers", paper=CORBIERE, **_DETECTION):
    """Average precision of finding wrong predictions by low confidence.

    Its baseline is the error rate: compare only models of the same accuracy. NaN when all predictions are right.

    Formula: Σ_j (recall_j − recall_{j−1}) · precision_j, from the least confident up
    Estimator: step-wise average precision; tied samples enter together.
    Bias: slightly upward in small samples.
    Cost: O(n log n); exact state 8 bytes per sample, or ``ranks=RankedCells()`` in bounded memory.
    """

    def value(self, state: TopState) -> Tensor:
        ranked = state.ranked
        wrong_below = ranked.cumulative_total - ranked.cumulative_right
        precision = wrong_below / as_divisor(ranked.cumulative_total)
        return (ranked.wrong * precision).sum(-1) / (ranked.n - ranked.n_right)


@final
@dataclass(frozen=True)
class FPR95(RankMetric, name="fpr95", title="FPR at 95 % TPR", paper=CORBIERE, **_THRESHOLD):
    """Share of the wrong predictions still accepted at the highest threshold that accepts 95 % of the right ones.

    NaN when all predictions are right, or all wrong.

    Formula: FPR at the largest threshold with TPR ≥ 0.95, right predictions positive
    Estimator: exact, no interpolation between thresholds.
    Bias: small; jumpy when wrong predictions are few.
    Cost: O(n log n); exact state 8 bytes per sample, or ``ranks=RankedCells()`` in bounded memory.
    """

    def value(self, state: TopState) -> Tensor:
        ranked = state.ranked
        right_above, above = _from_the_top(ranked)
        # The last place with enough right predictions is the threshold; 0.95 times a whole number needs some slack.
        enough = right_above >= (0.95 - 1e-12) * ranked.n_right[..., None]
        place = (enough.sum(-1, keepdim=True) - 1).clamp(min=0)
        wrong_above = (above - right_above).gather(-1, place).squeeze(-1)
        accepted = wrong_above / (ranked.n - ranked.n_right)
        return torch.where(ranked.n_right > 0, accepted, torch.nan)


def _from_the_top(ranked: Ranked) -> tuple[Tensor, Tensor]:
    """Return the right predictions, and all samples, at this confidence or higher."""
    right = ranked.n_right[..., None] - ranked.cumulative_right + ranked.right
    return right, ranked.n[..., None] - ranked.cumulative_total + ranked.total


def auroc(*predictions: Predictions | TopLabel, **arrays: Unpack[Arrays]) -> float:
    """Area under the ROC curve of telling right from wrong by confidence (:class:`AUROC`).

    Example:
        >>> auroc(TopLabel([0.9, 0.8, 0.7, 0.6], [True, True, False, True]))
        0.6666666666666666
    """
    return AUROC()(*predictions, **arrays)


def aupr_success(*predictions: Predictions | TopLabel, **arrays: Unpack[Arrays]) -> float:
    """Average precision of finding right predictions (:class:`AUPRSuccess`)."""
    return AUPRSuccess()(*predictions, **arrays)


def aupr_error(*predictions: Predictions | TopLabel, **arrays: Unpack[Arrays]) -> float:
    """Average precision of finding wrong predictions (:class:`AUPRError`)."""
    return AUPRError()(*predictions, **arrays)


def fpr95(*predictions: Predictions | TopLabel, **arrays: Unpack[Arrays]) -> float:
    """False-positive rate at 95 % true-positive rate (:class:`FPR95`)."""
    return FPR95()(*predictions, **arrays)


@final
@dataclass(frozen=True)
class AURC(RankMetric, name="aurc", title="Area under risk-coverage", paper=_GEIFMAN, **_SELECTIVE):
    """Area under the risk-coverage curve: mean error rate among the j most confident samples, over all j.

    Mixes accuracy and ranking; see e_aurc for the ranking alone.

    Formula: 1/n Σ_j (wrong predictions among the j most confident)/j
    Estimator: exact; among tied samples every order is equally likely, and the expectation over them is taken.
    Bias: none to speak of.
    Cost: O(n log n); exact state 8 bytes per sample, or ``ranks=RankedCells()`` in bounded memory.
    """

    def value(self, state: TopState) -> Tensor:
        ranked = state.ranked.in_effective_samples()
        accepted, wrong = _accepted_before(ranked)
        if ranked.right.ndim > 1:
            harmonic = torch.digamma(torch.cat([ranked.n[..., None], accepted], -1) + 1)
            steps = harmonic[..., :-1] - harmonic[..., 1:]  # an entry ends where the one above it begins
            return _group_risks(accepted, wrong, ranked.total, ranked.wrong, steps=steps).sum(-1) / ranked.n
        # Few ties: a lone sample adds (E + e)/(N + 1), and only groups and empty entries need the general sum.
        tied = positions(ranked.total != 1)
        columns = (accepted, wrong, ranked.total, ranked.wrong)
        before, *own = (column.index_select(0, tied) for column in columns)
        groups = _group_risks(before, *own, steps=_harmonic_between(before, before + own[1]))
        alone = wrong.add_(ranked.wrong).div_(accepted.add_(1))
        return (alone.sum() - alone.index_select(0, tied).sum() + groups.sum()) / ranked.n


@final
@dataclass(frozen=True)
class EAURC(RankMetric, name="e_aurc", title="Excess AURC", paper=_GEIFMAN, **_SELECTIVE):
    """Excess AURC: the area above that of a perfect ranking with the same accuracy.

    Formula: aurc − (the same with all wrong predictions last)
    Estimator: exact; the optimum is the finite sum, not its limit r + (1 − r) ln(1 − r), so the result is never
        negative.
    Bias: none to speak of.
    Cost: as aurc.
    """

    def value(self, state: TopState) -> Tensor:
        ranked = state.ranked.in_effective_samples()
        n, n_right = ranked.n, ranked.n_right
        # Σ_{j=1..wrong} j/(right + j) = wrong − right·(H_n − H_right)
        best = (n - n_right - n_right * _harmonic_between(n_right, n)) / n
        return (AURC().value(ranked) - best).clamp(min=0)


@final
@dataclass(frozen=True)
class AUGRC(RankMetric, name="augrc", title="Area under generalised risk-coverage", paper=_TRAUB, **_SELECTIVE):
    """Area under the generalised risk-coverage curve: mean share of samples that are accepted and wrong.

    Unlike aurc it does not let the few most confident samples decide.

    Formula: ∫ P(accepted and wrong) d coverage = (1 − auroc)·acc·(1 − acc) + ½(1 − acc)²
    Estimator: exact trapezoid; ties enter along a straight line.
    Bias: none.
    Cost: as aurc.
    """

    def value(self, state: TopState) -> Tensor:
        ranked = state.ranked
        _, wrong_before = _accepted_before(ranked)
        return (ranked.total * (wrong_before + ranked.wrong / 2)).sum(-1) / ranked.n.square()


def _accepted_before(ranked: Ranked) -> tuple[Tensor, Tensor]:
    """Return the samples, and the wrong ones, that are more confident than each entry."""
    accepted = ranked.n[..., None] - ranked.cumulative_total
    wrong = (ranked.cumulative_right - ranked.n_right[..., None]).add_(accepted)
    return accepted, wrong


def _harmonic_between(low: Tensor, high: Tensor) -> Tensor:
    """Sum of 1/j over low < j <= high."""
    return torch.digamma(high + 1) - torch.digamma(low + 1)


def _group_risks(accepted: Tensor, wrong_before: Tensor, total: Tensor, wrong: Tensor, *, steps: Tensor) -> Tensor:
    """Summed risk over each group of tied samples, in expectation over their order.

    A group of m samples with e wrong ones, after N samples with E wrong ones, adds
    ``Σ_{j=1..m} (E + j e/m)/(N + j) = e + (E − N e/m)(H_{N+m} − H_N)``, the last factor being ``steps``.
    """
    return wrong + (wrong_before - accepted * (wrong / as_divisor(total))) * steps


def aurc(*predictions: Predictions | TopLabel, **arrays: Unpack[Arrays]) -> float:
    """Area under the risk-coverage curve (:class:`AURC`)."""
    return AURC()(*predictions, **arrays)


def e_aurc(*predictions: Predictions | TopLabel, **arrays: Unpack[Arrays]) -> float:
    """Excess area under the risk-coverage curve (:class:`EAURC`)."""
    return EAURC()(*predictions, **arrays)


def augrc(*predictions: Predictions | TopLabel, **arrays: Unpack[Arrays]) -> float:
    """Area under the generalised risk-coverage curve (:class:`AUGRC`)."""
    return AUGRC()(*predictions, **arrays)
