"""Heads in two steps, a temperature first and the rest for it (SVS, SMS, ETS): how the temperature follows δ.

The temperature minimises the log-loss by itself, and not the sum that the rest of the head and δ minimise. So what it
does when δ moves changes that sum to first order. It moves as its own condition asks, Σ_i h_i(β) = 0 with h_i the
derivative of a row's log-loss in β = 1/T, and its part of the gradient is that of one more term a row, share · h_i.
"""

from typing import NamedTuple, final

import torch
from torch import Tensor, nn
from torch.func import functional_call

from calibrant.clamping.learning.objective import Objective
from calibrant.maps import ChainMap, Map, Mixture, Scale

__all__ = ["FirstTemperature", "follow_first_temperature"]

# A temperature further from its optimum than this, relative to it, stands at the edge of what is allowed, and stays.
_AT_THE_EDGE = 1e-2


@final
class FirstTemperature(NamedTuple):
    """What the temperature of a head's first step adds to the gradient in δ."""

    coldness: float  # β, as it stands
    share: float  # -(dF/dβ) / Σ h_i'(β), F being the mean loss behind the whole head

    def row_terms(self, logits: Tensor, labels: Tensor) -> Tensor:
        """A term a row, (n,), of logits (n, k): only its gradient means anything."""
        return self.share * _slopes(logits, labels, self.coldness)


def follow_first_temperature(
    head: Map, logits: Tensor, labels: Tensor, objective: Objective
) -> FirstTemperature | None:
    """What is needed to follow a head's first temperature; None for a head of one step, or whose first step stays.

    Args:
        head: Fitted to these rows.
        logits: Shape (n, k), finite.
        labels: Shape (n,).
        objective: Of the whole head.
    """
    if not isinstance(head, ChainMap | Mixture) or not isinstance(head.maps[0], Scale):
        return None
    coldness = 1 / float(head.maps[0].temperature)
    precise = logits.double()
    slope = float(_slopes(precise, labels, coldness).mean())
    curvature = float(_variances(precise, coldness).mean())
    if abs(slope) > _AT_THE_EDGE * coldness * curvature:
        return None
    return FirstTemperature(coldness, -_loss_slope(head, precise, labels, coldness, objective) / curvature)


@torch.enable_grad()
def _loss_slope(head: nn.Module, logits: Tensor, labels: Tensor, coldness: float, objective: Objective) -> float:
    """How the mean loss behind the whole head changes with β, all its other numbers standing still."""
    leaf = torch.tensor(coldness, dtype=torch.float64, device=logits.device, requires_grad=True)
    calibrated = functional_call(head, {"maps.0.temperature": 1 / leaf}, (logits,))
    (slope,) = torch.autograd.grad(objective.sample_losses(calibrated, labels).mean(), leaf)
    return float(slope)


def _slopes(logits: Tensor, labels: Tensor, coldness: float) -> Tensor:
    """The derivative of each row's log-loss in β, (n,): the expected logit less the label's."""
    expected = ((coldness * logits).softmax(dim=1) * logits).sum(dim=1)
    return expected - logits.gather(1, labels[:, None])[:, 0]


def _variances(logits: Tensor, coldness: float) -> Tensor:
    """The second derivative, (n,): the variance of the logit."""
    probs = (coldness * logits).softmax(dim=1)
    return (probs * (logits - (probs * logits).sum(dim=1, keepdim=True)).square()).sum(dim=1)
