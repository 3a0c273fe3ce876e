"""Maps that keep the order of a sample's logits: gaps stretched by a network, or one increasing curve.

The largest logit becomes exactly 0 and every other one minus the sum of the gaps above it, so that a gap, however
small, remains a gap after rounding, and equal logits stay equal.
"""

from typing import Literal, TypeAlias, final

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from calibrant.checks import check_known
from calibrant.maps.base import Map, Setting, require, rises
from calibrant.maps.curves import below_the_largest

Sees: TypeAlias = Literal["given", "sorted"]

# No gap is stretched by less: it would vanish beside others, or in rounding.
_LEAST = 1e-4


@final
class OrderPreservingMap(Map, kind="order_preserving"):
    """Every gap between neighbours in a sample's sorted logits, times a positive number that a small network gives.

    The network has one hidden layer, sees the sample's log-probabilities after temperature scaling, and gives a number
    for each gap. Adding a constant to a sample's logits therefore changes nothing.

    Args:
        beta: Inverse temperature, a single number.
        centre: Subtracted from the log-probabilities, (k,).
        hidden_weight: Shape (h, k).
        hidden_bias: Shape (h,).
        out_weight: Shape (k - 1, h); row j is for the gap below the (j + 1)-th largest logit.
        out_bias: A single number.
        sees: The log-probabilities of class 0, 1, … ("given"), or the largest, the second largest, … ("sorted"): the
            names of the classes then play no part.
    """

    def __init__(
        self,
        beta: Tensor,
        centre: Tensor,
        hidden_weight: Tensor,
        hidden_bias: Tensor,
        out_weight: Tensor,
        out_bias: Tensor,
        *,
        n_classes: int,
        sees: Sees = "given",
    ) -> None:
        super().__init__(n_classes, keeps_predicted=True)
        check_known(sees, ("given", "sorted"), "sees")
        self.sees = sees
        self.keep(beta=beta, centre=centre, hidden_weight=hidden_weight, hidden_bias=hidden_bias)
        self.keep(out_weight=out_weight, out_bias=out_bias)

    def settings(self) -> dict[str, Setting]:
        return {"sees": self.sees}

    def check_numbers(self) -> None:
        _check_beta(self.beta)
        k, h = self.n_classes, len(self.hidden_bias) if self.hidden_bias.ndim else 0
        shapes = {"centre": (k,), "hidden_weight": (h, k), "hidden_bias": (h,), "out_weight": (k - 1, h)}
        for name, shape in shapes.items():
            values = self.get_buffer(name)
            require(values.shape == shape, f"{name} must have shape {shape}, with {k} classes and {h} units", values)
        require(self.out_bias.numel() == 1, "out_bias must be a single number", self.out_bias)

    def calibrated(self, logits: Tensor) -> Tensor:
        depths, _ = below_the_largest(logits)
        ranked, order = depths.sort(dim=-1, descending=True, stable=True)
        beta = self.beta.to(logits)
        seen = ((ranked if self.sees == "sorted" else depths) * beta).log_softmax(dim=-1)
        seen = seen.clamp(min=-(torch.finfo(seen.dtype).max ** 0.5))  # sums of these stay finite
        hidden = torch.tanh(
            (seen - self.centre.to(logits)) @ self.hidden_weight.to(logits).T + self.hidden_bias.to(logits)
        )
        # softplus(x) as -logsigmoid(-x), which is rounded alike at every position of an array.
        steepness = hidden @ self.out_weight.to(logits).T + self.out_bias.to(logits)
        stretch = (-logsigmoid(-steepness)).clamp(min=_LEAST)
        # Multiplied after the subtractions: rounding before them could close a gap.
        gaps = (ranked[..., :-1] - ranked[..., 1:]) * (stretch * beta)
        below = torch.cat([torch.zeros_like(ranked[..., :1]), -gaps.cumsum(dim=-1)], dim=-1)
        return torch.zeros_like(logits).scatter(-1, order, below)


@final
class MonotoneMap(Map, kind="monotone"):
    """One increasing function of every log-probability: linear between knots, and beyond the first and the last.

    Args:
        beta: Inverse temperature, a single number.
        knots: Rising, (b,), b >= 1.
        slopes: Below the first knot, between each two, above the last; all above 0, (b + 1,).
    """

    def __init__(self, beta: Tensor, knots: Tensor, slopes: Tensor, *, n_classes: int) -> None:
        super().__init__(n_classes, keeps_predicted=True, beta=beta, knots=knots, slopes=slopes)

    def check_numbers(self) -> None:
        _check_beta(self.beta)
        b = self.knots.numel()
        sized = b > 0 and self.knots.shape == (b,)
        require(sized and rises(self.knots), "knots must be a rising line of numbers, at least one", self.knots)
        require(self.slopes.shape == (b + 1,), f"slopes must be {b + 1}, one more than there are knots", self.slopes)
        require((self.slopes > 0).all(), "slopes must be above 0", self.slopes)

    def calibrated(self, logits: Tensor) -> Tensor:
        beta = self.beta.to(logits)
        depths, _ = below_the_largest(logits)
        depth = -depths * beta
        curved = self._curve((depths * beta).log_softmax(dim=-1))
        below = curved.amax(dim=-1, keepdim=True) - curved
        # Values close to the largest logit have lost their digits; they lie at least the least slope times their depth
        # below.
        below = torch.maximum(below, depth * self.slopes.to(logits).min())
        return torch.where(depth > 0, -below, 0.0)

    def _curve(self, at: Tensor) -> Tensor:
        knots, slopes = self.knots.to(at), self.slopes.to(at)
        reached = torch.cat([torch.zeros_like(knots[:1]), (slopes[1:-1] * knots.diff()).cumsum(dim=0)])
        cell = torch.searchsorted(knots, at.contiguous())
        left = (cell - 1).clamp(min=0)
        value = reached[left] + slopes[cell] * (at - knots[left])
        # Rounding must not lift the end of a piece above the start of the next.
        ceiling = torch.cat([reached, torch.full_like(reached[:1], torch.inf)])
        return torch.minimum(value, ceiling[cell])


def _check_beta(beta: Tensor) -> None:
    require(beta.numel() == 1, "beta must be a single number", beta)
    require(beta > 0, "beta must be above 0", beta)
