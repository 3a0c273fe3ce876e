"""Logits as log-odds and back: of the predicted class alone, of every class against the rest.

Log-odds, not probabilities: a third of a good network's float32 confidences are exactly 1.0, and their log-odds are
still apart.
"""

import math

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

__all__ = ["class_log_odds", "top_log_odds", "with_top_log_odds"]

# The predicted class is kept ahead of the next by this share, so that rounding cannot change the prediction.
_AHEAD = 1e-4


def top_log_odds(logits: Tensor) -> tuple[Tensor, Tensor]:
    """The predicted class and its log-odds, (..., k) -> (..., 1) each."""
    top = logits.argmax(dim=-1, keepdim=True)
    others = logits.scatter(-1, top, -math.inf)
    return top, logits.gather(-1, top) - others.logsumexp(dim=-1, keepdim=True)


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


def with_top_log_odds(logits: Tensor, top: Tensor, log_odds: Tensor) -> Tensor:
    """Log-probabilities with the given log-odds of the predicted class; the others share the rest as before.

    The prediction stays what it was. Where the others' largest share would overtake it, they are made more alike, as
    far as needed; and below one class's fair share, 1/k, where that cannot help, the log-odds are lifted to it.

    Args:
        logits: Shape (..., k).
        top: The predicted class, (..., 1).
        log_odds: Its new log-odds, (..., 1).
    """
    others = logits.shape[-1] - 1
    log_odds = log_odds.clamp(min=_AHEAD - math.log(others))
    log_shares = logits.scatter(-1, top, -math.inf).log_softmax(dim=-1)
    fair, largest = 1 / others, log_shares.amax(dim=-1, keepdim=True).exp()
    log_shares = log_shares.scatter(-1, top, 0.0)  # a number, for the sake of gradients; replaced below
    # (1 - blend) * largest + blend * fair must stay below the odds of the predicted class.
    below = (log_odds - _AHEAD / 2).exp()
    blend = ((largest - below) / (largest - fair).clamp(min=1e-12)).clamp(0, 1 - _AHEAD / 100)
    needed = blend > 0
    blend = blend.where(needed, 0.5)
    blended = torch.logaddexp(log_shares + torch.log1p(-blend), (blend * fair).log())
    log_shares = torch.where(needed, blended, log_shares)
    return (logsigmoid(-log_odds) + log_shares).scatter(-1, top, logsigmoid(log_odds))
