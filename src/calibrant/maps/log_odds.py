"""Logits as log-odds and back: of the predicted class alone, of every class against the rest.

Log-odds, not probabilities: a third of a good network's float32 confidences are exactly 1.0, and their log-odds are
still apart.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from calibrant.numerics.fast import argmax_rows, logaddexp

__all__ = [
    "Top",
    "below_the_largest",
    "class_log_odds",
    "predicted_log_odds",
    "top_log_odds",
    "with_predicted_ahead",
    "with_top_log_odds",
]

# The predicted class is kept ahead of the next by this share, so that rounding cannot change the prediction.
_AHEAD = 1e-4


class Top(NamedTuple):
    """The predicted class of each row and its log-odds, (..., 1), and how the others share the rest, (..., k)."""

    predicted: Tensor
    log_odds: Tensor
    log_shares: Tensor  # minus infinity for the predicted class


def below_the_largest(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Each logit minus its row's largest, (..., k), and the class of that, (..., 1): no large offset costs digits."""
    highest, predicted = logits.max(dim=-1, keepdim=True)
    return (logits - highest).clamp_(min=torch.finfo(logits.dtype).min / 4), predicted


def top_log_odds(logits: Tensor) -> Top:
    """The predicted class, its log-odds and the shares of the others, of logits (..., k)."""
    predicted, log_odds, depths = _top_and_others(logits)
    return Top(predicted, log_odds, depths + log_odds)


def predicted_log_odds(logits: Tensor) -> tuple[Tensor, Tensor]:
    """The predicted class and its log-odds, (..., 1) each, as :func:`top_log_odds` gives them."""
    return _top_and_others(logits)[:2]


def _top_and_others(logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The predicted class, its log-odds, and the others' logits minus its own, with minus infinity in its place."""
    depths, predicted = below_the_largest(logits)
    others = depths.scatter_(-1, predicted, -math.inf)
    return predicted, -others.logsumexp(dim=-1, keepdim=True), others


def class_log_odds(logits: Tensor) -> Tensor:
    """Log-odds of every class against all others, (..., k)."""
    depths, top = below_the_largest(logits)
    others = depths.scatter(-1, top, -math.inf)
    second = others.amax(dim=-1, keepdim=True)
    powers = (others - second).exp()
    rest = powers.sum(dim=-1, keepdim=True)
    # Against any class but the predicted one stands that one, whose power is 1, so that nothing cancels.
    against = (rest - powers) * second.exp() + 1
    return (depths - against.log()).scatter(-1, top, -second - rest.log())


def with_top_log_odds(top: Top, log_odds: Tensor) -> Tensor:
    """Log-probabilities with the given log-odds of the predicted class; the others share the rest as before.

    The prediction stays what it was. Where the others' largest share would overtake it, they are made more alike, as
    far as needed; and below one class's fair share, 1/k, where that cannot help, the log-odds are lifted to it.

    Args:
        top: The predicted class and the shares of the others, from :func:`top_log_odds`.
        log_odds: The new log-odds of the predicted class, (..., 1).
    """
    log_shares = top.log_shares
    log_odds = log_odds.clamp(min=_AHEAD - math.log(log_shares.shape[-1] - 1))
    # Above even odds nothing can overtake. Which rows are below is known only once there are numbers in them.
    overtaken = log_odds < _AHEAD
    if torch.compiler.is_compiling():
        log_shares = torch.where(overtaken, _held_back(log_shares, log_odds), log_shares)
    elif overtaken.any():
        rows, log_shares = overtaken[..., 0], log_shares.clone()
        log_shares[rows] = _held_back(log_shares[rows], log_odds[rows])
    return (log_shares + logsigmoid(-log_odds)).scatter(-1, top.predicted, logsigmoid(log_odds))


def with_predicted_ahead(values: Tensor, logits: Tensor) -> Tensor:
    """The same numbers, in which the class of the largest logit comes first.

    Rows in which it does are left alone. In the others, where rounding made it tie with a class before it, it is put
    ahead of the largest by the least that the type can hold, and beside small numbers by its ``eps``.

    Args:
        values: What a map makes of the logits, (..., k), finite, in the type it is returned in.
        logits: Shape (..., k).
    """
    if _is_plain(values) and _is_plain(logits):
        flat = values.shape[-1]
        if torch.equal(argmax_rows(logits.detach().reshape(-1, flat)), argmax_rows(values.detach().reshape(-1, flat))):
            return values  # nearly always: rounding seldom makes a tie
    _, predicted = logits.max(dim=-1, keepdim=True)
    highest, first = values.max(dim=-1, keepdim=True)
    lost = first != predicted
    limits = torch.finfo(values.dtype)
    step = highest.abs().clamp(min=1) * limits.eps
    ahead = (highest + step).clamp(max=limits.max)
    # Ahead of the largest finite number there is no room: the others step back.
    others = values.minimum((ahead - step).where(lost, limits.max))
    return others.scatter(-1, predicted, ahead.where(lost, values.gather(-1, predicted)))


def _is_plain(values: Tensor) -> bool:
    """Whether there are numbers in the tensor now, on a CPU, that numpy can read."""
    return (
        not torch.compiler.is_compiling()
        and torch._C._get_tracing_state() is None
        and not torch._C._are_functorch_transforms_active()
        and type(values) in (Tensor, torch.nn.Parameter)
        and values.device.type == "cpu"
        and values.dtype in (torch.float32, torch.float64)
    )


def _held_back(log_shares: Tensor, log_odds: Tensor) -> Tensor:
    """Shares of the other classes, mixed with equal ones until the largest is below the predicted class's odds."""
    fair = 1 / (log_shares.shape[-1] - 1)
    largest = log_shares.amax(dim=-1, keepdim=True).exp()
    below = (log_odds - _AHEAD / 2).exp()
    blend = ((largest - below) / (largest - fair).clamp(min=1e-12)).clamp(0, 1 - _AHEAD / 100)
    needed = blend > 0
    blend = blend.where(needed, 0.5)
    blended = logaddexp(log_shares + torch.log1p(-blend), (blend * fair).log())
    return torch.where(needed, blended, log_shares)
