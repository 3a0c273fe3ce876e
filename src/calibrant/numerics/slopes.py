"""The log-loss, and its gradient, of one rising piecewise straight function applied to every log-probability."""

from typing import final

import torch
from torch import Tensor

from calibrant.numerics.fast import sort_in_place

__all__ = ["Slopes", "knots_for"]

# Log-probabilities of a row that say where knots are worth having: the others are small together.
_LARGEST = 10


def knots_for(log_probs: Tensor, pieces: int) -> Tensor:
    """Where to bend a function of log-probabilities: at equal shares of each row's ten largest, rising, (b,).

    Args:
        log_probs: Shape (n, k).
        pieces: One more than there are knots; ties can leave fewer, but at least one.
    """
    largest = log_probs.topk(min(_LARGEST, log_probs.shape[1]), dim=1).values.flatten()
    rising = sort_in_place(largest)
    places = torch.arange(1, pieces, device=rising.device) * len(rising) // pieces
    return rising[places].unique()


@final
class Slopes:
    """Mean log-loss plus a penalty on changes of slope, as a function of the slopes: convex.

    Args:
        log_probs: Shape (n, k), float64.
        labels: Shape (n,).
        knots: Rising, (b,), b >= 1.
        weight_decay: The penalty is this times the number of pieces times the summed squared changes, divided by n: a
            steady change over all pieces costs the same however many there are.
    """

    def __init__(self, log_probs: Tensor, labels: Tensor, knots: Tensor, *, weight_decay: float) -> None:
        self._n, self._labels, self._pieces = len(labels), labels[:, None], len(knots) + 1
        self._cell = torch.searchsorted(knots, log_probs)
        self._along = log_probs - knots[(self._cell - 1).clamp_(min=0)]
        self._widths = knots.diff()
        self._penalty = weight_decay * self._pieces / self._n

    def __call__(self, slopes: Tensor) -> tuple[Tensor, Tensor]:
        """The objective and its gradient, (b + 1,)."""
        # Pieces below and above the first knot both start there, at 0.
        starts = torch.cat([slopes.new_zeros(2), (slopes[1:-1] * self._widths).cumsum(dim=0)])
        logits = torch.addcmul(starts[self._cell], slopes[self._cell], self._along)
        log_total = logits.logsumexp(dim=1, keepdim=True)
        loss = (log_total - logits.gather(1, self._labels)).mean()
        residual = logits.sub_(log_total).exp_()
        residual.scatter_add_(1, self._labels, torch.full_like(log_total, -1.0))
        cell, pieces = self._cell.view(-1), self._pieces
        of_starts = torch.bincount(cell, residual.view(-1), minlength=pieces)
        of_slopes = torch.bincount(cell, residual.mul_(self._along).view(-1), minlength=pieces)
        # A slope also lifts every piece to its right.
        of_slopes[1:-1] += self._widths * of_starts.flip(0).cumsum(dim=0).flip(0)[2:]
        change = slopes.diff()
        bend = torch.cat([-change[:1], -change.diff(), change[-1:]])
        return loss + self._penalty * change.square().sum(), of_slopes / self._n + 2 * self._penalty * bend
