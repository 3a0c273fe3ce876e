"""What one exponential per logit gives about every row of a block.

A block is small enough to stay in the processor's cache, so the several reads of it here cost little beside the one
``exp``. Everything is worked out on demand and in the block's own precision (float64 stays, the rest is float32);
the callers sum in float64.
"""

from functools import cached_property
from typing import final

import torch
from torch import Tensor

from calibrant.numerics.fast import argmax_rows, positions_above

__all__ = ["Softmax"]

# Below this the sum of the other classes' exponentials has lost digits to underflow.
_UNDERFLOW = 1e-30


@final
class Softmax:
    """The softmax of a block of logits, kept as ``exp(logit - top logit)`` with the top entry taken out.

    Taking the top entry (whose exponential is exactly 1) out of the sum is what keeps confidences near 1 apart:
    ``1 + rest`` rounds to 1 in float32 long before ``rest`` does.

    Args:
        logits: Shape (n, k), k >= 2, finite.
    """

    def __init__(self, logits: Tensor) -> None:
        logits = logits if logits.dtype == torch.float64 else logits.float()
        self._n, self._k = logits.shape
        self._starts = torch.arange(0, self._n * self._k, self._k, device=logits.device)
        self.top = argmax_rows(logits)
        highest = logits.reshape(-1).index_select(0, self._starts + self.top)
        self.gaps = logits - highest[:, None]
        self.others = self.gaps.exp()
        self.others.view(-1).index_fill_(0, self._starts + self.top, 0.0)
        self.rest = self.others @ self._ones
        self.total = self.rest + 1

    @cached_property
    def _ones(self) -> Tensor:
        # A matrix-vector product sums rows faster than a reduction when rows are short.
        return self.gaps.new_ones(self._k)

    @cached_property
    def log_total(self) -> Tensor:
        """Log of the sum of exponentials of the gaps, (n,)."""
        return self.rest.log1p()

    @cached_property
    def confidence(self) -> Tensor:
        """The largest probability, (n,)."""
        return 1 / self.total

    @cached_property
    def log_odds(self) -> Tensor:
        """Log-odds of the top class, minus the log-sum-exp of the other gaps: exact where the confidence is 1.0."""
        if self._k == 2:
            return -self.gaps.sum(dim=1)
        odds = -self.rest.log()
        lost = (self.rest < _UNDERFLOW).nonzero().flatten()
        if lost.numel():
            gaps = self.gaps[lost].double().scatter(1, self.top[lost, None], -torch.inf)
            odds[lost] = -gaps.logsumexp(dim=1).to(odds.dtype)
        return odds

    def probability_of(self, labels: Tensor) -> Tensor:
        """Probability of the given class in each row, (n,)."""
        exponential = self.others.view(-1).index_select(0, self._starts + labels)
        return torch.where(labels == self.top, self.confidence, exponential / self.total)

    def log_probability_of(self, labels: Tensor) -> Tensor:
        """Log-probability of the given class in each row, (n,)."""
        return self.gaps.view(-1).index_select(0, self._starts + labels) - self.log_total

    def entropy(self) -> Tensor:
        """Entropy in nats, (n,)."""
        return self.log_total - (self.others * self.gaps) @ self._ones / self.total

    def sum_of_squares(self) -> Tensor:
        """Sum of squared probabilities, (n,)."""
        return (self.others.square() @ self._ones + 1) / self.total.square()

    def class_sums(self) -> Tensor:
        """Sum over the rows of every class's probability, (k,)."""
        sums = self.confidence @ self.others
        return sums.index_add_(0, self.top, self.confidence)

    def others_above(self, threshold: float) -> tuple[Tensor, Tensor]:
        """Classes and probabilities of the entries above the threshold, without the top entries."""
        place = positions_above(self.others, self.total * threshold)
        probability = self.others.view(-1)[place] / self.total[place // self._k]
        return place % self._k, probability
