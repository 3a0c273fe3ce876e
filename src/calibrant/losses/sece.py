"""SECE: the calibration error of a batch with each row's accuracy read off its neighbours in confidence."""

from typing import ClassVar, Literal, TypeAlias, final, get_args

from torch import Tensor

from calibrant.checks import check_known, check_positive
from calibrant.losses.answers import Answers
from calibrant.losses.base import PenalisedLoss, RowLoss
from calibrant.losses.batch import Batch, full_precision
from calibrant.losses.soft_accuracy import soft_accuracy
from calibrant.paper import Paper

__all__ = ["AccuracyKind", "SECELoss", "differentiable_sece"]

AccuracyKind: TypeAlias = Literal["soft", "hard"]


@final
class SECELoss(PenalisedLoss):
    """Cross-entropy plus the smooth expected calibration error of meta-regularisation.

    No bins, so no edges; a kernel width instead. Small widths leave each row to itself: the penalty is then the mean of
    |a − c|, which asks for confidence on every right row. It is biased upwards, more than binned errors are: a
    calibrated model of two classes has .06 to .11 at 128 rows, and half of that at 512. It takes all pairs of rows, so
    its time grows with the square of the batch.

    Formula: 1/n Σ_i |Σ_j a_j K_ij/Σ_j K_ij − c_i|, K_ij = exp(−(c_i − c_j)²/2h²)

    Args:
        weight: What the penalty is multiplied by. The paper minimises it alone, on held-out batches; the default is
            what :class:`DECELoss` has.
        bandwidth: h.
        accuracy: What a_j is: ``soft`` (:func:`soft_accuracy`), as in the paper; or ``hard``, 0 or 1, without slope.
        accuracy_temperature: By which differences of probabilities are multiplied in the soft accuracy.
        base: The loss of each row; the cross-entropy if None.
        reduction: See :class:`PenalisedLoss`.
        ignore_index: See :class:`PenalisedLoss`.

    Example:
        >>> import torch
        >>> logits = torch.tensor([[2.0, 0.0], [0.0, 1.0]])
        >>> round(SECELoss(accuracy="hard").penalty(logits, torch.tensor([0, 0])).item(), 3)
        0.425
    """

    name: ClassVar[str] = "sece"
    title: ClassVar[str] = "Smooth ECE of meta-regularisation"
    # Differs from the paper: its equation 5 lacks the normaliser and has the row's own accuracy, and so grows with n.
    paper: ClassVar[Paper] = Paper(
        "Wang & Golebiowski",
        2024,
        "Towards Unbiased Calibration using Meta-Regularization",
        "arXiv:2303.15057",
        "eq. 5-7",
    )

    def __init__(
        self,
        *,
        weight: float = 0.5,
        bandwidth: float = 0.01,
        accuracy: AccuracyKind = "soft",
        accuracy_temperature: float = 100.0,
        base: RowLoss | None = None,
        reduction: Literal["mean", "sum"] = "mean",
        ignore_index: int | None = None,
    ) -> None:
        super().__init__(weight=weight, base=base, reduction=reduction, ignore_index=ignore_index)
        check_positive(bandwidth, "bandwidth")
        check_known(accuracy, get_args(AccuracyKind), "accuracy")
        check_positive(accuracy_temperature, "accuracy_temperature")
        self.bandwidth = bandwidth
        self.accuracy = accuracy
        self.accuracy_temperature = accuracy_temperature

    def penalty(self, logits: Tensor, labels: Tensor) -> Tensor:
        probs, confidence, correct = Answers.of(logits, labels)
        if self.accuracy == "soft":
            correct = soft_accuracy(probs, labels, temperature=self.accuracy_temperature)
        scaled = confidence / self.bandwidth
        kernel = ((scaled[:, None] - scaled).square() / -2).exp()
        # Each row is its own neighbour, so the sum of its weights is at least 1.
        return ((kernel @ correct) / kernel.sum(1) - confidence).abs().mean()


def differentiable_sece(
    logits: Tensor,
    labels: Tensor,
    *,
    bandwidth: float = 0.01,
    accuracy: AccuracyKind = "soft",
    accuracy_temperature: float = 100.0,
) -> Tensor:
    """The penalty of :class:`SECELoss` alone, a single number with slopes.

    Args:
        logits: Shape (n, k).
        labels: Shape (n,), whole numbers.
        bandwidth: As there.
        accuracy: As there.
        accuracy_temperature: As there.

    Raises:
        InputError: If the shapes do not fit, a label is out of range, or an option is.

    Example:
        >>> import torch
        >>> float(differentiable_sece(torch.tensor([[9.0, -9.0]]), torch.tensor([0]))) < 1e-6
        True
    """
    loss = SECELoss(bandwidth=bandwidth, accuracy=accuracy, accuracy_temperature=accuracy_temperature)
    batch = Batch.of(logits, labels, owner=loss.name, ignore_index=None, soft=False)
    with full_precision(logits):
        return loss.penalty(batch.logits, batch.labels)
