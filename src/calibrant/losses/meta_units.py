"""Meta-learned regularisers with one parameter a unit: L2 of the last layer, and label smoothing."""

import math
from typing import ClassVar, Literal, TypeAlias, final, get_args

import torch
from torch import Tensor, nn

from calibrant.checks import check_known, check_positive, check_real_number
from calibrant.errors import InputError
from calibrant.losses.base import log_losses
from calibrant.losses.calibration_error import DECELoss, SECELoss
from calibrant.losses.meta import MetaLoss, MetaObjective, MetaSchedule
from calibrant.paper import Paper

__all__ = ["L2Unit", "MetaL2Loss", "MetaSmoothingLoss", "SmoothingUnit"]

L2Unit: TypeAlias = Literal["class", "feature", "weight"]


@final
class MetaL2Loss(MetaLoss):
    """Cross-entropy and a pull of the last layer's weights towards 0, as strong as held-out rows want it.

    Formula: mean of -log p_y, + Σ_u exp(φ_u) ‖w_u‖²

    Args:
        objective: See :class:`MetaLoss`; ``dece`` is meta-calibration's.
        cross_entropy: See :class:`MetaLoss`. Meta-calibration's cross-entropy and half an error are 2 here. Not with
            ``ce``.
        learning_rate: See :class:`MetaLoss`.
        schedule: See :class:`MetaLoss`.
        start: Every exp(φ) to begin with. The logarithm is what is learned, so that none falls below 0.
        unit: What has a φ of its own: each ``class`` (a row of the weights), each ``feature`` (a column) or each
            ``weight``. The paper says unit-wise, which we read as the layer's units, its classes.

    Raises:
        InputError: If an option is out of range.

    Example:
        >>> loss = MetaL2Loss(start=0.5)
        >>> loss.build(8, 3, seed=0)
        >>> round(loss.penalty(torch.ones(3, 8)).item(), 4)
        12.0
    """

    name: ClassVar[str] = "meta_l2"
    title: ClassVar[str] = "Cross-entropy with a learned weight decay of the last layer"
    paper: ClassVar[Paper] = DECELoss.paper

    def __init__(
        self,
        *,
        objective: MetaObjective | SECELoss | DECELoss = "dece",
        cross_entropy: float = 2.0,
        learning_rate: float = 1e-3,
        schedule: MetaSchedule = "constant",
        start: float = 5e-4,
        unit: L2Unit = "class",
    ) -> None:
        super().__init__(
            objective=objective, cross_entropy=cross_entropy, learning_rate=learning_rate, schedule=schedule
        )
        self.start = check_positive(start, "start")
        check_known(unit, get_args(L2Unit), "unit")
        self.unit = unit
        self.log_strength: nn.Parameter | None = None

    def make(self, n_features: int, n_classes: int, *, seed: int) -> None:
        del seed
        shapes = {"class": (n_classes, 1), "feature": (1, n_features), "weight": (n_classes, n_features)}
        self.log_strength = nn.Parameter(torch.full(shapes[self.unit], math.log(self.start)))

    def rows(self, features: Tensor, logits: Tensor, labels: Tensor) -> Tensor:
        del features
        return log_losses(logits, labels)

    def penalty(self, weight: Tensor) -> Tensor:
        assert self.log_strength is not None, "forward sees to it"
        return (self.log_strength.exp() * weight.square()).sum()

    @torch.no_grad()
    def describe(self, features: Tensor) -> dict[str, float]:
        """Mean, smallest and largest strength."""
        self.check_built(features)
        assert self.log_strength is not None
        strength = self.log_strength.double().exp()
        return {"l2_mean": float(strength.mean()), "l2_least": float(strength.min()), "l2_most": float(strength.max())}


SmoothingUnit: TypeAlias = Literal["all", "class"]
_MOST = 0.5


@final
class MetaSmoothingLoss(MetaLoss):
    """Label smoothing as strong as held-out rows want it, the same for all rows or one for each class.

    Formula: mean of (1 - ε_y) · -log p_y + ε_y/k Σ_j -log p_j, ε = σ(φ)/2

    Args:
        objective: See :class:`MetaLoss`; ``dece`` is meta-calibration's.
        cross_entropy: See :class:`MetaLoss`. Meta-calibration's cross-entropy and half an error are 2 here. Not with
            ``ce``.
        learning_rate: See :class:`MetaLoss`.
        schedule: See :class:`MetaLoss`.
        start: ε to begin with, between 0 and a half. The public code lets ε itself move and cuts it off at 0 and a
            half, where it has no slope any more; here it cannot come to either end.
        unit: Whether ``all`` rows share one ε, or each ``class`` has its own.

    Raises:
        InputError: If an option is out of range.

    Example:
        >>> loss = MetaSmoothingLoss(start=0.1)
        >>> loss.build(8, 3, seed=0)
        >>> round(loss.describe(torch.zeros(1, 8))["smoothing_mean"], 4)
        0.1
    """

    name: ClassVar[str] = "meta_smoothing"
    title: ClassVar[str] = "Label smoothing of a learned amount"
    paper: ClassVar[Paper] = DECELoss.paper

    def __init__(
        self,
        *,
        objective: MetaObjective | SECELoss | DECELoss = "dece",
        cross_entropy: float = 2.0,
        learning_rate: float = 1e-3,
        schedule: MetaSchedule = "constant",
        start: float = 0.05,
        unit: SmoothingUnit = "class",
    ) -> None:
        super().__init__(
            objective=objective, cross_entropy=cross_entropy, learning_rate=learning_rate, schedule=schedule
        )
        self.start = check_real_number(start, "start", least=0, most=_MOST)
        if start in {0, _MOST}:
            raise InputError(f"start must be between 0 and {_MOST}, which it could never leave; got {start}.")
        check_known(unit, get_args(SmoothingUnit), "unit")
        self.unit = unit
        self.unbounded: nn.Parameter | None = None

    def make(self, n_features: int, n_classes: int, *, seed: int) -> None:
        del n_features, seed
        share = self.start / _MOST
        size = n_classes if self.unit == "class" else 1
        self.unbounded = nn.Parameter(torch.full((size,), math.log(share / (1 - share))))

    def rows(self, features: Tensor, logits: Tensor, labels: Tensor) -> Tensor:
        del features
        smoothing = self._smoothing()
        each = smoothing[labels] if len(smoothing) > 1 else smoothing
        return (1 - each) * log_losses(logits, labels) - each * logits.log_softmax(dim=1).mean(dim=1)

    @torch.no_grad()
    def describe(self, features: Tensor) -> dict[str, float]:
        """Mean, smallest and largest ε."""
        self.check_built(features)
        smoothing = self._smoothing().double()
        return {
            "smoothing_mean": float(smoothing.mean()),
            "smoothing_least": float(smoothing.min()),
            "smoothing_most": float(smoothing.max()),
        }

    def _smoothing(self) -> Tensor:
        assert self.unbounded is not None, "forward sees to it"
        return _MOST * self.unbounded.sigmoid()
