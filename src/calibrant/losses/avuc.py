"""AvUC: accuracy against uncertainty, so that right rows are certain and wrong ones are not."""

from typing import ClassVar, Literal, final

import torch
from torch import Tensor

from calibrant.checks import check_at_least, check_real_number
from calibrant.losses.answers import Answers, entropies
from calibrant.losses.base import PenalisedLoss, RowLoss
from calibrant.paper import Paper

__all__ = ["AvUCLoss", "log_odds_of_mismatch"]

# Far below one row's part, and far above rounding: keeps a batch without any part from 0/0.
_LEAST = 1e-6


@final
class AvUCLoss(PenalisedLoss):
    """Cross-entropy plus the accuracy-versus-uncertainty calibration loss.

    Rows are certain up to a threshold on their entropy, and uncertain above it. Right and certain, or wrong and
    uncertain, is as it should be; the penalty grows with the odds against that. It separates right rows from wrong
    ones, and says nothing of how often a confidence of .8 is right: temperature scaling may still be needed afterwards.
    Which group a row is in has no slope, and a wrong row that is very sure hardly counts, as its part is 1 − c. The
    entropies of an untrained network mean little: with the penalty from the start it can stay uncertain of everything
    (digits after 20 epochs: .88 accurate with a calibration error of .5; .97 and .02 with the warm-up). So the loop
    must tell the epoch: until it does, and if it never does, the penalty is off unless ``from_epoch`` is 0.

    Formula: log(1 + (n_AU + n_IC)/(n_AC + n_IU)), with u the entropy and sums over the rows of each group:
        n_AC = Σ c (1 − tanh u), n_AU = Σ c tanh u, n_IC = Σ (1 − c)(1 − tanh u), n_IU = Σ (1 − c) tanh u

    Args:
        weight: What the penalty is multiplied by; the paper's β.
        threshold: The largest entropy that is certain, in nats. None takes, in each batch, the middle between the mean
            entropy of the right rows and that of the wrong ones, or the mean of all where there is only one kind.
        from_epoch: The first epoch with the penalty, counted from 0; a run with no more epochs than that never has it.
            See :meth:`begin_epoch`.
        base: The loss of each row; the cross-entropy if None.
        reduction: See :class:`PenalisedLoss`.
        ignore_index: See :class:`PenalisedLoss`.

    Example:
        >>> sure_and_right = torch.tensor([[9.0, 0.0], [0.0, 9.0]])
        >>> loss = AvUCLoss(threshold=0.5, from_epoch=0)
        >>> loss.penalty(sure_and_right, torch.tensor([0, 1])).item()
        0.0
        >>> round(loss.penalty(sure_and_right, torch.tensor([0, 0])).item(), 4)
        0.0001
    """

    name: ClassVar[str] = "avuc"
    title: ClassVar[str] = "Accuracy versus uncertainty"
    # Differs from the paper: its code takes the middle over held-out rows, and keeps it from the sixth epoch on.
    paper: ClassVar[Paper] = Paper(
        "Krishnan & Tickoo",
        2020,
        "Improving model calibration with accuracy versus uncertainty optimization",
        "arXiv:2012.07923",
        "eq. 3",
    )
    switch: Tensor

    def __init__(
        self,
        *,
        weight: float = 3.0,
        threshold: float | None = None,
        from_epoch: int = 5,
        base: RowLoss | None = None,
        reduction: Literal["mean", "sum"] = "mean",
        ignore_index: int | None = None,
    ) -> None:
        super().__init__(weight=weight, base=base, reduction=reduction, ignore_index=ignore_index)
        if threshold is not None:
            check_real_number(threshold, "threshold", least=0)
        check_at_least(from_epoch, 0, "from_epoch")
        self.threshold = threshold
        self.from_epoch = from_epoch
        self.register_buffer("switch", torch.tensor(float(from_epoch == 0)))

    def begin_epoch(self, epoch: int) -> None:
        """Turn the penalty on or off for an epoch, counted from 0.

        Without a call the penalty is on only if ``from_epoch`` is 0.

        Raises:
            InputError: If it is not a whole number, or below 0.
        """
        check_at_least(epoch, 0, "epoch")
        self.switch.fill_(float(epoch >= self.from_epoch))

    def penalty(self, logits: Tensor, labels: Tensor) -> Tensor:
        _, confidence, correct = Answers.of(logits, labels)
        entropy = entropies(logits.log_softmax(1))
        uncertain = (entropy > self._border(entropy.detach(), correct)).to(entropy.dtype)
        unsure = entropy.tanh()
        part = torch.where(correct > 0, confidence, 1 - confidence) * torch.where(uncertain > 0, unsure, 1 - unsure)
        return self.switch.to(part.dtype) * log_odds_of_mismatch(part, (correct - uncertain).abs())

    def _border(self, entropy: Tensor, correct: Tensor) -> Tensor | float:
        if self.threshold is not None:
            return self.threshold
        right = correct.sum()
        wrong = len(correct) - right
        middle = (entropy @ correct / right.clamp(min=1) + entropy @ (1 - correct) / wrong.clamp(min=1)) / 2
        return torch.where(right * wrong > 0, middle, entropy.mean())


def log_odds_of_mismatch(part: Tensor, matched: Tensor) -> Tensor:
    """log(1 + mismatched/matched), a number at least 0 that is finite where both are 0.

    Args:
        part: What each row adds, (n,), at least 0.
        matched: Which rows are as they should be, (n,), 0 or 1.
    """
    return ((part @ (1 - matched)) / (part @ matched + _LEAST)).log1p()
