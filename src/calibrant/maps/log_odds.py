"""Logits as log-odds and back: of the predicted class alone, of every class against the rest.

Log-odds, not probabilities: a third of a good network's float32 confidences are exactly 1.0, and their log-odds are
still apart.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

__all__ = ["Top", "class_log_odds", "top_log_odds", "with_top_log_odds"]

# The predicted class is kept ahead of the next by this share, so that rounding cannot change the prediction.
_AHEAD = 1e-4


class Top(NamedTuple):
    """The predicted class of each row, (..., 1) each."""

    predicted: Tensor
    log_odds: Tensor
    log_rest: Tensor  # log-sum-exp of the other logits


def top_log_odds(logits: Tensor) -> Top:
    """The predicted class and its log-odds, (..., k) -> (..., 1) each."""
    highest, predicted = logits.max(dim=-1, keepdim=True)
    log_rest = logits.scatter(-1, predicted, -math.inf).logsumexp(dim=-1, keepdim=True)
    return Top(predicted, highest - log_rest, log_rest)


def class_log_odds(logits: Tensor) -> Tensor:
    """Log-odds of every class against all others, (..., k)."""
    highest, top = logits.max(dim=-1, keepdim=True)
    others = logits.scatter(-1, top, -math.inf)
    second = others.amax(dim=-1, keepdim=True)
    powers = (others - second).exp()
    rest = powers.sum(dim=-1, keepdim=True)
    # Against any class but the predicted one stands that one, whose power is 1, so that nothing cancels.
    against = (rest - powers) * (second - highest).exp() + 1
    return (logits - highest - against.log()).scatter(-1, top, highest - second - rest.log())


def with_top_log_odds(logits: Tensor, top: Top, log_odds: Tensor) -> Tensor:
    """Log-probabilities with the given log-odds of the predicted class; the others share the rest as before.

    The prediction stays what it was. Where the others' largest share would overtake it, they are made more alike, as
    far as needed; and below one class's fair share, 1/k, where that cannot help, the log-odds are lifted to it.

    Args:
        logits: Shape (..., k).
        top: What :func:`top_log_odds` says of them.
        log_odds: The new log-odds of the predicted class, (..., 1).
    """
    log_odds = log_odds.clamp(min=_AHEAD - math.log(logits.shape[-1] - 1))
    log_shares = logits - top.log_rest
    # Above even odds nothing can overtake. Which rows are below is known only once there are numbers in them.
    below_even = log_odds < 0
    if torch.compiler.is_compiling():
        log_shares = torch.where(below_even, _held_back(log_shares, top.predicted, log_odds), log_shares)
    elif below_even.any():
        rows = below_even[..., 0]
        log_shares[rows] = _held_back(log_shares[rows], top.predicted[rows], log_odds[rows])
    return (log_shares + logsigmoid(-log_odds)).scatter(-1, top.predicted, logsigmoid(log_odds))


def _held_back(log_shares: Tensor, top: Tensor, log_odds: Tensor) -> Tensor:
    """Shares of the other classes, mixed with equal ones until the largest is below the predicted class's odds."""
    fair = 1 / (log_shares.shape[-1] - 1)
    largest = log_shares.scatter(-1, top, -math.inf).amax(dim=-1, keepdim=True).exp()
    log_shares = log_shares.scatter(-1, top, 0.0)  # a small number, for the sake of gradients; replaced later
    below = (log_odds - _AHEAD / 2).exp()
    blend = ((largest - below) / (largest - fair).clamp(min=1e-12)).clamp(0, 1 - _AHEAD / 100)
    needed = blend > 0
    blend = blend.where(needed, 0.5)
    blended = torch.logaddexp(log_shares + torch.log1p(-blend), (blend * fair).log())
    return torch.where(needed, blended, log_shares)
