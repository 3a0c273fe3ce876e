"""Bayesian binning into quantiles: no need to choose the number of bins, because all are averaged."""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, TypeAlias, final, get_args

import torch
from torch import Tensor

from calibrant.calibrators.base import Calibrator, CalibratorFamily, Fitted, floored_log_odds, floored_probs
from calibrant.calibrators.samples import top_label
from calibrant.checks import check_known, check_positive
from calibrant.maps import Steps, TopLabelMap
from calibrant.numerics.isotonic import Blocks, equal_mass_starts, tie_blocks
from calibrant.paper import Paper
from calibrant.predictions import Predictions

__all__ = ["BBQPrior", "BayesianBinning"]

BBQPrior: TypeAlias = Literal["bin", "binning"]

# Binnings of less posterior probability are left out: together they would move no answer by 1e-9.
_NEGLIGIBLE = 1e-12


@final
@dataclass(frozen=True)
class BayesianBinning(Calibrator):
    """Histograms of the confidence with every sensible number of equally filled bins, averaged by how likely each is.

    Spares the choice that histogram binning hangs on, and smooths its steps: few bins win on little data, more on
    plenty. The average still need not rise with the confidence, so a surer row can end below a less sure one. Only the
    confidence of the predicted class is calibrated, of two classes too; the others share the rest as before, so that of
    many classes the log-loss wants a temperature first (``temperature+bbq``).

    Formula: q = Σ_M P(M|D) (m_b + wp_b)/(N_b + w); P(M|D) ∝ Π_b β(m_b + wp_b, N_b − m_b + w − wp_b)/β(wp_b, w − wp_b),
        with the beta function β and p_b the middle of bin b, over n^⅓/C <= B <= C n^⅓ bins; w = N'/B in the paper
    Rows: 200 or more; with fewer it falls back towards one or two bins, and does no harm at 10.

    Args:
        range_factor: C: how far the number of bins may be from the cube root of the rows, as a factor.
        prior_rows: How many rows the prior is worth.
        prior_for: Whether w is that for every "bin" (as in the authors' program; safer with few rows), or is shared by
            all bins of a "binning" (as the paper is mostly read: N' = 2).

    Raises:
        InputError: If a number is not above 0, or the prior is for neither of the two.
    """

    name: ClassVar[str] = "bbq"
    title: ClassVar[str] = "Bayesian binning into quantiles"
    family: ClassVar[CalibratorFamily] = "binning"
    paper: ClassVar[Paper] = Paper(
        "Naeini et al.",
        2015,
        "Obtaining Well Calibrated Probabilities Using Bayesian Binning",
        "doi:10.1609/aaai.v29i1.9602",
    )
    preserves_accuracy: ClassVar[bool] = True
    preserves_ranking: ClassVar[bool] = False

    range_factor: float = 10.0
    prior_rows: float = 2.0
    prior_for: BBQPrior = "bin"

    def __post_init__(self) -> None:
        check_positive(self.range_factor, "range_factor")
        check_positive(self.prior_rows, "prior_rows")
        check_known(self.prior_for, get_args(BBQPrior), "prior_for")

    def learn(self, predictions: Predictions) -> Fitted:
        ties = tie_blocks(*top_label(predictions))
        binnings = self._binnings(ties, predictions.n_classes)
        posterior = torch.stack([each.log_likelihood for each in binnings]).softmax(0)
        # A mean of step functions is one step function: add up the jumps of each where its bins start.
        jumps = torch.zeros_like(ties.rows)
        for binning, weight in zip(binnings, posterior.tolist(), strict=True):
            if weight > _NEGLIGIBLE:
                jumps.index_add_(0, binning.starts, weight * binning.probs.diff(prepend=jumps.new_zeros(1)))
        starts = jumps.nonzero().flatten()
        values = floored_log_odds(jumps.cumsum(0)[starts], len(predictions))
        curve = Steps(ties.edges[starts[1:] - 1][None], values[None])
        return Fitted(TopLabelMap(curve, n_classes=predictions.n_classes))

    def _binnings(self, ties: Blocks, n_classes: int) -> list["_Binning"]:
        """One for each number of bins; ties can make two of them the same, which then counts once."""
        up_to, hits_up_to = ties.rows.cumsum(0), ties.hits.cumsum(0)
        root = float(up_to[-1]) ** (1 / 3)
        fewest, most = max(1, math.floor(root / self.range_factor)), math.ceil(root * self.range_factor)
        distinct = {tuple(equal_mass_starts(up_to, n_bins).tolist()) for n_bins in range(fewest, max(fewest, most) + 1)}
        binnings = []
        for starts in sorted(distinct, key=lambda each: (len(each), each)):
            first = torch.tensor(starts, device=up_to.device)
            last = torch.cat([first[1:], first.new_tensor([len(up_to)])]) - 1
            rows, hits = (each[last].diff(prepend=each.new_zeros(1)) for each in (up_to, hits_up_to))
            # Differs from the paper: the lowest bin starts at 1/k, not 0, as no confidence lies below.
            ends = torch.cat([up_to.new_tensor([1 / n_classes]), ties.edges[last[:-1]].sigmoid(), up_to.new_ones(1)])
            prior = floored_probs((ends[1:] + ends[:-1]) / 2, int(up_to[-1]))
            weight = self.prior_rows / (len(starts) if self.prior_for == "binning" else 1)
            binnings.append(_Binning(first, *_beta_binomial(rows, hits, weight * prior, weight * (1 - prior))))
        return binnings


class _Binning(NamedTuple):
    """Scores cut into bins."""

    starts: Tensor  # first distinct score of each bin, (b,)
    probs: Tensor  # of a hit in each bin, (b,)
    log_likelihood: Tensor  # of all hits and misses


def _beta_binomial(rows: Tensor, hits: Tensor, prior_hits: Tensor, prior_misses: Tensor) -> tuple[Tensor, Tensor]:
    """Mean of the posterior in each bin, (b,), and the log-likelihood of all bins together."""
    total = prior_hits + prior_misses
    log_likelihood = (
        (torch.lgamma(total) - torch.lgamma(rows + total))
        + (torch.lgamma(hits + prior_hits) - torch.lgamma(prior_hits))
        + (torch.lgamma(rows - hits + prior_misses) - torch.lgamma(prior_misses))
    )
    return (hits + prior_hits) / (rows + total), log_likelihood.sum()
