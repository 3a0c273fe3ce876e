"""The bars of a reliability diagram, and the range in which chance alone would leave them."""

from dataclasses import dataclass
from typing import Self, final

import numpy as np
import torch
from torch import Tensor

__all__ = ["ReliabilityBins", "binomial_range"]


@final
@dataclass(frozen=True, eq=False)
class ReliabilityBins:
    """Equal-width bins (lo, hi] that hold at least one row.

    The consistency band is where 95 of 100 calibrated models of the same confidences would have their accuracy. A bar
    inside its band is no evidence against calibration; of fifteen bars about one lies outside by chance.

    Differs from the paper: binomial quantiles at the bin's mean confidence, where it resamples the confidences. The
    spread of confidences inside a bin makes the exact range a little narrower (by about 1 part in 100 at 15 bins).

    Reference: Bröcker & Smith (2007), Increasing the Reliability of Reliability Diagrams, doi:10.1175/WAF993.1.
    """

    low: Tensor  # (b,) edges
    high: Tensor  # (b,)
    count: Tensor  # (b,) rows
    confidence: Tensor  # (b,) mean
    accuracy: Tensor  # (b,) share of right answers
    band_low: Tensor  # (b,)
    band_high: Tensor  # (b,)

    @classmethod
    def from_sums(cls, count: Tensor, confidence: Tensor, right: Tensor) -> Self:
        """From sums over the rows of every bin, (b,) each; empty bins are left out."""
        count, confidence, right = count.cpu(), confidence.cpu(), right.cpu()
        edges = torch.linspace(0, 1, count.shape[0] + 1, dtype=torch.float64)
        seen = count > 0
        count, low, high = count[seen], edges[:-1][seen], edges[1:][seen]
        mean = (confidence[seen] / count).clamp(0, 1)
        band_low, band_high = binomial_range(count, mean)
        return cls(low, high, count, mean, right[seen] / count, band_low, band_high)

    @property
    def gap(self) -> Tensor:
        """Accuracy minus confidence, (b,): negative where the model is overconfident."""
        return self.accuracy - self.confidence

    @property
    def outside(self) -> Tensor:
        """Whether the accuracy lies outside the consistency band, (b,), bool."""
        return (self.accuracy < self.band_low) | (self.accuracy > self.band_high)


def binomial_range(count: Tensor, probability: Tensor, *, level: float = 0.95) -> tuple[Tensor, Tensor]:
    """Range that the share of successes in ``count`` trials keeps to with at least this probability.

    Example:
        >>> low, high = binomial_range(torch.tensor([100.0]), torch.tensor([0.5]))
        >>> low.item(), high.item()
        (0.4, 0.6)
    """
    tail = (1 - level) / 2
    trials, chance = count.double().numpy(), probability.double().numpy()
    low, high = (torch.from_numpy(_binomial_quantile(q, trials, chance) / trials) for q in (tail, 1 - tail))
    return low, high


def _binomial_quantile(q: float, trials: np.ndarray, chance: np.ndarray) -> np.ndarray:
    """Fewest successes whose cumulative probability reaches q."""
    from scipy.special import bdtr, bdtrik

    whole = trials.astype(np.int64)
    # The continuous inverse rounded up, or one less where that rounding overshot; certain outcomes have no inverse.
    above = np.nan_to_num(np.ceil(bdtrik(q, whole, chance)))
    below = np.maximum(above - 1, 0)
    successes = np.where(bdtr(below, whole, chance) >= q, below, above)
    return np.where(chance >= 1, trials, np.where(chance <= 0, 0.0, successes))
