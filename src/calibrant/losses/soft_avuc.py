"""Soft AvUC: accuracy against uncertainty, without a threshold that has no slope."""

import math
from typing import ClassVar, Literal, final

import torch
from torch import Tensor

from calibrant.checks import check_positive
from calibrant.errors import InputError
from calibrant.losses.answers import Answers, entropies
from calibrant.losses.avuc import log_odds_of_mismatch
from calibrant.losses.base import PenalisedLoss, RowLoss
from calibrant.paper import Paper

__all__ = ["SoftAvUCLoss"]

# The logit of an uncertainty of 0 or 1 is infinite; the float32 neighbours of 1 are 6e-8 apart.
_EDGE = 1e-6


@final
class SoftAvUCLoss(PenalisedLoss):
    """Cross-entropy plus the accuracy-versus-uncertainty loss with a soft border between certain and uncertain.

    As :class:`AvUCLoss`, but each row is partly certain and partly uncertain, so that the border has a slope. It lies
    at a fixed fraction of the largest possible entropy.

    Formula: log(1 + (n_AU + n_IC)/(n_AC + n_IU)), with u the entropy, t = σ((logit(u/log k) − logit κ)/T) and
        n_AC = Σ (1 − t)(1 − tanh u), n_AU = Σ t tanh u over right rows, n_IC and n_IU the same over wrong ones

    Args:
        weight: What the penalty is multiplied by. The paper tunes it, κ and T anew for each data set.
        threshold: κ, as a fraction of the largest entropy.
        temperature: T; for T → 0 the border is hard. The defaults of both, those of the paper's code, make t the
            entropy as a fraction of the largest.
        base: The loss of each row; the cross-entropy if None.
        reduction: See :class:`PenalisedLoss`.
        ignore_index: See :class:`PenalisedLoss`.

    Example:
        >>> sure = torch.tensor([[9.0, 0.0], [0.0, 9.0]])
        >>> right, wrong = (SoftAvUCLoss().penalty(sure, torch.tensor(y)).item() for y in ([0, 1], [1, 0]))
        >>> right < 0.001 < 10 < wrong
        True
    """

    name: ClassVar[str] = "soft_avuc"
    title: ClassVar[str] = "Soft accuracy versus uncertainty"
    paper: ClassVar[Paper] = Paper(
        "Karandikar et al.", 2021, "Soft Calibration Objectives for Neural Networks", "arXiv:2108.00106", "eq. 15"
    )

    def __init__(
        self,
        *,
        weight: float = 1.0,
        threshold: float = 0.5,
        temperature: float = 1.0,
        base: RowLoss | None = None,
        reduction: Literal["mean", "sum"] = "mean",
        ignore_index: int | None = None,
    ) -> None:
        super().__init__(weight=weight, base=base, reduction=reduction, ignore_index=ignore_index)
        check_positive(threshold, "threshold")
        if threshold >= 1:
            raise InputError(
                f"threshold must be a fraction of the largest entropy, below 1; got {threshold}. "
                "Divide one in nats by the logarithm of the number of classes."
            )
        check_positive(temperature, "temperature")
        self.threshold = threshold
        self.temperature = temperature

    def penalty(self, logits: Tensor, labels: Tensor) -> Tensor:
        correct = Answers.of(logits, labels).correct
        entropy = entropies(logits.log_softmax(1))
        border = math.log(self.threshold / (1 - self.threshold))
        share = torch.logit(entropy / math.log(logits.shape[1]), eps=_EDGE)
        uncertain = ((share - border) / self.temperature).sigmoid()
        unsure = entropy.tanh()
        certain_part, uncertain_part = (1 - uncertain) * (1 - unsure), uncertain * unsure
        return log_odds_of_mismatch(torch.cat([certain_part, uncertain_part]), torch.cat([correct, 1 - correct]))
