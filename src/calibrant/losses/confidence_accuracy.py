"""Penalties on a batch that compare confidence with accuracy: DCA, MDCA, AvUC and soft AvUC."""

import math
from typing import ClassVar, Literal, final

import torch
from torch import Tensor

from calibrant.checks import check_at_least, check_positive, check_real_number
from calibrant.errors import InputError
from calibrant.losses.base import PenalisedLoss, RowLoss
from calibrant.losses.calibration_error import Answers, entropies
from calibrant.paper import Paper

__all__ = ["AvUCLoss", "DCALoss", "MDCALoss", "SoftAvUCLoss", "log_odds_of_mismatch"]


@final
class DCALoss(PenalisedLoss):
    """Cross-entropy plus the difference of mean confidence and accuracy.

    The calibration error with a single bin: over- and underconfident rows cancel. Accuracy has no slope, so the penalty
    only moves confidence, and on a training set learnt by heart it asks for certainty.

    Formula: |1/n Σ_i c_i − 1/n Σ_i a_i|

    Args:
        weight: What the penalty is multiplied by. The default is that of public code.
        base: The loss of each row; the cross-entropy if None.
        reduction: See :class:`PenalisedLoss`.
        ignore_index: See :class:`PenalisedLoss`.

    Example:
        >>> import torch
        >>> DCALoss().penalty(torch.zeros(4, 2), torch.tensor([0, 0, 0, 1])).item()
        0.25
    """

    name: ClassVar[str] = "dca"
    title: ClassVar[str] = "Difference of confidence and accuracy"
    paper: ClassVar[Paper] = Paper(
        "Liang et al.",
        2020,
        "Improved Trainable Calibration Method for Neural Networks on Medical Imaging Classification",
        "arXiv:2009.04057",
    )

    def __init__(
        self,
        *,
        weight: float = 1.0,
        base: RowLoss | None = None,
        reduction: Literal["mean", "sum"] = "mean",
        ignore_index: int | None = None,
    ) -> None:
        super().__init__(weight=weight, base=base, reduction=reduction, ignore_index=ignore_index)

    def penalty(self, logits: Tensor, labels: Tensor) -> Tensor:
        _, confidence, correct = Answers.of(logits, labels)
        return (confidence - correct).mean().abs()


@final
class MDCALoss(PenalisedLoss):
    """Cross-entropy plus the multi-class difference of confidence and accuracy.

    Compares mean probabilities with class frequencies, all classes and all rows at once: over- and underconfident rows
    cancel, and a network that always says the frequencies has no penalty. With many classes and few rows a batch the
    frequencies are mostly noise.

    Formula: 1/k Σ_k |1/n Σ_i p_ik − 1/n Σ_i y_ik|

    Args:
        weight: What the penalty is multiplied by; the default is that of the paper's code.
        base: The loss of each row; the cross-entropy if None. The paper's best results take a focal loss.
        reduction: See :class:`PenalisedLoss`.
        ignore_index: See :class:`PenalisedLoss`.

    Example:
        >>> import torch
        >>> MDCALoss().penalty(torch.zeros(4, 2), torch.tensor([0, 0, 0, 1])).item()
        0.25
    """

    name: ClassVar[str] = "mdca"
    title: ClassVar[str] = "Multi-class difference of confidence and accuracy"
    paper: ClassVar[Paper] = Paper(
        "Hebbalaguppe et al.",
        2022,
        "A Stitch in Time Saves Nine: A Train-Time Regularizing Loss for Improved Neural Network Calibration",
        "arXiv:2203.13834",
    )
    takes_soft_labels: ClassVar[bool] = True

    def __init__(
        self,
        *,
        weight: float = 1.0,
        base: RowLoss | None = None,
        reduction: Literal["mean", "sum"] = "mean",
        ignore_index: int | None = None,
    ) -> None:
        super().__init__(weight=weight, base=base, reduction=reduction, ignore_index=ignore_index)

    def penalty(self, logits: Tensor, labels: Tensor) -> Tensor:
        predicted = logits.softmax(1).mean(0)
        if labels.is_floating_point():
            occurring = labels.mean(0)
        else:
            # Not bincount, which waits for a GPU to say how many classes there are.
            ones = predicted.new_ones(len(labels))
            occurring = predicted.new_zeros(logits.shape[1]).index_add_(0, labels, ones) / len(labels)
        return (predicted - occurring).abs().mean()


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
