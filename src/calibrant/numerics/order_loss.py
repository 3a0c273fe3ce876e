"""Log-loss, and its gradient, of functions that keep the order of a sample's logits."""

import math
from typing import NamedTuple, Self, final

import torch
from torch import Tensor

from calibrant.numerics.softmax import sort_in_place

# Log-probabilities per sample that place the knots: the others are small together.
_LARGEST = 10


def knots_for(log_probs: Tensor, pieces: int) -> Tensor:
    """Return knots of a function of log-probabilities (n, k), rising, (b,), 1 <= b < pieces.

    They are quantiles of each sample's ten largest; ties can leave fewer.
    """
    largest = log_probs.topk(min(_LARGEST, log_probs.shape[1]), dim=1).values.flatten()
    rising = sort_in_place(largest)
    places = torch.arange(1, pieces, device=rising.device) * len(rising) // pieces
    return rising[places].unique()


@final
class SlopeLoss:
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
        """Return the objective and its gradient, (b + 1,)."""
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
        second = torch.cat([-change[:1], -change.diff(), change[-1:]])
        return loss + self._penalty * change.square().sum(), of_slopes / self._n + 2 * self._penalty * second


# Numbers in a block: the dozen arrays of its size stay in a processor's last cache.
_BLOCK = 1 << 18
# No fitted output is as large as this, but a trial step's may be, and its exponential must be finite.
_HUGE = 500.0
# softplus of this is 1: gaps stay unchanged.
_NEUTRAL = math.log(math.e - 1)


class StretchWeights(NamedTuple):
    """The weights of the network, or parts of a flat vector of them."""

    hidden_weight: Tensor  # (h, k)
    hidden_bias: Tensor  # (h,)
    out_weight: Tensor  # (k - 1, h)
    out_bias: Tensor  # ()

    @classmethod
    def read(cls, flat: Tensor, hidden: int, n_classes: int) -> Self:
        """Split a flat vector, in the order of the fields."""
        shapes = ((hidden, n_classes), (hidden,), (n_classes - 1, hidden), ())
        parts = flat.split([math.prod(shape) for shape in shapes])
        return cls(*(part.view(shape) for part, shape in zip(parts, shapes, strict=True)))

    def flat(self) -> Tensor:
        """Return them as one vector."""
        return torch.cat([part.reshape(-1) for part in self])


@final
class GapStretchLoss:
    """Mean log-loss plus a penalty on the distance of the weights from a random start that stretches nothing.

    Inputs and outputs of the hidden layer are divided by the root of their number, so that a weight means as much in a
    small network as in a large one.

    Args:
        gaps: Gaps between neighbours of each sample's logits, sorted in falling order, (n, k - 1), float64.
        seen: Inputs of the network, of mean 0 and spread 1, (n, k), float64.
        label_rank: Number of logits of the sample ahead of its label's, (n,).
        hidden: Size of the hidden layer.
        weight_decay: The penalty is this times the squared distance, divided by n.
        seed: Random seed of the initial weights.
    """

    def __init__(
        self, gaps: Tensor, seen: Tensor, label_rank: Tensor, *, hidden: int, weight_decay: float, seed: int
    ) -> None:
        n, k = seen.shape
        self._gaps, self._seen, self._label_rank = gaps, seen / math.sqrt(k), label_rank
        self._hidden, self._share = hidden, 1 / math.sqrt(hidden)
        drawn = torch.randn(hidden, k, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(seen)
        zeros = seen.new_zeros
        self.start = StretchWeights(drawn, zeros(hidden), zeros(k - 1, hidden), zeros(())).flat()
        # The output's bias is a temperature, and so is not penalised.
        self._penalty = torch.full_like(self.start, weight_decay / n)
        self._penalty[-1] = 0

    def __call__(self, flat: Tensor) -> tuple[Tensor, Tensor]:
        """Return the objective and its gradient."""
        n, k = self._seen.shape
        network = StretchWeights.read(flat, self._hidden, k)
        loss, gradient = flat.new_zeros(()), StretchWeights.read(torch.zeros_like(flat), self._hidden, k)
        step = max(1, _BLOCK // k)
        for start in range(0, n, step):
            loss += self._add_block(slice(start, start + step), network, gradient)
        away = flat - self.start
        return loss / n + self._penalty @ away.square(), gradient.flat() / n + 2 * self._penalty * away

    def _add_block(self, rows: slice, network: StretchWeights, gradient: StretchWeights) -> Tensor:
        """Return the summed loss of some samples; add its gradient in place."""
        gaps, seen, label = self._gaps[rows], self._seen[rows], self._label_rank[rows, None]
        hidden = torch.addmm(network.hidden_bias, seen, network.hidden_weight.T).tanh_()
        scaled = hidden * self._share
        given = torch.addmm(network.out_bias + _NEUTRAL, scaled, network.out_weight.T)
        grown = given.clamp_(max=_HUGE).exp_()
        below = grown.log1p().mul_(gaps).cumsum_(dim=1)
        # The largest logit is 0, the j-th minus what lies below the first j.
        logits = torch.cat([torch.zeros_like(below[:, :1]), below.neg_()], dim=1)
        label_logit = logits.gather(1, label)
        powers = logits.exp_()  # at most 1, and at least one of them is
        total = powers.sum(dim=1, keepdim=True)
        loss = (total.log() - label_logit).sum()
        residual = powers.div_(total).scatter_add_(1, label, torch.full_like(total, -1.0))
        # A gap lowers all logits after it; the residuals of a sample sum to 0.
        of_given = residual.cumsum_(dim=1)[:, :-1].mul(gaps).mul_(grown.div_(1 + grown))
        of_hidden = (of_given @ network.out_weight).mul_(self._share).mul_(1 - hidden.square())
        gradient.hidden_weight.addmm_(of_hidden.T, seen)
        gradient.hidden_bias.add_(of_hidden.sum(dim=0))
        gradient.out_weight.addmm_(of_given.T, scaled)
        gradient.out_bias.add_(of_given.sum())
        return loss

    def network(self, flat: Tensor) -> StretchWeights:
        """Return plain weights, without the division by roots and with the bias that stretches nothing."""
        k = self._seen.shape[1]
        weights = StretchWeights.read(flat, self._hidden, k)
        return StretchWeights(
            weights.hidden_weight / math.sqrt(k),
            weights.hidden_bias,
            weights.out_weight * self._share,
            weights.out_bias + _NEUTRAL,
        )
