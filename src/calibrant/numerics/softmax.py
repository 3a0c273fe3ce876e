"""What one exponential per logit tells about every row: the one pass behind all metrics.

The pass works in blocks small enough for the processor's cache, so that the several reads of a block cost little beside
its ``exp``, and leaves a few numbers a row. It runs in the logits' own precision (float64 stays, the rest is float32);
whoever sums over rows does so in float64.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Self, final

import torch
from torch import Tensor

from calibrant.numerics.fast import argmax_of_few, argmax_rows, columns_first, positions_above

__all__ = ["SoftmaxRows", "Wanted"]

# Numbers in a block. On a GPU blocks only bound the memory.
_BLOCK, _GPU_BLOCK = 1 << 20, 1 << 26
# Up to this many classes a block is turned on its side: its rows are too short to reduce along.
_FEW = 32
# Below this the sum of the other classes' exponentials has lost digits to underflow.
_UNDERFLOW = 1e-30
# Odds against the top class below which a confidence in float32 has too few digits left to tell them.
_DIGITS_LEFT = 2.0**-12


@final
@dataclass(frozen=True)
class Wanted:
    """Which of the optional sums the pass should take along."""

    entropy: bool = False
    squares: bool = False
    above: float = 1.0  # sum the classes, and list the probabilities above this; 1 for neither

    def __or__(self, other: Self) -> Self:
        return type(self)(self.entropy or other.entropy, self.squares or other.squares, min(self.above, other.above))

    def covers(self, other: Self) -> bool:
        """Whether whoever wants the other is served by this one."""
        return self | other == self


@final
class SoftmaxRows:
    """Softmax of each row, kept as sums of ``exp(logit - top logit)`` with the top entry taken out.

    Taking the top entry (whose exponential is exactly 1) out of the sum is what keeps confidences near 1 apart:
    ``1 + rest`` rounds to 1 in float32 long before ``rest`` does.

    Args:
        logits: Shape (n, k), k >= 2, finite.
        labels: Shape (n,).
        wanted: Optional sums to take along.
        normalised: The logits are logarithms of given probabilities. The confidence is then the given one, not one
            minus a sum of the others, so that rows given the same confidence keep the same.

    Attributes:
        top: Class of the largest logit, the first on a tie, (n,).
        rest: Sum of the others' exponentials, (n,).
        log_odds: Log-odds of the top class, exact where the confidence rounds to 1, (n,).
        label_gap: Label's logit minus top logit, (n,).
        other_sums: Sum over the rows of every class's probability where it is not the top one, (k,), float64.
    """

    def __init__(self, logits: Tensor, labels: Tensor, wanted: Wanted, *, normalised: bool = False) -> None:
        n, k = logits.shape
        dtype = torch.float64 if logits.dtype == torch.float64 else torch.float32
        few = k <= _FEW and logits.device.type == "cpu"
        step = min(n, max(1, (_BLOCK if logits.device.type == "cpu" else _GPU_BLOCK) // k))
        empty = torch.empty(5, n, dtype=dtype, device=logits.device)
        self.rest, self.log_odds, self.label_gap, self._weighted_gap, self._squares = empty
        self.top = torch.empty(n, dtype=torch.int64, device=logits.device)
        self.wanted, self._normalised = wanted, normalised
        self.other_sums = torch.zeros(k, dtype=torch.float64, device=logits.device)
        self._other_classes: list[Tensor] = []
        self._other_probabilities: list[Tensor] = []
        # Memory that every block uses anew: fresh memory would cost as much as the arithmetic.
        space = torch.empty(3, step * k, dtype=dtype, device=logits.device)
        for start in range(0, n, step):
            rows = slice(start, min(start + step, n))
            block = logits[rows].to(dtype)
            shape = (k, len(block)) if few else (len(block), k)
            if few:
                block = columns_first(block)
            self._pass(block, labels[rows], rows, few, *(part[: block.numel()].view(shape) for part in space))

    def _pass(self, block: Tensor, labels: Tensor, rows: slice, few: bool, gaps: Tensor, others: Tensor, product: Tensor) -> None:
        k, n = block.shape if few else block.shape[::-1]
        # Everything below reads the block flat: entry (row, class) lies at row * across + class * down.
        across, down = (1, n) if few else (k, 1)
        top = self.top[rows]
        top.copy_(argmax_of_few(block) if few else argmax_rows(block))
        starts = torch.arange(0, n * across, across, device=block.device)
        top_place = torch.add(starts, top, alpha=down)
        highest = block.view(-1).index_select(0, top_place)
        torch.sub(block, highest if few else highest[:, None], out=gaps)
        label_place = torch.add(starts, labels, alpha=down)
        torch.index_select(gaps.view(-1), 0, label_place, out=self.label_gap[rows])
        torch.exp(gaps, out=others)
        others.view(-1).index_fill_(0, top_place, 0.0)

        ones = block.new_ones(k)

        def sum_classes(values: Tensor, out: Tensor) -> None:
            torch.mv(values.T if few else values, ones, out=out)

        rest = self.rest[rows]
        sum_classes(others, rest)
        if self._normalised:
            _trust_the_top(rest, highest)
        self.log_odds[rows] = _log_odds(rest, gaps.T if few else gaps, top)
        if self.wanted.entropy:
            sum_classes(torch.mul(others, gaps, out=product), self._weighted_gap[rows])
        if self.wanted.squares:
            sum_classes(torch.mul(others, others, out=product), self._squares[rows])
        if self.wanted.above < 1:
            total = rest + 1
            confidence = total.reciprocal()
            self.other_sums += others @ confidence if few else confidence @ others
            threshold = total.mul_(self.wanted.above)
            place = positions_above(others, threshold if few else threshold[:, None])
            # Exact integer division, by way of floats: several times faster than dividing integers.
            length = n if few else k
            line = place.double().add_(0.5).mul_(1 / length).long()
            column = torch.sub(place, line, alpha=length)
            row, classes = (column, line) if few else (line, column)
            self._other_classes.append(classes)
            exponential = others.view(-1).index_select(0, place)
            self._other_probabilities.append(exponential.mul_(confidence.index_select(0, row)))

    @cached_property
    def confidence(self) -> Tensor:
        """The largest probability, (n,)."""
        return (self.rest + 1).reciprocal_()

    @cached_property
    def log_total(self) -> Tensor:
        """Log of the sum of all exponentials, (n,)."""
        return (self.rest + 1).log_()

    @cached_property
    def label_probability(self) -> Tensor:
        """Probability of the label, (n,)."""
        return self.label_gap.exp().mul_(self.confidence)

    def nll(self) -> Tensor:
        """Minus the log-probability of the label, (n,)."""
        return self.log_total - self.label_gap

    def entropy(self) -> Tensor:
        """Entropy in nats, (n,)."""
        return torch.addcmul(self.log_total, self._weighted_gap, self.confidence, value=-1)

    def brier(self) -> Tensor:
        """Squared distance to the one-hot label, summed over the classes, (n,)."""
        return (self._squares + 1).mul_(self.confidence.square()).sub_(self.label_probability, alpha=2).add_(1)


    def top_entries(self) -> tuple[Tensor, Tensor]:
        """Classes and probabilities of the largest entry of every row."""
        return self.top, self.confidence

    def other_entries(self) -> tuple[Tensor, Tensor]:
        """Classes and probabilities of the other entries that lie above the wanted threshold."""
        return torch.cat(self._other_classes), torch.cat(self._other_probabilities)


def _trust_the_top(rest: Tensor, log_confidence: Tensor) -> None:
    """Put the odds that follow from the given confidence in place of the summed ones, where rounding leaves digits."""
    odds_against = torch.expm1(-log_confidence)
    torch.where(odds_against > _DIGITS_LEFT, odds_against, rest, out=rest)


def _log_odds(rest: Tensor, gaps: Tensor, top: Tensor) -> Tensor:
    """Minus the log-sum-exp of the other classes' gaps."""
    if gaps.shape[1] == 2:  # exact, so that a temperature cannot change the order
        return -gaps.sum(dim=1)
    odds = rest.log().neg_()
    if rest.min() < _UNDERFLOW:
        lost = (rest < _UNDERFLOW).nonzero().flatten()
        exact = gaps[lost].double().scatter(1, top[lost, None], -torch.inf)
        odds[lost] = -exact.logsumexp(dim=1).to(odds.dtype)
    return odds
