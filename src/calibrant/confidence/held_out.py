"""Rows set aside to choose the epoch by, and what it is chosen by."""

from typing import Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor

from calibrant.errors import InputError, SeparableError
from calibrant.metrics import aupr_error, auroc
from calibrant.top_label import TopLabel

__all__ = ["ChooseEpochBy", "Parts", "held_out_value", "is_better", "split_rows"]

ChooseEpochBy: TypeAlias = Literal["aupr_error", "auroc", "mse"]


class Parts(NamedTuple):
    """Numbers of rows, rising, on the CPU."""

    fitted: Tensor
    held_out: Tensor


def split_rows(correct: Tensor, share: float, *, criterion: ChooseEpochBy, seed: int) -> Parts:
    """Set a share of the right and of the wrong answers aside, of each at least one where there are two.

    Wrong answers are rare on rows that a network was trained on; drawn from all rows at once, a tenth may have none.

    Args:
        correct: Which answers are right, (n,), bool.
        share: Above 0 and below 1.
        criterion: What the held-out rows are for.
        seed: Of the draw.

    Raises:
        InputError: If there are fewer than two rows.
        SeparableError: If answers must be ranked, and fewer than two are right or fewer than two wrong.

    Example:
        >>> parts = split_rows(torch.arange(100) % 10 > 0, 0.1, criterion="auroc", seed=0)
        >>> len(parts.fitted), len(parts.held_out), int((parts.held_out % 10 == 0).sum())
        (90, 10, 1)
    """
    correct = correct.cpu()
    if len(correct) < 2:
        raise InputError("at least two rows are needed, one to fit on and one to choose by; got 1.")
    wrong = int((~correct).sum())
    if criterion != "mse" and min(wrong, len(correct) - wrong) < 2:
        raise SeparableError(
            f"choose_by={criterion!r} needs two right and two wrong answers; of {len(correct):,} rows {wrong:,} are "
            "answered wrong. Give rows that the network was not trained on, or choose_by='mse'."
        )
    generator = torch.Generator().manual_seed(seed)
    held_out = []
    for group in (correct, ~correct):
        rows = group.nonzero()[:, 0]
        # One row of a kind stays with those that are fitted.
        size = min(max(round(share * len(rows)), 1), len(rows) - 1) if len(rows) > 1 else 0
        held_out.append(rows[torch.randperm(len(rows), generator=generator)[:size]])
    is_held_out = torch.zeros(len(correct), dtype=torch.bool)
    is_held_out[torch.cat(held_out)] = True
    if not is_held_out.any():  # one right and one wrong answer
        is_held_out[-1] = True
    return Parts((~is_held_out).nonzero()[:, 0], is_held_out.nonzero()[:, 0])


def held_out_value(criterion: ChooseEpochBy, log_odds: Tensor, target: Tensor, correct: Tensor) -> float:
    """How good a confidence is on the held-out rows.

    Args:
        criterion: What it is judged by.
        log_odds: Of the confidence, (n,), finite.
        target: The true-class probability, (n,).
        correct: Shape (n,), bool.
    """
    log_odds = log_odds.double()
    confidence = log_odds.sigmoid()
    if criterion == "mse":
        return float((confidence - target).square().mean())
    return {"aupr_error": aupr_error, "auroc": auroc}[criterion](TopLabel(confidence, correct, log_odds))


def is_better(criterion: ChooseEpochBy, value: float, than: float) -> bool:
    """Whether one value of the criterion beats another."""
    return value < than if criterion == "mse" else value > than
