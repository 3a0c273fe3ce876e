"""Focal loss with a γ for every row, learned: meta-regularisation."""

from typing import ClassVar, final

import torch
from torch import Tensor

from calibrant.checks import check_positive
from calibrant.losses.dece import DECELoss
from calibrant.losses.focal import focal_weighted
from calibrant.losses.log_loss import log_losses
from calibrant.losses.meta.base import MetaLoss, MetaObjective, MetaSchedule
from calibrant.losses.meta.gamma_net import GammaNet, GammaSign, check_sign
from calibrant.losses.sece import SECELoss
from calibrant.paper import Paper

__all__ = ["MetaFocalLoss"]


@final
class MetaFocalLoss(MetaLoss):
    """Focal loss whose γ a small network reads off each row's features, tuned on held-out rows.

    γ-Net is asked in training only; the network that is left is like any other. Look at how γ moved (it is written down
    every epoch) before crediting it: where it ends depends on the seed. For ResNet-18 on CIFAR-100 it did no better
    than a γ fixed at 1. That was tried with 40 of the paper's 350 epochs, 3 seeds, the last epoch's network, and this
    library's own choice of learning rate and of 2 times the cross-entropy beside the objective, none of which the paper
    gives; it does not speak against the paper's own result.

    Formula: mean of -(1 - p_y)^γ(x) log p_y, γ(x) by :class:`GammaNet`

    Args:
        objective: See :class:`MetaLoss`; ``sece`` is the paper's, ``dece`` and ``ce`` its variants.
        cross_entropy: See :class:`MetaLoss`. 0 is the paper's eq. 2, by which γ can run away to its limit, as a network
            that learns nothing more becomes no more sure; its Section 4.3 speaks of both, and meta-calibration's 2 is
            the default. Not with ``ce``.
        learning_rate: See :class:`MetaLoss`. The paper does not say; at meta-calibration's 1e-3, τ lets γ jump by whole
            numbers from step to step.
        schedule: See :class:`MetaLoss`.
        temperature: τ of γ-Net.
        limit: The largest γ.
        sign: How γ is kept from being negative; see :class:`GammaNet`.

    Raises:
        InputError: If an option is out of range.

    Example:
        >>> loss = MetaFocalLoss()
        >>> loss.build(8, 3, seed=0)
        >>> features, labels = torch.randn(4, 8), torch.tensor([0, 1, 2, 0])
        >>> bool(loss(features, torch.zeros(4, 3), labels, torch.zeros(3, 8)) > 0)
        True
    """

    name: ClassVar[str] = "meta_focal"
    title: ClassVar[str] = "Focal loss with a learned gamma a row (gamma-Net)"
    paper: ClassVar[Paper] = Paper(
        "Wang & Golebiowski",
        2024,
        "Towards Unbiased Calibration using Meta-Regularization",
        "arXiv:2303.15057",
        "eq. 2-4",
    )

    def __init__(
        self,
        *,
        objective: MetaObjective | SECELoss | DECELoss = "sece",
        cross_entropy: float = 2.0,
        learning_rate: float = 1e-4,
        schedule: MetaSchedule = "constant",
        temperature: float = 0.01,
        limit: float = 20.0,
        sign: GammaSign = "absolute",
    ) -> None:
        super().__init__(
            objective=objective, cross_entropy=cross_entropy, learning_rate=learning_rate, schedule=schedule
        )
        self.temperature = check_positive(temperature, "temperature")
        self.limit = check_positive(limit, "limit")
        check_sign(sign, limit)
        self.sign = sign
        self.gamma_net: GammaNet | None = None

    def make(self, n_features: int, n_classes: int, *, seed: int) -> None:
        self.gamma_net = GammaNet(
            n_features, n_classes, temperature=self.temperature, limit=self.limit, sign=self.sign, seed=seed
        )

    @torch.no_grad()
    def gamma(self, features: Tensor) -> Tensor:
        """Return γ of each sample, (n,), from its features (n, d)."""
        return self._net(features)(features)

    def initialise(self, features: Tensor) -> None:
        """Scale γ-Net so that γ is 1 on average over these rows, (n, d)."""
        self._net(features).initialise(features)

    def rows(self, features: Tensor, logits: Tensor, labels: Tensor) -> Tensor:
        return focal_weighted(log_losses(logits, labels), self._net(features)(features))

    @torch.no_grad()
    def describe(self, features: Tensor) -> dict[str, float]:
        """Mean and standard deviation of γ, and the share of rows at its limit."""
        gamma = self._net(features).unclipped(features).double()
        clipped = gamma.clamp(max=self.limit)
        return {
            "gamma_mean": float(clipped.mean()),
            "gamma_std": float(clipped.std(correction=0)),
            "gamma_clipped": float((gamma > self.limit).double().mean()),
        }

    @torch.no_grad()
    def doubt(self, features: Tensor) -> str | None:
        """That γ has run away to its limit."""
        above = float((self._net(features).unclipped(features) > self.limit).double().mean())
        if not above:
            return None
        advice = "" if self.objective == "ce" else ", or give it more cross_entropy"
        return (
            f"γ is above its limit for {above:.1%} of rows and cut off there, where it has no slope. Lower the loss's "
            f"learning_rate{advice}."
        )

    def _net(self, features: Tensor) -> GammaNet:
        self.check_built(features)
        assert self.gamma_net is not None
        return self.gamma_net
