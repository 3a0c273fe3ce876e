"""Penalties on a batch that estimate its calibration error: MMCE, DECE, SECE, SB-ECE."""

from typing import Literal, TypeAlias, final

import torch
from torch import Tensor

from calibrant.checks import BinCount, NonNegative, Positive
from calibrant.losses.base import PenalisedLoss, TopPredictions
from calibrant.paper import KARANDIKAR, KUMAR_18, WANG_24, Paper

__all__ = ["AccuracyKind", "DECELoss", "GapNorm", "MMCELoss", "MMCENormalisation", "SBECELoss", "SECELoss"]

_BOHDAL = Paper("Bohdal et al.", 2023, "Meta-Calibration: Learning of Model Calibration Using Differentiable "
                "Expected Calibration Error", "arXiv:2106.09613")  # fmt: skip


def _safe_sqrt(value: Tensor) -> Tensor:
    """Return the root of a number that is at least 0 but for rounding; at 0 its slope is 0, not infinite."""
    # Below this it is the rounding of a sum of numbers up to 1, and the slope of its root would be noise.
    positive = value > torch.finfo(value.dtype).eps ** 2
    return torch.where(positive, value, 1).sqrt() * positive


def soft_accuracy(probs: Tensor, labels: Tensor, *, temperature: float = 100.0) -> Tensor:
    """Return the accuracy of each sample, (n,) from 0 to 1, by probabilities (n, k) and labels (n,), smoothed.

    1 where the true class leads by several hundredths, 0 where it comes second or later by as much, 1/2 where two
    classes share the lead. With many classes the small probabilities add up: 100 classes near .01 around a true class
    of .05 make it 0, though the prediction is correct.

    Formula: max(0, 2 − R), R = ½ + Σ_k σ((p_k − p_y)·t), in which k = y adds ½; a larger ``temperature`` t is harder

    Example:
        >>> soft_accuracy(torch.tensor([[0.8, 0.2], [0.5, 0.5], [0.1, 0.9]]), torch.tensor([0, 0, 0]))
        tensor([1.0000, 0.5000, 0.0000])
    """
    lead = probs - probs.gather(1, labels[:, None])
    return torch.relu(1.5 - torch.sigmoid(temperature * lead).sum(1))


MMCENormalisation: TypeAlias = Literal["paper", "legacy", "unweighted"]


@final
class MMCELoss(PenalisedLoss, name="mmce", title="Maximum mean calibration error", paper=KUMAR_18):
    """Cross-entropy plus the maximum mean calibration error, with equal weight for correct and incorrect samples.

    A distance between the missing confidence on correct samples and the confidence on incorrect ones, smoothed over
    confidence. It takes all pairs of samples, so its time grows with the square of the batch. The equal weight has a
    price: on a calibrated model with more correct samples than incorrect ones the penalty is not 0, and pulls towards
    less confidence. ``unweighted`` is 0 on calibrated samples, but for noise.

    Formula: √(Σ_ij s_i s_j exp(−|c_i − c_j|/width)), s_i = (1 − c_i)/m on the m correct samples, −c_i/(n − m) on the
        others

    Args:
        weight: Weight of the penalty. The public training scripts have 2, which goes with their much smaller
            ``legacy``; with ``paper`` it can keep a network from learning at all.
        width: Width of the kernel.
        normalisation: ``paper``: as above; where all samples are correct, or none, the other part is left out.
            ``legacy``: as the public code, which divides by m² and (n − m)² instead (it takes a mean over pairs, and
            then divides by their number again): 30 to 180 times smaller at 128 to 512 samples, dominated by the rarer
            kind of samples, and 0 where all samples are correct, or none. ``unweighted``: s_i = (a_i − c_i)/n.

    Example:
        >>> loss = MMCELoss(weight=1.0)
        >>> round(loss.penalty(torch.tensor([[0.0, 0.0], [0.0, 0.0]]), torch.tensor([0, 0])).item(), 4)
        0.5
    """

    weight: NonNegative = 0.5
    width: Positive = 0.4
    normalisation: MMCENormalisation = "paper"

    def penalty(self, logits: Tensor, labels: Tensor) -> Tensor:
        _, confidence, correct = TopPredictions.of(logits, labels)
        kernel = ((confidence[:, None] - confidence).abs() / -self.width).exp()
        share = (correct - confidence) / self._sizes(correct)
        # Rounding can leave a double sum of 0 below it.
        return _safe_sqrt(share @ (kernel @ share))

    def _sizes(self, correct: Tensor) -> Tensor | int:
        """Return the number that the gap of each sample is divided by."""
        n = len(correct)
        if self.normalisation == "unweighted":
            return n
        right = correct.sum()
        # The sample itself is one of its kind, so neither number is 0 where it is used.
        sizes = correct * right + (1 - correct) * (n - right)
        if self.normalisation == "paper":
            return sizes
        # Without the public code's 1e-5 and 1e-10 against 0/0. An infinite size where one kind is missing.
        return sizes.square() / ((right > 0) & (right < n))


@final
class DECELoss(PenalisedLoss, name="dece", title="Differentiable ECE", paper=_BOHDAL):
    """Cross-entropy plus the differentiable expected calibration error.

    At the paper's temperatures it is within .002 of the expected calibration error on thousands of overconfident
    samples. On calibrated samples it is a sixth smaller on average, as gaps cancel across the soft edges, and a single
    batch can have anything from .6 to 1.2 of that error. Like it, it is biased upwards: a perfectly calibrated model of
    two classes has .04 to .07 at 128 samples. The paper minimises it on held-out batches, by changing how the network
    is trained; as a penalty on the training samples themselves it vanishes once they are memorised.

    Formula: 1/n Σ_b |Σ_i o_ib (a_i − c_i)|, o_i = softmax_b((b c_i − b(b − 1)/2B)/t) over the bins b = 1..B, and
        a_i the soft accuracy (:func:`soft_accuracy`)

    Args:
        weight: Weight of the penalty; the default is that of the paper's code.
        n_bins: B.
        bin_temperature: t; for t → 0 the bins are hard.
        accuracy_temperature: Factor of the differences of probabilities in the soft accuracy.

    Example:
        >>> logits = torch.tensor([[2.0, 0.0], [0.0, 1.0]])
        >>> round(DECELoss().penalty(logits, torch.tensor([0, 0])).item(), 3)
        0.425
    """

    weight: NonNegative = 0.5
    n_bins: BinCount = 15
    bin_temperature: Positive = 0.01
    accuracy_temperature: Positive = 100.0

    def penalty(self, logits: Tensor, labels: Tensor) -> Tensor:
        probs, confidence, _ = TopPredictions.of(logits, labels)
        accuracy = soft_accuracy(probs, labels, temperature=self.accuracy_temperature)
        bins = torch.arange(1, self.n_bins + 1, dtype=confidence.dtype, device=confidence.device)
        # The paper's b c minus the running sum of the bins' lower edges is, but for a term that all bins share, minus
        # B/2 times the squared distance to the bin's middle: small where the bin is near, and so rounded little there.
        distance = confidence[:, None] - (bins - 0.5) / self.n_bins
        members = (distance.square() * (-self.n_bins / (2 * self.bin_temperature))).softmax(1)
        # Differs from the paper: its code adds 1e-6 to each membership. The bins' sizes cancel, so nothing needs it.
        return (members.T @ (accuracy - confidence)).abs().sum() / len(labels)


AccuracyKind: TypeAlias = Literal["soft", "hard"]


# Differs from the paper: its equation 5 lacks the normaliser and has the sample's own accuracy, so it grows with n.
@final
class SECELoss(PenalisedLoss, name="sece", title="Smooth ECE of meta-regularisation", paper=WANG_24):
    """Cross-entropy plus the smooth expected calibration error of meta-regularisation.

    No bins, so no edges; a kernel width instead. Small widths leave each sample to itself: the penalty is then the mean
    of |a − c|, which asks for confidence on every correct sample. It is biased upwards, more than binned errors are: a
    calibrated model of two classes has .06 to .11 at 128 samples, and half of that at 512. It takes all pairs of
    samples, so its time grows with the square of the batch.

    Formula: 1/n Σ_i |Σ_j a_j K_ij/Σ_j K_ij − c_i|, K_ij = exp(−(c_i − c_j)²/2h²)

    Args:
        weight: Weight of the penalty. The paper minimises it alone, on held-out batches; the default is that of
            :class:`DECELoss`.
        bandwidth: h.
        accuracy: a_j: ``soft`` (:func:`soft_accuracy`), as in the paper; or ``hard``, 0 or 1, without slope.
        accuracy_temperature: Factor of the differences of probabilities in the soft accuracy.

    Example:
        >>> logits = torch.tensor([[2.0, 0.0], [0.0, 1.0]])
        >>> round(SECELoss(accuracy="hard").penalty(logits, torch.tensor([0, 0])).item(), 3)
        0.425
    """

    weight: NonNegative = 0.5
    bandwidth: Positive = 0.01
    accuracy: AccuracyKind = "soft"
    accuracy_temperature: Positive = 100.0

    def penalty(self, logits: Tensor, labels: Tensor) -> Tensor:
        probs, confidence, correct = TopPredictions.of(logits, labels)
        if self.accuracy == "soft":
            correct = soft_accuracy(probs, labels, temperature=self.accuracy_temperature)
        scaled = confidence / self.bandwidth
        kernel = ((scaled[:, None] - scaled).square() / -2).exp()
        # Each sample is its own neighbour, so the sum of its weights is at least 1.
        return ((kernel @ correct) / kernel.sum(1) - confidence).abs().mean()


GapNorm: TypeAlias = Literal["l1", "l2"]
# A bin with fewer samples than this adds 0, rather than 0/0.
_EMPTY = 1e-12


@final
class SBECELoss(PenalisedLoss, name="sb_ece", title="Soft-binned ECE", paper=KARANDIKAR.at("eq. 11")):
    """Cross-entropy plus the soft-binned calibration error.

    Each sample belongs to all bins, most to the one whose centre is nearest. The default temperature blurs neighbouring
    bins into one another, so gaps of opposite sign cancel and the penalty lies below the hard error (.031 for .044 in
    one case); temperatures of 1e-5 and less give the hard one.

    Formula: √(Σ_b n_b/n (acc_b − conf_b)²), n_b, acc_b and conf_b the size and means of bin b with weights
        softmax_b(−(c_i − ξ_b)²/T), ξ_b the centres of equal-width bins

    Args:
        weight: Weight of the penalty. The paper tunes it anew for each data set.
        n_bins: Number of bins.
        temperature: T.
        norm: ``l2``, as above; or ``l1``: Σ_b n_b/n |acc_b − conf_b|.

    Example:
        >>> logits = torch.tensor([[2.0, 0.0], [0.0, 1.0]])
        >>> round(SBECELoss(temperature=1e-5).penalty(logits, torch.tensor([0, 0])).item(), 3)
        0.524
    """

    weight: NonNegative = 1.0
    n_bins: BinCount = 15
    temperature: Positive = 0.01
    norm: GapNorm = "l2"

    def penalty(self, logits: Tensor, labels: Tensor) -> Tensor:
        _, confidence, correct = TopPredictions.of(logits, labels)
        bins = torch.arange(self.n_bins, dtype=confidence.dtype, device=confidence.device)
        centres = (bins + 0.5) / self.n_bins
        members = ((confidence[:, None] - centres).square() / -self.temperature).softmax(1)
        gaps = members.T @ (correct - confidence)
        if self.norm == "l1":
            return gaps.abs().sum() / len(labels)
        # The squared sum of a bin's gaps over its size is its size times its squared mean gap.
        return _safe_sqrt((gaps.square() / members.sum(0).clamp(min=_EMPTY)).sum() / len(labels))
