"""Penalties on a batch that estimate its calibration error: MMCE, DECE, SECE, SB-ECE."""

from typing import ClassVar, Literal, NamedTuple, Self, TypeAlias, final, get_args

import torch
from torch import Tensor

from calibrant.checks import check_bins, check_known, check_positive
from calibrant.losses.base import Batch, PenalisedLoss, RowLoss, full_precision
from calibrant.paper import Paper

__all__ = [
    "AccuracyKind",
    "Answers",
    "DECELoss",
    "GapNorm",
    "MMCELoss",
    "MMCENormalisation",
    "SBECELoss",
    "SECELoss",
    "differentiable_ece",
    "differentiable_sece",
    "entropies",
    "soft_accuracy",
    "square_root",
]

_LOG_OF_NOTHING = -1000.0


class Answers(NamedTuple):
    """The probabilities of a batch, how sure its predictions are, and which are right."""

    probs: Tensor  # (n, k)
    confidence: Tensor  # (n,)
    correct: Tensor  # (n,) of 0 and 1, in the type of the logits

    @classmethod
    def of(cls, logits: Tensor, labels: Tensor) -> Self:
        """Read checked rows.

        Args:
            logits: Shape (n, k).
            labels: Shape (n,), int64.
        """
        probs = logits.softmax(1)
        # Of the logits: two large probabilities can be equal in floating point where their logits are not.
        predicted = logits.argmax(1)
        confidence = probs.gather(1, predicted[:, None])[:, 0]
        return cls(probs, confidence, (predicted == labels).to(logits.dtype))


def entropies(log_probs: Tensor) -> Tensor:
    """The entropy of each row in nats, (n,), to which a class of probability 0 adds nothing.

    Args:
        log_probs: Shape (n, k); -inf where a class is masked.
    """
    # e^-1000 is 0 in every type, so the bound changes no term but that of -inf, where 0 times infinity is no number.
    return -(log_probs.exp() * log_probs.clamp(min=_LOG_OF_NOTHING)).sum(1)


def square_root(value: Tensor) -> Tensor:
    """The root of a number that is at least 0 but for rounding, with slope 0 instead of infinity where it is 0.

    Example:
        >>> zero = torch.zeros((), requires_grad=True)
        >>> square_root(zero).backward()
        >>> float(zero.grad)
        0.0
    """
    # Below this it is the rounding of a sum of numbers up to 1, and the slope of its root would be noise.
    positive = value > torch.finfo(value.dtype).eps ** 2
    return torch.where(positive, value, 1).sqrt() * positive


def soft_accuracy(probs: Tensor, labels: Tensor, *, temperature: float = 100.0) -> Tensor:
    """The accuracy of each row, made smooth through the rank of its true class.

    1 where the true class leads by several hundredths, 0 where it comes second or later by as much, 1/2 where two
    classes share the lead. With many classes the small probabilities add up: 100 classes near .01 around a true class
    of .05 make it 0, though the prediction is right.

    Formula: max(0, 2 − R), R = ½ + Σ_k σ((p_k − p_y)·t), in which k = y adds ½

    Args:
        probs: Shape (n, k).
        labels: Shape (n,), int64.
        temperature: t, by which differences are multiplied, as in the paper's code: larger is harder.

    Returns:
        Shape (n,), from 0 to 1.

    Example:
        >>> soft_accuracy(torch.tensor([[0.8, 0.2], [0.5, 0.5], [0.1, 0.9]]), torch.tensor([0, 0, 0]))
        tensor([1.0000, 0.5000, 0.0000])
    """
    lead = probs - probs.gather(1, labels[:, None])
    return torch.relu(1.5 - torch.sigmoid(temperature * lead).sum(1))


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
        width: Width of the kernel.
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


@final
class DECELoss(PenalisedLoss):
    """Cross-entropy plus the differentiable expected calibration error.

    At the paper's temperatures it is within .002 of the expected calibration error on thousands of overconfident rows.
    On calibrated rows it is a sixth smaller on average, as gaps cancel across the soft edges, and a single batch can
    have anything from .6 to 1.2 of that error. Like it, it is biased upwards: a perfectly calibrated model of two
    classes has .04 to .07 at 128 rows. The paper minimises it on held-out batches, by changing how the network is
    trained; as a penalty on the training rows themselves it vanishes once they are learnt by heart.

    Formula: 1/n Σ_b |Σ_i o_ib (a_i − c_i)|, o_i = softmax_b((b c_i − b(b − 1)/2B)/t) over the bins b = 1..B, and
        a_i the soft accuracy (:func:`soft_accuracy`)

    Args:
        weight: What the penalty is multiplied by; the default is that of the paper's code.
        n_bins: B.
        bin_temperature: t; for t → 0 the bins are hard.
        accuracy_temperature: By which differences of probabilities are multiplied in the soft accuracy.
        base: The loss of each row; the cross-entropy if None.
        reduction: See :class:`PenalisedLoss`.
        ignore_index: See :class:`PenalisedLoss`.

    Example:
        >>> logits = torch.tensor([[2.0, 0.0], [0.0, 1.0]])
        >>> round(DECELoss().penalty(logits, torch.tensor([0, 0])).item(), 3)
        0.425
    """

    name: ClassVar[str] = "dece"
    title: ClassVar[str] = "Differentiable ECE"
    paper: ClassVar[Paper] = Paper(
        "Bohdal et al.",
        2023,
        "Meta-Calibration: Learning of Model Calibration Using Differentiable Expected Calibration Error",
        "arXiv:2106.09613",
    )

    def __init__(
        self,
        *,
        weight: float = 0.5,
        n_bins: int = 15,
        bin_temperature: float = 0.01,
        accuracy_temperature: float = 100.0,
        base: RowLoss | None = None,
        reduction: Literal["mean", "sum"] = "mean",
        ignore_index: int | None = None,
    ) -> None:
        super().__init__(weight=weight, base=base, reduction=reduction, ignore_index=ignore_index)
        check_bins(n_bins)
        check_positive(bin_temperature, "bin_temperature")
        check_positive(accuracy_temperature, "accuracy_temperature")
        self.n_bins = n_bins
        self.bin_temperature = bin_temperature
        self.accuracy_temperature = accuracy_temperature

    def penalty(self, logits: Tensor, labels: Tensor) -> Tensor:
        probs, confidence, _ = Answers.of(logits, labels)
        accuracy = soft_accuracy(probs, labels, temperature=self.accuracy_temperature)
        # Differs from the paper: its code adds 1e-6 to each membership. The bins' sizes cancel, so nothing needs it.
        members = _members(confidence, self.n_bins, self.bin_temperature)
        return (members.T @ (accuracy - confidence)).abs().sum() / len(labels)


def differentiable_ece(
    logits: Tensor,
    labels: Tensor,
    *,
    n_bins: int = 15,
    bin_temperature: float = 0.01,
    accuracy_temperature: float = 100.0,
) -> Tensor:
    """The penalty of :class:`DECELoss` alone, a single number with slopes.

    Args:
        logits: Shape (n, k).
        labels: Shape (n,), whole numbers.
        n_bins: As there.
        bin_temperature: As there.
        accuracy_temperature: As there.

    Raises:
        InputError: If the shapes do not fit, a label is out of range, or an option is.

    Example:
        >>> float(differentiable_ece(torch.tensor([[9.0, -9.0]]), torch.tensor([0]))) < 1e-6
        True
    """
    loss = DECELoss(n_bins=n_bins, bin_temperature=bin_temperature, accuracy_temperature=accuracy_temperature)
    batch = Batch.of(logits, labels, owner=loss.name, ignore_index=None, soft=False)
    with full_precision(logits):
        return loss.penalty(batch.logits, batch.labels)


def _members(confidence: Tensor, n_bins: int, temperature: float) -> Tensor:
    """How far each row belongs to each bin, (n, b); the hardest of all are the bins (lo, hi]."""
    bins = torch.arange(1, n_bins + 1, dtype=confidence.dtype, device=confidence.device)
    # The paper's b c minus the running sum of the bins' lower edges is, but for what all bins have in common, minus B/2
    # times the squared distance to the bin's middle: small where the bin is near, and so rounded by little there.
    away = confidence[:, None] - (bins - 0.5) / n_bins
    return (away.square() * (-n_bins / (2 * temperature))).softmax(1)


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
        check_bins(n_bins)
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
