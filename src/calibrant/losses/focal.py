"""The focal losses: cross-entropy weighted by the probability of the true class."""

import math
from bisect import bisect_right
from dataclasses import field
from typing import final

import torch
from torch import Tensor

from calibrant.checks import AtLeastZero, NonNegative, OpenUnitInterval, check_at_least, check_open_unit
from calibrant.errors import InputError
from calibrant.losses.base import RowLoss, log_losses
from calibrant.paper import WANG, Paper

__all__ = [
    "DualFocalLoss", "FocalLoss", "InverseFocalLoss", "SampleDependentFocalLoss", "ScheduledFocalLoss", "focal_gamma",
]  # fmt: skip

_LIN = Paper("Lin et al.", 2017, "Focal Loss for Dense Object Detection", "arXiv:1708.02002", "eq. 4")
_MUKHOTI = Paper("Mukhoti et al.", 2020, "Calibrating Deep Neural Networks using Focal Loss", "arXiv:2002.09437")
_MUKHOTI_FLSD = _MUKHOTI.at("Section 4")
_TAO = Paper("Tao, Dong & Xu", 2023, "Dual Focal Loss for Calibration", "arXiv:2305.13665")


def focal_weighted(losses: Tensor, gamma: float | Tensor, *, detach_weight: bool = False) -> Tensor:
    """Multiply the cross-entropies, (n,), by ``(1 - p_y)^γ``; a γ per sample may carry a gradient of its own.

    Example:
        >>> focal_weighted(-torch.tensor([0.25, 0.5]).log(), gamma=2.0)
        tensor([0.7798, 0.1733])
    """
    # 1 - p_y from its logarithm: 1 - exp(-loss) would round that of a certain sample to 0.
    return _power(-torch.expm1(-(losses.detach() if detach_weight else losses)), gamma) * losses


def _power(base: Tensor, exponent: float | Tensor) -> Tensor:
    """Return a power of a base of at least 0; its gradient at 0 is 0 for exponents below 1, instead of infinite."""
    # Its product with a loss that is 0 there has no slope in the limit, but floating point makes it 0 times infinity.
    return base.clamp(min=torch.finfo(base.dtype).tiny) ** exponent


@final
class FocalLoss(RowLoss, name="focal", title="Focal loss", paper=_LIN):
    """Cross-entropy times a power of the distance of the true class from certainty.

    The gradient of a sample fades once it is correct, so probabilities stay flatter than with the cross-entropy: the
    loss is an upper bound of the cross-entropy less γ times the entropy. It is not proper: its minimum is flatter than
    the true probabilities, so a γ too large, or data that cannot be memorised, make a network underconfident.

    Formula: -(1 - p_y)^γ log p_y

    Args:
        gamma: γ, at least 0; 0 is the cross-entropy.
        detach_weight: Whether the weight is a constant to the gradient. True is no focal loss but a re-weighted
            cross-entropy: what the public code of Wang et al. (2021) trains, only to reproduce it.

    Example:
        >>> loss = FocalLoss()(torch.zeros(1, 2), torch.tensor([1]))  # p_y = 1/2, so the weight is 1/8
        >>> round(loss.item() / math.log(2), 4)
        0.125
    """

    gamma: NonNegative = 3.0
    detach_weight: bool = False

    def rows(self, logits: Tensor, labels: Tensor) -> Tensor:
        return focal_weighted(log_losses(logits, labels), self.gamma, detach_weight=self.detach_weight)


@final
class SampleDependentFocalLoss(RowLoss, name="flsd", title="Focal loss with γ by sample", paper=_MUKHOTI_FLSD):
    """Focal loss whose γ falls in steps as the probability of the true class grows (FLSD-53).

    One γ cannot both hold back samples that are certain and push those that are incorrect: a sample below the first
    threshold keeps the largest gradient of all. The steps are fixed beforehand and do not depend on the data. The loss
    jumps at each threshold, so its value is no guide there; the gradient is that of the γ in force.

    Formula: -(1 - p_y)^γ(p_y) log p_y, γ(p_y) = γ_i for t_(i-1) <= p_y < t_i; no gradient through γ

    Args:
        gammas: γ below each threshold, and one more from the last on.
        thresholds: Rising, each between 0 and 1. :func:`focal_gamma` gives the γ that the paper takes for one.

    Example:
        >>> logits = torch.tensor([[0.1, 0.9], [0.3, 0.7]]).log()
        >>> losses = SampleDependentFocalLoss(reduction="none")(logits, torch.tensor([0, 0]))
        >>> (losses / torch.tensor([-(0.9**5), -(0.7**3)])).exp()  # γ is 5 for the first, 3 for the second
        tensor([0.1000, 0.3000])
    """

    gammas: tuple[NonNegative, ...] = (5.0, 3.0)
    thresholds: tuple[OpenUnitInterval, ...] = (0.2,)

    def __post_init__(self) -> None:
        super().__post_init__()
        if list(self.thresholds) != sorted(set(self.thresholds)):
            raise InputError(f"thresholds must rise; got {self.thresholds!r}.")
        if len(self.gammas) != len(self.thresholds) + 1:
            raise InputError(
                "gammas must be one more than thresholds, for the samples from the last one on; got "
                f"{len(self.gammas)} gammas and {len(self.thresholds)} thresholds."
            )

    def rows(self, logits: Tensor, labels: Tensor) -> Tensor:
        losses = log_losses(logits, labels)
        # p < t is compared as -log p > -log t: of five equal classes none is below 0.2; exp(log 0.2) is, in float32.
        gamma = torch.full_like(losses, self.gammas[-1])
        for step, threshold in zip(self.gammas[-2::-1], self.thresholds[::-1], strict=True):
            gamma = torch.where(losses.detach() > -math.log(threshold), step, gamma)
        return focal_weighted(losses, gamma)


def focal_gamma(probability: float) -> float:
    """Return the γ above which samples at least this probable have a smaller gradient than under the cross-entropy.

    Below the probability the focal loss pushes harder than the cross-entropy, above it less. From 1/2 on every γ does
    that, and the result is 0.

    Formula: the largest γ with (1 - p)^γ - γ p (1 - p)^(γ-1) log p = 1

    Args:
        probability: Probability of the true class, between 0 and 1, without these.

    Example:
        >>> [round(focal_gamma(p), 2) for p in (0.2, 0.25, 0.5)]
        [4.85, 3.07, 0.0]
    """
    from scipy.special import lambertw

    check_open_unit(probability, "probability")
    # With m = -log(1 - p) and b = -p log p / (1 - p) the equation reads (1 + γ b) exp(-γ m) = 1. That is
    # w exp(w) = -r exp(-r) for r = m / b and w = -m γ - r. One root, w = -r, is γ = 0; the other is on the lower branch
    # of Lambert's W, and above 0 while r < 1.
    m = -math.log1p(-probability)
    r = m * (1 - probability) / (-probability * math.log(probability))
    return 0.0 if r >= 1 else (-float(lambertw(-r * math.exp(-r), k=-1).real) - r) / m


@final
class ScheduledFocalLoss(RowLoss, name="focal_schedule", title="Focal loss with γ by epoch", paper=_MUKHOTI):
    """Focal loss with one γ at first and others from given epochs on (FLSc-531).

    A large γ holds confidence back while the network learns, a small one lets it grow towards the end. The training
    loop must call :meth:`begin_epoch`; until it does, γ is the first. The epochs that suit 350 of them do not suit 30.
    γ is a buffer, written in place and saved with the loss: a captured CUDA graph or a compiled step sees the new one
    if the loss was moved to the device of the logits before the capture (``loss.to(device)``).

    Formula: -(1 - p_y)^γ log p_y, γ = γ_i in the epochs from start_i to start_(i+1) - 1

    Args:
        gammas: γ of each stretch of epochs.
        starts: The first epoch of each, counted from 0: the first is 0, and they rise.

    Example:
        >>> loss = ScheduledFocalLoss(gammas=(5.0, 1.0), starts=(0, 10))
        >>> loss.begin_epoch(10)
        >>> float(loss.gamma)
        1.0
    """

    gammas: tuple[NonNegative, ...] = (5.0, 3.0, 1.0)
    starts: tuple[AtLeastZero, ...] = (0, 100, 250)
    gamma: Tensor = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.gammas) != len(self.starts):
            raise InputError(f"gammas and starts must be as many; got {len(self.gammas)} and {len(self.starts)}.")
        if not self.starts or self.starts[0] != 0 or list(self.starts) != sorted(set(self.starts)):
            raise InputError(f"starts must begin with 0 and rise; got {self.starts!r}.")
        self.register_buffer("gamma", torch.tensor(float(self.gammas[0])))

    def begin_epoch(self, epoch: int) -> None:
        """Set γ for an epoch, counted from 0."""
        check_at_least(epoch, 0, "epoch")
        self.gamma.fill_(self.gammas[bisect_right(self.starts, epoch) - 1])

    def rows(self, logits: Tensor, labels: Tensor) -> Tensor:
        return focal_weighted(log_losses(logits, labels), self.gamma)


@final
class DualFocalLoss(RowLoss, name="dual_focal", title="Dual focal loss", paper=_TAO):
    """Focal loss whose weight also depends on the class that ranks next after the true one.

    The next class is the most probable of those strictly less so than the true class, wherever that ranks; where the
    true class is last there is none, and the weight is the focal loss's. The weight is larger than the focal loss's, so
    correct samples keep learning for longer, which counters the underconfidence of a large γ. Not proper either. Which
    class is next can change from step to step, and the loss has a kink there.

    Formula: -(1 - p_y + p_j)^γ log p_y, p_j = max {p_k : p_k < p_y}, or 0 if there is none

    Args:
        gamma: γ, at least 0; 0 is the cross-entropy.

    Example:
        >>> loss = DualFocalLoss(gamma=1.0)(torch.tensor([[0.5, 0.3, 0.2]]).log(), torch.tensor([0]))  # 1 - 0.5 + 0.3
        >>> round(loss.item() / math.log(2), 4)
        0.8
    """

    gamma: NonNegative = 5.0

    def rows(self, logits: Tensor, labels: Tensor) -> Tensor:
        true = labels[:, None]
        # Compared by the logits, which order classes whose probabilities are both 0 in floating point.
        with torch.no_grad():
            is_lower = logits < logits.gather(1, true)
            runner_up = logits.masked_fill(~is_lower, -torch.inf).argmax(1, keepdim=True)
            exists = is_lower.gather(1, runner_up)[:, 0]
        log_prob, log_next = logits.log_softmax(1).gather(1, torch.cat([true, runner_up], 1)).unbind(1)
        lead_missing = -torch.expm1(log_prob) + log_next.exp() * exists
        return _power(lead_missing, self.gamma) * -log_prob


# The slope of -(1 + p)^γ log p in p is -(1 + p)^(γ-1) (γ log p + (1 + p) / p). It is nowhere above 0 where
# γ <= (1 + p) / (-p log p) = (1 + e^t) / t with t = -log p, whatever t. The right side is smallest where
# t e^t = 1 + e^t, that is (t - 1) e^(t-1) = 1/e, so t = 1 + W(1/e) with Lambert's W, and there it is
# e^t = 1 / W(1/e) = 3.5911..., at p = W(1/e) = 0.278.
LARGEST_GAMMA = 3.591121476668622


@final
class InverseFocalLoss(RowLoss, name="inverse_focal", title="Inverse focal loss", paper=WANG.at("eq. 4")):
    """Cross-entropy times a power of one plus the probability of the true class.

    The opposite of the focal loss: the easy samples count most, so the network becomes more confident than with the
    cross-entropy, and spreads its logits more by how hard a sample is. By itself it is badly calibrated; it is meant to
    be followed by a temperature. Above γ = 3.59 more probability of the true class would raise the loss of some
    incorrect samples, so that is refused; with a detached weight every γ is a re-weighted cross-entropy.

    Formula: -(1 + p_y)^γ log p_y

    Args:
        gamma: γ, at least 0; 0 is the cross-entropy. At most 1/W(1/e) = 3.5911 unless the weight is detached.
        detach_weight: Whether the weight is a constant to the gradient. The paper does not say; its formula read as a
            loss is False.

    Example:
        >>> loss = InverseFocalLoss()(torch.zeros(1, 2), torch.tensor([1]))  # p_y = 1/2, so the weight is 1.5²
        >>> round(loss.item() / math.log(2), 4)
        2.25
    """

    gamma: NonNegative = 2.0
    detach_weight: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.gamma > LARGEST_GAMMA and not self.detach_weight:
            raise InputError(
                f"gamma of the inverse focal loss must be at most {LARGEST_GAMMA:.4f}, or a more probable true class "
                f"would cost more; got {self.gamma!r}. Take a smaller one, or detach_weight=True."
            )

    def rows(self, logits: Tensor, labels: Tensor) -> Tensor:
        losses = log_losses(logits, labels)
        prob = (-(losses.detach() if self.detach_weight else losses)).exp()
        return (1 + prob) ** self.gamma * losses
