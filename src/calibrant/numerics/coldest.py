"""The inverse temperature that minimises a loss: a fit of one number that cannot fail in silence.

A few rows give the start, so that all rows are read about twice.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple, TypeAlias, final

import torch
from torch import Tensor

from calibrant.errors import FitError
from calibrant.numerics.certificate import Certificate
from calibrant.numerics.coldness import cold_rows
from calibrant.numerics.root import find_root

__all__ = ["BestColdness", "RowLoss", "best_coldness", "focal_loss", "log_loss"]

# Rows of the first, cheap search.
_FEW_ROWS = 500
# Inverse temperatures tried where the loss is not convex: a third apart.
_GRID = 65
# How many times finer or coarser than the logits' own spread a temperature may be.
_REACH = 1e4
# Relative error of the answer, and of the rough ones it starts from.
_FINE, _ROUGH = 2e-6, 2e-3
# How many times colder or hotter the minimum may be where it is said to be near.
_NEAR = 1.5
# Closer to an end of the bracket than this is at the end.
_INSIDE = 1 + 2e-3


class LossTerms(NamedTuple):
    """A loss of each row and its first two derivatives in the log-probability, (m,) each."""

    value: Tensor
    first: Tensor
    second: Tensor


RowLoss: TypeAlias = Callable[[Tensor], LossTerms]


def log_loss(log_prob: Tensor) -> LossTerms:
    """Minus the log-probability."""
    return LossTerms(-log_prob, log_prob.new_full((), -1.0), log_prob.new_zeros(()))


def focal_loss(log_prob: Tensor, *, gamma: float) -> LossTerms:
    """``-(1 - p)^γ ln p``."""
    p, q = log_prob.exp(), (-torch.expm1(log_prob)).clamp(min=1e-12)
    power, once = q**gamma, gamma * q ** (gamma - 1) * p
    first = once * log_prob - power
    second = once * (2 + log_prob - (gamma - 1) * p / q * log_prob)
    return LossTerms(-power * log_prob, first, second)


@final
@dataclass(frozen=True)
class BestColdness:
    """The inverse temperature, and how well it is known.

    ``end`` tells whether the loss still fell at an end of what is allowed: ``cold`` (sharper is always better, as
    where every prediction is right) or ``hot`` (flatter is always better, as where they are worse than guessing).
    """

    coldness: float
    certificate: Certificate
    low: float
    high: float
    end: Literal["inside", "cold", "hot"]


def best_coldness(
    logits: Tensor, labels: Tensor, *, loss: RowLoss = log_loss, near: float | None = None
) -> BestColdness:
    """Minimise the mean loss of ``softmax(coldness * logits)``.

    Ever more rows give the start, by steps of third order kept inside a bracket, so that one or two passes over all of
    them suffice. A loss that is not convex is first tried on a grid.

    Args:
        logits: Shape (n, k), finite, not all alike.
        labels: Shape (n,).
        loss: Of the label's log-probability; the log-loss is convex, others need only have their minimum where the few
            rows have theirs.
        near: Where the minimum was for about the same logits. It is then looked for there first, from the start on
            all rows.
    """
    low, high = _allowed(logits)
    around, start, passes = (low, high), (low * high) ** 0.5, 0.0
    seen: list[float] = []

    def derivatives(rows: Tensor, row_labels: Tensor, coldness: float) -> Sequence[float]:
        value, *slopes = _sums(rows, row_labels, loss, coldness)
        seen[:] = [value]
        return slopes

    on_all = partial(derivatives, logits, labels)
    if near is not None:
        beside = near / _NEAR, near * _NEAR
        found = find_root(on_all, start=near, low=beside[0], high=beside[1], tolerance=_FINE)
        if beside[0] * _INSIDE < found.value < beside[1] / _INSIDE:
            certificate = Certificate(seen[0], abs(found.residual), found.calls, found.calls)
            return BestColdness(found.value, certificate, found.low, found.high, "inside")
    for chosen in _subsamples(len(logits), logits.device):
        few = logits.index_select(0, chosen), labels.index_select(0, chosen)
        share = len(chosen) / len(logits)
        if loss is not log_loss and not passes:
            around, start = _around_the_lowest(*few, loss, low, high)
            passes += _GRID * share
        rough = find_root(partial(derivatives, *few), start=start, low=around[0], high=around[1], tolerance=_ROUGH)
        start, passes = rough.value, passes + rough.calls * share
    found = find_root(on_all, start=start, low=around[0], high=around[1], tolerance=_FINE)
    if around != (low, high) and not around[0] * _INSIDE < found.value < around[1] / _INSIDE:
        # All rows have their minimum elsewhere than the few that the grid was tried on.
        passes += found.calls
        found = find_root(on_all, start=found.value, low=low, high=high, tolerance=_FINE)
    certificate = Certificate(seen[0], abs(found.residual), found.calls, passes + found.calls)
    # A label that is not the top class has a probability of at most a half, however cold.
    one_wrong = float(loss(torch.tensor(math.log(0.5))).value) / len(logits)
    end: Literal["inside", "cold", "hot"] = "inside"
    if found.value * _INSIDE >= high or certificate.objective < one_wrong:
        end = "cold"
    elif found.value <= low * _INSIDE:
        end = "hot"
    return BestColdness(found.value, certificate, found.low, found.high, end)


def _allowed(logits: Tensor) -> tuple[float, float]:
    """The coldest and the hottest, by how far the top logit typically is from the others."""
    some = logits[:: max(1, len(logits) // 200)].double()
    spread = float((some.amax(dim=1) - some.mean(dim=1)).mean())
    if spread == 0:
        raise FitError("logits must differ within a row for a temperature to matter; got rows of equal logits.")
    return 1 / (spread * _REACH), _REACH / spread


def _subsamples(n: int, device: torch.device) -> Iterator[Tensor]:
    """Rows for the rough searches: a few, eight times as many, …, an eighth of all; all where they are few."""
    if n < 4 * _FEW_ROWS:
        yield torch.arange(n, device=device)
        return
    generator, size = torch.Generator().manual_seed(0), _FEW_ROWS
    while size < n // 8:
        yield torch.randint(n, (size,), generator=generator).to(device)
        size *= 8
    yield torch.randint(n, (max(n // 8, _FEW_ROWS),), generator=generator).to(device)


def _around_the_lowest(
    logits: Tensor, labels: Tensor, loss: RowLoss, low: float, high: float
) -> tuple[tuple[float, float], float]:
    """The lowest point of a grid, and the points beside it."""
    grid = [low * (high / low) ** (step / (_GRID - 1)) for step in range(_GRID)]
    values = [_sums(logits, labels, loss, coldness)[0] for coldness in grid]
    best = values.index(min(values))
    return (grid[max(best - 1, 0)], grid[min(best + 1, _GRID - 1)]), grid[best]


def _sums(logits: Tensor, labels: Tensor, loss: RowLoss, coldness: float) -> list[float]:
    """Mean loss and its derivatives in the inverse temperature, two, or of the log-loss three; added up in float64."""
    columns = 4 if loss is log_loss else 3
    sums = torch.zeros(columns, dtype=torch.float64, device=logits.device)
    for block in cold_rows(logits, labels, coldness):
        value, first, second = loss(block.log_prob)
        slope, curvature = -first * block.slope, second * block.slope.square() - first * block.curvature
        for place, each in enumerate((value, slope, curvature, block.bend)[:columns]):
            sums[place] += each.sum(dtype=torch.float64)
    found: list[float] = (sums / len(logits)).tolist()
    return found
