"""Focal loss whose γ changes as training goes on."""

from bisect import bisect_right
from typing import ClassVar, final

import torch
from torch import Tensor

from calibrant.checks import check_at_least, check_real_number
from calibrant.errors import InputError
from calibrant.losses.base import Reduction, RowLoss
from calibrant.losses.focal import focal_weighted
from calibrant.losses.log_loss import log_losses
from calibrant.paper import Paper

__all__ = ["ScheduledFocalLoss"]


@final
class ScheduledFocalLoss(RowLoss):
    """Focal loss with one γ at first and others from given epochs on (FLSc-531).

    A large γ holds confidence back while the network learns, a small one lets it grow towards the end. It is the
    training loop that tells the epoch: until it does, γ is the first, and stays so if it never does. The epochs that
    suit 350 of them do not suit 30.

    γ is a buffer, written in place: a captured CUDA graph or a compiled step sees the new one. For that the loss must
    be moved to the device of the logits before the capture (``loss.to(device)``); it is saved with the loss's state.

    Formula: -(1 - p_y)^γ log p_y, γ = γ_i in the epochs from start_i to start_(i+1) - 1

    Args:
        gammas: γ of each stretch of epochs.
        starts: The first epoch of each, counted from 0: the first is 0, and they rise.
        reduction: See :class:`RowLoss`.
        ignore_index: See :class:`RowLoss`.

    Raises:
        InputError: If an option is out of range, or there are not as many of one as of the other.

    Example:
        >>> loss = ScheduledFocalLoss(gammas=(5.0, 1.0), starts=(0, 10))
        >>> loss.begin_epoch(10)
        >>> float(loss.gamma)
        1.0
    """

    name: ClassVar[str] = "focal_schedule"
    title: ClassVar[str] = "Focal loss with γ by epoch"
    paper: ClassVar[Paper] = Paper(
        "Mukhoti et al.", 2020, "Calibrating Deep Neural Networks using Focal Loss", "arXiv:2002.09437"
    )

    gamma: Tensor

    def __init__(
        self,
        *,
        gammas: tuple[float, ...] = (5.0, 3.0, 1.0),
        starts: tuple[int, ...] = (0, 100, 250),
        reduction: Reduction = "mean",
        ignore_index: int | None = None,
    ) -> None:
        super().__init__(reduction=reduction, ignore_index=ignore_index)
        for gamma in gammas:
            check_real_number(gamma, "each of gammas", least=0)
        for start in starts:
            check_at_least(start, 0, "each of starts")
        if len(gammas) != len(starts):
            raise InputError(
                f"gammas and starts must be as many, one start for each γ; got {len(gammas)} gammas and "
                f"{len(starts)} starts."
            )
        if not starts or starts[0] != 0 or list(starts) != sorted(set(starts)):
            raise InputError(f"starts must begin with 0 and rise; got {starts!r}.")
        self.gammas = tuple(gammas)
        self.starts = tuple(starts)
        self.register_buffer("gamma", torch.tensor(float(self.gammas[0])))

    def begin_epoch(self, epoch: int) -> None:
        """Tell the loss which epoch begins, counted from 0.

        Raises:
            InputError: If it is not a whole number, or below 0.
        """
        check_at_least(epoch, 0, "epoch")
        self.gamma.fill_(self.gammas[bisect_right(self.starts, epoch) - 1])

    def rows(self, logits: Tensor, labels: Tensor) -> Tensor:
        return focal_weighted(log_losses(logits, labels), self.gamma)
