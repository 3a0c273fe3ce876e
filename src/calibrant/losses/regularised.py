"""Losses of single samples outside the focal family: Brier score, and cross-entropy with a regulariser."""

import math
from functools import partial
from typing import Annotated, Literal, TypeAlias, final

import torch
from torch import Tensor
from torch.nn import functional as F

from calibrant.checks import NonNegative, check_real_number
from calibrant.losses.base import RowLoss, entropies, log_losses
from calibrant.paper import BRIER, Paper

__all__ = [
    "BrierLoss", "EntropyRegularisedLoss", "LabelSmoothingLoss", "LogitNormLoss", "MarginLoss", "OverClasses",
    "PairwiseConstraintsLoss",
]  # fmt: skip

_SZEGEDY = Paper("Szegedy et al.", 2016, "Rethinking the Inception Architecture for Computer Vision",
                 "arXiv:1512.00567", "Section 7")  # fmt: skip
_PEREYRA = Paper("Pereyra et al.", 2017, "Regularizing Neural Networks by Penalizing Confident Output Distributions",
                 "arXiv:1701.06548")  # fmt: skip
_JOO = Paper("Joo & Chung", 2020, "Revisiting Explicit Regularization in Neural Networks for Well-Calibrated "
             "Predictive Uncertainty", "arXiv:2006.06399")  # fmt: skip
_LIU = Paper("Liu et al.", 2022, "The Devil is in the Margin: Margin-based Label Smoothing for Network "
             "Calibration", "arXiv:2111.15430")  # fmt: skip
_CHENG = Paper("Cheng & Vasconcelos", 2022, "Calibrating Deep Neural Networks by Pairwise Constraints",
               "https://openaccess.thecvf.com/content/CVPR2022/html/Cheng_Calibrating_Deep_Neural_Networks_by_"
               "Pairwise_Constraints_CVPR_2022_paper.html")  # fmt: skip


@final
class BrierLoss(RowLoss, name="brier", title="Brier loss", paper=BRIER, takes_soft_labels=True):
    """Squared distance between the probabilities and the one-hot truth, summed over the classes.

    Proper like the cross-entropy, but bounded: one confident mistake costs 2 at most. The price is a gradient that
    fades on samples that are confidently wrong, so with many classes training starts slowly or not at all. In 0..2;
    some libraries divide by the number of classes, and their learning rates do not carry over.

    Formula: Σ_j (p_j - [y = j])²

    Example:
        >>> float(BrierLoss()(torch.zeros(1, 2), torch.tensor([0])))
        0.5
    """

    def rows(self, logits: Tensor, labels: Tensor) -> Tensor:
        probs = logits.softmax(1)
        if labels.is_floating_point():
            return (probs - labels).square().sum(1)
        # Σ p² - 2 p_y + 1 would save a pass, and be negative for some certain samples.
        return probs.scatter_add(1, labels[:, None], probs.new_full((len(labels), 1), -1.0)).square().sum(1)


@final
class LabelSmoothingLoss(
    RowLoss, name="label_smoothing", title="Label smoothing", paper=_SZEGEDY, takes_soft_labels=True
):
    """Cross-entropy against the label mixed with the uniform distribution.

    The loss is smallest at a probability below one, so a network that memorises its training set does not become
    certain. Its confidence is capped by ``smoothing`` and not by how hard a sample is: confidence separates correct
    from incorrect predictions less well, and a temperature fitted afterwards has less to correct.

    Formula: (1 - ε) · -log p_y + ε/k Σ_j -log p_j

    Args:
        smoothing: ε, in -1..1; 0 is the cross-entropy. Code that shares ε among the wrong classes only means
            ε k / (k - 1) here. Below 0 it rewards confidence, correct or not, and the loss has no lower bound:
            networks lose accuracy or diverge at small values already.

    Example:
        >>> sure = torch.tensor([[12.0, 0.0, 0.0]])
        >>> round(LabelSmoothingLoss()(sure, torch.tensor([0])).item(), 4)  # 2/3 of ε, times 12
        0.4
    """

    smoothing: Annotated[float, partial(check_real_number, least=-1, most=1)] = 0.05

    def rows(self, logits: Tensor, labels: Tensor) -> Tensor:
        if self.smoothing >= 0:
            return log_losses(logits, labels, smoothing=self.smoothing)
        # Torch refuses a share below 0.
        uniform = -logits.log_softmax(dim=1).mean(dim=1)
        return (1 - self.smoothing) * log_losses(logits, labels) + self.smoothing * uniform


@final
class EntropyRegularisedLoss(
    RowLoss, name="entropy", title="Cross-entropy less the entropy", paper=_PEREYRA, takes_soft_labels=True
):
    """Cross-entropy less a multiple of the entropy of the prediction (ERL, the confidence penalty).

    Confident predictions cost something, correct or not, so confidence falls everywhere, also where it is deserved: it
    separates correct from incorrect predictions less well. A weight large enough outweighs the labels.

    Formula: -log p_y - weight · H(p), H(p) = -Σ_j p_j log p_j in nats

    Args:
        weight: Weight of the entropy; 0 leaves the cross-entropy. Code that averages the entropy's terms
            over the classes divides by k: its 0.1 is 0.1/k here.

    Example:
        >>> loss = EntropyRegularisedLoss()(torch.zeros(1, 2), torch.tensor([1]))  # log p_y and entropy: both log 2
        >>> round(loss.item() / math.log(2), 4)
        0.9
    """

    weight: NonNegative = 0.1

    def rows(self, logits: Tensor, labels: Tensor) -> Tensor:
        if self.weight == 0:
            return log_losses(logits, labels)
        log_probs = logits.log_softmax(1)
        is_soft = labels.is_floating_point()
        losses = -(labels * log_probs).sum(1) if is_soft else -log_probs.gather(1, labels[:, None])[:, 0]
        return losses - self.weight * entropies(log_probs)


@final
class LogitNormLoss(
    RowLoss, name="logit_norm", title="Cross-entropy with a norm of the logits", paper=_JOO, takes_soft_labels=True
):
    """Cross-entropy plus a penalty on large logits.

    Small logits make flat probabilities, so overconfidence falls. The penalty also pulls a common shift of all logits
    to zero, which changes no probability. A weight that suits ten classes can stop a network of a hundred from
    learning at all (published: 0.05 does). It does not divide logits by their norm: that is another method, also called
    LogitNorm.

    Formula: -log p_y + weight · (Σ_j |z_j|^p)^(1/p)

    Args:
        weight: Weight of the norm; 0 leaves the cross-entropy. Below 0 it rewards large logits, and the loss has no
            lower bound: networks lose accuracy or diverge at small values already.
        p: Order of the norm, at least 1.

    Example:
        >>> logits, labels = torch.tensor([[3.0, -4.0]]), torch.tensor([0])
        >>> extra = LogitNormLoss(weight=0.1)(logits, labels) - LogitNormLoss(weight=0)(logits, labels)
        >>> round(extra.item(), 4)
        0.7
    """

    weight: Annotated[float, partial(check_real_number, least=-1)] = 0.01
    p: Annotated[float, partial(check_real_number, least=1)] = 1.0

    def rows(self, logits: Tensor, labels: Tensor) -> Tensor:
        losses = log_losses(logits, labels)
        return losses if self.weight == 0 else losses + self.weight * _norms(logits, self.p)


def _norms(logits: Tensor, p: float) -> Tensor:
    if p == 1:
        return torch.linalg.vector_norm(logits, ord=1, dim=1)
    # |z|^p can be too large a number where the norm is not. The norm of z / max|z| has the same gradient.
    largest = logits.detach().abs().amax(1, keepdim=True).clamp(min=torch.finfo(logits.dtype).tiny)
    return largest[:, 0] * torch.linalg.vector_norm(logits / largest, ord=p, dim=1)


OverClasses: TypeAlias = Literal["mean", "sum"]


@final
class MarginLoss(RowLoss, name="mbls", title="Margin-based label smoothing", paper=_LIU, takes_soft_labels=True):
    """Cross-entropy plus a penalty on logits that lie more than a margin behind the largest (MbLS).

    Label smoothing pulls all wrong logits together; this leaves them alone within the margin. Beyond it the
    cross-entropy has next to nothing to gain, so the margin caps the confidence: a network that reaches it everywhere
    has the confidence that the margin allows, whatever the sample.

    Formula: -log p_y + weight · 1/k Σ_j max(0, max_i z_i - z_j - margin)

    Args:
        margin: Lead of the largest logit without a penalty, at least 0.
        weight: Weight of the penalty; 0 leaves the cross-entropy.
        over_classes: ``mean``, as in the formula and in the authors' code, whose weight of 0.1 is the default; or
            ``sum``, as the paper writes it: k times as much.

    Example:
        >>> logits, labels = torch.tensor([[14.0, 0.0]]), torch.tensor([0])  # 4 beyond the margin, for one class of two
        >>> round(MarginLoss()(logits, labels).item(), 4)
        0.2
    """

    margin: NonNegative = 10.0
    weight: NonNegative = 0.1
    over_classes: OverClasses = "mean"

    def rows(self, logits: Tensor, labels: Tensor) -> Tensor:
        losses = log_losses(logits, labels)
        if self.weight == 0:
            return losses
        excess = (logits.amax(1, keepdim=True) - self.margin - logits).relu().sum(1)
        # Differs from the paper: its equation sums over the classes; the weight it gives is that of its code's mean.
        share = self.weight / logits.shape[1] if self.over_classes == "mean" else self.weight
        return losses + share * excess


@final
class PairwiseConstraintsLoss(RowLoss, name="cpc", title="Calibration by pairwise constraints", paper=_CHENG):
    """Cross-entropy plus a term for each pair of classes: the true one wins, two wrong ones tie (CPC).

    The cross-entropy alone says little about the probabilities of wrong classes. The first term asks that the true
    class win against each other, σ(z_y - z_j) = 1; the second that two wrong classes tie, σ(z_i - z_j) = 1/2, which
    ignores that some mistakes are more natural than others. The second never falls below log 2, so the loss does not
    reach 0, and it needs n (k - 1)² numbers of memory: 20 MB for 512 samples of 100 classes, 2 GB for 1,000.
    A class masked by a logit of -inf can tie with none: the loss is NaN then, unless the second term is left out.

    Formula: -log p_y + λ_D · mean_{j≠y} -log σ(z_y - z_j) + λ_E · mean_{i≠j, both ≠y} -log σ(z_i - z_j)

    Args:
        discrimination_weight: λ_D, weight of the pairs with the true class; 0 leaves them out.
        exclusion_weight: λ_E, weight of the pairs of wrong classes, of which two classes have none; 0 leaves them out.
            Public code halves this term: its 1 is 0.5 here, up to a constant.

    Example:
        >>> loss = PairwiseConstraintsLoss()(torch.zeros(1, 4), torch.tensor([2]))  # log 4 + log 2 + log 2
        >>> round(loss.item() / math.log(2), 4)
        4.0
    """

    discrimination_weight: NonNegative = 1.0
    exclusion_weight: NonNegative = 1.0

    def rows(self, logits: Tensor, labels: Tensor) -> Tensor:
        losses, k = log_losses(logits, labels), logits.shape[1]
        places = torch.arange(k - 1, device=logits.device)
        # By index, as the shape that a mask selects depends on the data.
        true, wrong = logits.gather(1, labels[:, None]), logits.gather(1, places + (places >= labels[:, None]))
        if self.discrimination_weight > 0:
            losses = losses - self.discrimination_weight * F.logsigmoid(true - wrong).mean(1)
        if self.exclusion_weight > 0 and k > 2:
            # Both orders of a pair are in the table, so their sum is twice the cross-entropy to 1/2. The k - 1 pairs of
            # a class with itself are each log 2, without a gradient.
            pairs = -F.logsigmoid(wrong[:, :, None] - wrong[:, None, :]).sum((1, 2)) - (k - 1) * math.log(2)
            losses = losses + self.exclusion_weight / ((k - 1) * (k - 2)) * pairs
        return losses
