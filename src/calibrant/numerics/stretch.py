"""The log-loss, and its gradient, of sorted logits whose gaps a small network stretches."""

import math
from typing import NamedTuple, Self, final

import torch
from torch import Tensor

__all__ = ["Network", "Stretch"]

# Numbers in a block: the dozen arrays of its size stay in a processor's last cache.
_BLOCK = 1 << 18
# No network's output is as large as this, but a step on the way may be, and its exponential must be a number.
_HUGE = 500.0
# softplus of this is 1: the gaps as they are.
_NEUTRAL = math.log(math.e - 1)


class Network(NamedTuple):
    """The weights, or what is left of a flat vector of them."""

    hidden_weight: Tensor  # (h, k)
    hidden_bias: Tensor  # (h,)
    out_weight: Tensor  # (k - 1, h)
    out_bias: Tensor  # ()

    @classmethod
    def read(cls, flat: Tensor, hidden: int, n_classes: int) -> Self:
        """From a flat vector, in the order of the fields."""
        shapes = ((hidden, n_classes), (hidden,), (n_classes - 1, hidden), ())
        parts = flat.split([math.prod(shape) for shape in shapes])
        return cls(*(part.view(shape) for part, shape in zip(parts, shapes, strict=True)))

    def flat(self) -> Tensor:
        """As one vector."""
        return torch.cat([part.reshape(-1) for part in self])


@final
class Stretch:
    """Mean log-loss plus a penalty on how far the weights are from a random start that stretches nothing.

    Inputs and outputs of the hidden layer are divided by the root of their number, so that one weight means as much
    in a small network as in a large one.

    Args:
        gaps: Between neighbours of each row's sorted logits, falling order, (n, k - 1), float64.
        seen: What the network sees of each row, of mean 0 and spread 1, (n, k), float64.
        label_rank: How many logits of the row stand before that of its label, (n,).
        hidden: Size of the hidden layer.
        weight_decay: The penalty is this times the squared distance, divided by n.
        seed: Of the start.
    """

    def __init__(
        self, gaps: Tensor, seen: Tensor, label_rank: Tensor, *, hidden: int, weight_decay: float, seed: int
    ) -> None:
        n, k = seen.shape
        self._gaps, self._seen, self._label_rank = gaps, seen / math.sqrt(k), label_rank
        self._hidden, self._share = hidden, 1 / math.sqrt(hidden)
        drawn = torch.randn(hidden, k, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(seen)
        zeros = seen.new_zeros
        self.start = Network(drawn, zeros(hidden), zeros(k - 1, hidden), zeros(())).flat()
        # The bias of the output is all that temperature scaling does, and so is free.
        self._penalty = torch.full_like(self.start, weight_decay / n)
        self._penalty[-1] = 0

    def __call__(self, flat: Tensor) -> tuple[Tensor, Tensor]:
        """The objective and its gradient."""
        n, k = self._seen.shape
        network = Network.read(flat, self._hidden, k)
        loss, gradient = flat.new_zeros(()), Network.read(torch.zeros_like(flat), self._hidden, k)
        step = max(1, _BLOCK // k)
        for start in range(0, n, step):
            loss += self._add_block(slice(start, start + step), network, gradient)
        away = flat - self.start
        return loss / n + self._penalty @ away.square(), gradient.flat() / n + 2 * self._penalty * away

    def _add_block(self, rows: slice, network: Network, gradient: Network) -> Tensor:
        """The summed loss of some rows; its gradient is added in place."""
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
        # A gap lowers all that stand after it; the residuals of a row sum to 0.
        of_given = residual.cumsum_(dim=1)[:, :-1].mul(gaps).mul_(grown.div_(1 + grown))
        of_hidden = (of_given @ network.out_weight).mul_(self._share).mul_(1 - hidden.square())
        gradient.hidden_weight.addmm_(of_hidden.T, seen)
        gradient.hidden_bias.add_(of_hidden.sum(dim=0))
        gradient.out_weight.addmm_(of_given.T, scaled)
        gradient.out_bias.add_(of_given.sum())
        return loss

    def network(self, flat: Tensor) -> Network:
        """Plain weights, without the division by roots and with the bias that stretches nothing."""
        k = self._seen.shape[1]
        weights = Network.read(flat, self._hidden, k)
        return Network(
            weights.hidden_weight / math.sqrt(k),
            weights.hidden_bias,
            weights.out_weight * self._share,
            weights.out_bias + _NEUTRAL,
        )
