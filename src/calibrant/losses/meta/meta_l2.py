"""Cross-entropy with a learned pull on the last layer's weights: meta-calibration."""

import math
from typing import ClassVar, Literal, TypeAlias, final, get_args

import torch
from torch import Tensor, nn

from calibrant.checks import check_known, check_positive
from calibrant.losses.dece import DECELoss
from calibrant.losses.log_loss import log_losses
from calibrant.losses.meta.base import MetaLoss, MetaObjective, MetaSchedule
from calibrant.losses.sece import SECELoss
from calibrant.paper import Paper

__all__ = ["L2Unit", "MetaL2Loss"]

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
        return {
            "l2_mean": float(strength.mean()),
            "l2_least": float(strength.min()),
            "l2_most": float(strength.max()),
        }
