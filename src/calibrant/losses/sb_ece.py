"""SB-ECE: the calibration error of a batch over bins with soft edges."""

from typing import ClassVar, Literal, TypeAlias, final, get_args

import torch
from torch import Tensor

from calibrant.checks import check_at_least, check_known, check_positive
from calibrant.losses.answers import Answers
from calibrant.losses.base import PenalisedLoss, RowLoss
from calibrant.losses.square_root import square_root
from calibrant.paper import Paper

__all__ = ["GapNorm", "SBECELoss"]

GapNorm: TypeAlias = Literal["l1", "l2"]
# A bin with less than this many rows in it adds nothing, rather than 0/0.
_EMPTY = 1e-12


@final
class SBECELoss(PenalisedLoss):
    """Cross-entropy plus the soft-binned calibration error.

    Each row belongs to all bins, most to the one whose centre is nearest. The default temperature blurs neighbouring
    bins into one another, so gaps of opposite sign cancel and the penalty lies below the hard error (.031 for .044 in
    one case); temperatures of 1e-5 and less give the hard one.

    Formula: √(Σ_b n_b/n (acc_b − conf_b)²), n_b, acc_b and conf_b the size and means of bin b with weights
        softmax_b(−(c_i − ξ_b)²/T), ξ_b the centres of equal-width bins

    Args:
        weight: What the penalty is multiplied by. The paper tunes it anew for each data set.
        n_bins: The number of bins.
        temperature: T.
        norm: ``l2``, as above; or ``l1``: Σ_b n_b/n |acc_b − conf_b|.
        base: The loss of each row; the cross-entropy if None.
        reduction: See :class:`PenalisedLoss`.
        ignore_index: See :class:`PenalisedLoss`.

    Example:
        >>> logits = torch.tensor([[2.0, 0.0], [0.0, 1.0]])
        >>> round(SBECELoss(temperature=1e-5).penalty(logits, torch.tensor([0, 0])).item(), 3)
        0.524
    """

    name: ClassVar[str] = "sb_ece"
    title: ClassVar[str] = "Soft-binned ECE"
    paper: ClassVar[Paper] = Paper(
        "Karandikar et al.", 2021, "Soft Calibration Objectives for Neural Networks", "arXiv:2108.00106", "eq. 11"
    )

    def __init__(
        self,
        *,
        weight: float = 1.0,
        n_bins: int = 15,
        temperature: float = 0.01,
        norm: GapNorm = "l2",
        base: RowLoss | None = None,
        reduction: Literal["mean", "sum"] = "mean",
        ignore_index: int | None = None,
    ) -> None:
        super().__init__(weight=weight, base=base, reduction=reduction, ignore_index=ignore_index)
        check_at_least(n_bins, 1, "n_bins")
        check_positive(temperature, "temperature")
        check_known(norm, get_args(GapNorm), "norm")
        self.n_bins = n_bins
        self.temperature = temperature
        self.norm = norm

    def penalty(self, logits: Tensor, labels: Tensor) -> Tensor:
        _, confidence, correct = Answers.of(logits, labels)
        bins = torch.arange(self.n_bins, dtype=confidence.dtype, device=confidence.device)
        centres = (bins + 0.5) / self.n_bins
        members = ((confidence[:, None] - centres).square() / -self.temperature).softmax(1)
        gaps = members.T @ (correct - confidence)
        if self.norm == "l1":
            return gaps.abs().sum() / len(labels)
        # The sum of a bin's gaps squared over its size is its size times its mean gap squared.
        return square_root((gaps.square() / members.sum(0).clamp(min=_EMPTY)).sum() / len(labels))
