"""MMCE: the maximum mean calibration error of a batch, as a penalty."""

from typing import ClassVar, Literal, TypeAlias, final, get_args

from torch import Tensor

from calibrant.checks import check_known, check_positive
from calibrant.losses.answers import Answers
from calibrant.losses.base import PenalisedLoss, RowLoss
from calibrant.losses.square_root import square_root
from calibrant.paper import Paper

__all__ = ["MMCELoss", "MMCENormalisation"]

MMCENormalisation: TypeAlias = Literal["paper", "legacy", "unweighted"]


@final
class MMCELoss(PenalisedLoss):
    """Cross-entropy plus the maximum mean calibration error, right and wrong rows weighing the same.

    A distance between the doubt on right rows and the confidence on wrong ones, smoothed over confidence. It takes
    all pairs of rows, so its time grows with the square of the batch. Weighing both kinds of rows the same has a
    price: on a calibrated model with more right rows than wrong ones the penalty is not 0, and pulls towards less
    confidence. ``unweighted`` is 0 on calibrated rows, but for noise.

    Formula: √(Σ_ij s_i s_j exp(−|c_i − c_j|/width)), s_i = (1 − c_i)/m on the m right rows, −c_i/(n − m) on the wrong

    Args:
        weight: What the penalty is multiplied by. The public training scripts have 2, which goes with their much
            smaller ``legacy``; with ``paper`` it can keep a network from learning at all.
        width: Of the kernel.
        normalisation: ``paper``: as above; where all rows are right, or all wrong, the other part is left out.
            ``legacy``: as the public code, which divides by m² and (n − m)² instead (it takes a mean over pairs, and
            then divides by their number again): 30 to 180 times smaller at 128 to 512 rows, weighed towards the rarer
            kind of rows, and 0 where all rows are right, or all wrong. ``unweighted``: s_i = (a_i − c_i)/n.
        base: The loss of each row; the cross-entropy if None.
        reduction: See :class:`PenalisedLoss`.
        ignore_index: See :class:`PenalisedLoss`.

    Example:
        >>> import torch
        >>> loss = MMCELoss(weight=1.0)
        >>> round(loss.penalty(torch.tensor([[0.0, 0.0], [0.0, 0.0]]), torch.tensor([0, 0])).item(), 4)
        0.5
    """

    name: ClassVar[str] = "mmce"
    title: ClassVar[str] = "Maximum mean calibration error"
    paper: ClassVar[Paper] = Paper(
        "Kumar et al.",
        2018,
        "Trainable Calibration Measures for Neural Networks from Kernel Mean Embeddings",
        "https://proceedings.mlr.press/v80/kumar18a.html",
    )

    def __init__(
        self,
        *,
        weight: float = 0.5,
        width: float = 0.4,
        normalisation: MMCENormalisation = "paper",
        base: RowLoss | None = None,
        reduction: Literal["mean", "sum"] = "mean",
        ignore_index: int | None = None,
    ) -> None:
        super().__init__(weight=weight, base=base, reduction=reduction, ignore_index=ignore_index)
        check_positive(width, "width")
        check_known(normalisation, get_args(MMCENormalisation), "normalisation")
        self.width = width
        self.normalisation = normalisation

    def penalty(self, logits: Tensor, labels: Tensor) -> Tensor:
        _, confidence, correct = Answers.of(logits, labels)
        kernel = ((confidence[:, None] - confidence).abs() / -self.width).exp()
        share = (correct - confidence) / self._sizes(correct)
        # Rounding can leave a double sum of 0 below it.
        return square_root(share @ (kernel @ share))

    def _sizes(self, correct: Tensor) -> Tensor | int:
        """What each row's gap is divided by."""
        n = len(correct)
        if self.normalisation == "unweighted":
            return n
        right = correct.sum()
        # A row of its kind is there to be divided, so neither number is 0 where it is used.
        sizes = correct * right + (1 - correct) * (n - right)
        if self.normalisation == "paper":
            return sizes
        # Without the public code's 1e-5 and 1e-10 that keep it from 0/0. An infinite size where one kind is missing.
        return sizes.square() / ((right > 0) & (right < n))
