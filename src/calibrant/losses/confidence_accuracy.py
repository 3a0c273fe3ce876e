"""Penalties on a batch that compare confidence with correctness: DCA, MDCA, AvUC, soft AvUC, correctness ranking."""

import math
from dataclasses import field
from typing import Literal, TypeAlias, final

import torch
from torch import Tensor

from calibrant.checks import AtLeastZero, NonNegative, Positive, check_at_least
from calibrant.errors import InputError
from calibrant.losses.base import PenalisedLoss, TopPredictions, entropies
from calibrant.paper import KARANDIKAR, Paper

__all__ = [
    "AvUCLoss", "CorrectnessNormalisation", "CorrectnessRankingLoss", "DCALoss", "MDCALoss", "RankedScore",
    "SoftAvUCLoss",
]  # fmt: skip

_LIANG = Paper("Liang et al.", 2020, "Improved Trainable Calibration Method for Neural Networks on Medical Imaging "
               "Classification", "arXiv:2009.04057")  # fmt: skip
_HEBBALAGUPPE = Paper("Hebbalaguppe et al.", 2022, "A Stitch in Time Saves Nine: A Train-Time Regularizing Loss for "
                      "Improved Neural Network Calibration", "arXiv:2203.13834")  # fmt: skip
# Differs from the paper: its code takes the middle over held-out samples, and keeps it from the sixth epoch on.
_KRISHNAN = Paper("Krishnan & Tickoo", 2020, "Improving model calibration with accuracy versus uncertainty "
                  "optimization", "arXiv:2012.07923", "eq. 3")  # fmt: skip
_EQ_15 = KARANDIKAR.at("eq. 15")
_MOON = Paper("Moon et al.", 2020, "Confidence-Aware Learning for Deep Neural Networks", "arXiv:2007.01458")


@final
class DCALoss(PenalisedLoss, name="dca", title="Difference of confidence and accuracy", paper=_LIANG):
    """Cross-entropy plus the difference of mean confidence and accuracy.

    The calibration error with a single bin: over- and underconfident samples cancel. Accuracy has no slope, so the
    penalty only moves confidence, and on a memorised training set it asks for certainty.

    Formula: |1/n Σ_i c_i − 1/n Σ_i a_i|

    Args:
        weight: Weight of the penalty. The default is that of public code.

    Example:
        >>> DCALoss().penalty(torch.zeros(4, 2), torch.tensor([0, 0, 0, 1])).item()
        0.25
    """

    weight: NonNegative = 1.0

    def penalty(self, logits: Tensor, labels: Tensor) -> Tensor:
        _, confidence, correct = TopPredictions.of(logits, labels)
        return (confidence - correct).mean().abs()


@final
class MDCALoss(
    PenalisedLoss,
    name="mdca",
    title="Multi-class difference of confidence and accuracy",
    paper=_HEBBALAGUPPE,
    takes_soft_labels=True,
):
    """Cross-entropy plus the multi-class difference of confidence and accuracy.

    Compares mean probabilities with class frequencies, all classes and all samples at once: over- and underconfident
    samples cancel, and a network that always predicts the frequencies has no penalty. With many classes and few samples
    in a batch the frequencies are mostly noise. The paper's best results have a focal loss as base.

    Formula: 1/k Σ_k |1/n Σ_i p_ik − 1/n Σ_i y_ik|

    Args:
        weight: Weight of the penalty; the default is that of the paper's code.

    Example:
        >>> MDCALoss().penalty(torch.zeros(4, 2), torch.tensor([0, 0, 0, 1])).item()
        0.25
    """

    weight: NonNegative = 1.0

    def penalty(self, logits: Tensor, labels: Tensor) -> Tensor:
        predicted = logits.softmax(1).mean(0)
        if labels.is_floating_point():
            frequencies = labels.mean(0)
        else:
            # Not bincount, which waits for a GPU to count the classes.
            ones = predicted.new_ones(len(labels))
            frequencies = predicted.new_zeros(logits.shape[1]).index_add_(0, labels, ones) / len(labels)
        return (predicted - frequencies).abs().mean()


# Far below the part of one sample, and far above rounding: keeps a batch without any part from 0/0.
_LEAST = 1e-6


def _log_odds_of_mismatch(part: Tensor, matched: Tensor) -> Tensor:
    """Return log(1 + mismatched/matched), finite where both are 0, from the part that each sample adds, (n,)."""
    return ((part @ (1 - matched)) / (part @ matched + _LEAST)).log1p()


@final
class AvUCLoss(PenalisedLoss, name="avuc", title="Accuracy versus uncertainty", paper=_KRISHNAN):
    """Cross-entropy plus the accuracy-versus-uncertainty calibration loss.

    Samples are certain up to a threshold on their entropy, and uncertain above it. Correct and certain, or incorrect
    and uncertain, is as it should be; the penalty grows with the odds against that. It separates correct from incorrect
    samples, and does not see how often a confidence of .8 is correct: temperature scaling may still be needed
    afterwards. Which group a sample is in has no slope, and an incorrect sample of high confidence hardly counts, as
    its part is 1 − c. The entropies of an untrained network mean little: with the penalty from the start it can stay
    uncertain of everything (digits after 20 epochs: .88 accurate with a calibration error of .5; .97 and .02 with the
    warm-up). So the training loop must call :meth:`begin_epoch`: without it the penalty is off unless ``from_epoch`` is
    0.

    Formula: log(1 + (n_AU + n_IC)/(n_AC + n_IU)), with u the entropy and sums over the samples of each group:
        n_AC = Σ c (1 − tanh u), n_AU = Σ c tanh u, n_IC = Σ (1 − c)(1 − tanh u), n_IU = Σ (1 − c) tanh u

    Args:
        weight: Weight of the penalty; the paper's β.
        threshold: The largest entropy that is certain, in nats. None takes, in each batch, the middle between the mean
            entropy of the correct samples and that of the others, or the mean of all where there is only one kind.
        from_epoch: The first epoch with the penalty, counted from 0; a run with no more epochs than that never has it.

    Example:
        >>> sure_and_right = torch.tensor([[9.0, 0.0], [0.0, 9.0]])
        >>> loss = AvUCLoss(threshold=0.5, from_epoch=0)
        >>> loss.penalty(sure_and_right, torch.tensor([0, 1])).item()
        0.0
        >>> round(loss.penalty(sure_and_right, torch.tensor([0, 0])).item(), 4)
        0.0001
    """

    weight: NonNegative = 3.0
    threshold: NonNegative | None = None
    from_epoch: AtLeastZero = 5
    switch: Tensor = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.register_buffer("switch", torch.tensor(float(self.from_epoch == 0)))

    def begin_epoch(self, epoch: int) -> None:
        """Turn the penalty on or off for an epoch, counted from 0."""
        check_at_least(epoch, 0, "epoch")
        self.switch.fill_(float(epoch >= self.from_epoch))

    def penalty(self, logits: Tensor, labels: Tensor) -> Tensor:
        _, confidence, correct = TopPredictions.of(logits, labels)
        entropy = entropies(logits.log_softmax(1))
        uncertain = (entropy > self._border(entropy.detach(), correct)).to(entropy.dtype)
        unsure = entropy.tanh()
        part = torch.where(correct > 0, confidence, 1 - confidence) * torch.where(uncertain > 0, unsure, 1 - unsure)
        return self.switch.to(part.dtype) * _log_odds_of_mismatch(part, (correct - uncertain).abs())

    def _border(self, entropy: Tensor, correct: Tensor) -> Tensor | float:
        if self.threshold is not None:
            return self.threshold
        right = correct.sum()
        wrong = len(correct) - right
        middle = (entropy @ correct / right.clamp(min=1) + entropy @ (1 - correct) / wrong.clamp(min=1)) / 2
        return torch.where(right * wrong > 0, middle, entropy.mean())


# The logit of an uncertainty of 0 or 1 is infinite; the float32 neighbours of 1 are 6e-8 apart.
_EDGE = 1e-6


@final
class SoftAvUCLoss(PenalisedLoss, name="soft_avuc", title="Soft accuracy versus uncertainty", paper=_EQ_15):
    """Cross-entropy plus the accuracy-versus-uncertainty loss with a soft border between certain and uncertain.

    As :class:`AvUCLoss`, but each sample is partly certain and partly uncertain, so that the border has a slope. It
    lies at a fixed fraction of the largest possible entropy.

    Formula: log(1 + (n_AU + n_IC)/(n_AC + n_IU)), with u the entropy, t = σ((logit(u/log k) − logit κ)/T) and
        n_AC = Σ (1 − t)(1 − tanh u), n_AU = Σ t tanh u over correct samples, n_IC and n_IU the same over the others

    Args:
        weight: Weight of the penalty. The paper tunes it, κ and T anew for each data set.
        threshold: κ, as a fraction of the largest entropy.
        temperature: T; for T → 0 the border is hard. The defaults of both, those of the paper's code, make t the
            entropy as a fraction of the largest.

    Example:
        >>> sure = torch.tensor([[9.0, 0.0], [0.0, 9.0]])
        >>> right, wrong = (SoftAvUCLoss().penalty(sure, torch.tensor(y)).item() for y in ([0, 1], [1, 0]))
        >>> right < 0.001 < 10 < wrong
        True
    """

    weight: NonNegative = 1.0
    threshold: Positive = 0.5
    temperature: Positive = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.threshold >= 1:
            raise InputError(
                f"threshold must be a fraction of the largest entropy, below 1; got {self.threshold}. "
                "Divide one in nats by the logarithm of the number of classes."
            )

    def penalty(self, logits: Tensor, labels: Tensor) -> Tensor:
        correct = TopPredictions.of(logits, labels).correct
        entropy = entropies(logits.log_softmax(1))
        border = math.log(self.threshold / (1 - self.threshold))
        share = torch.logit(entropy / math.log(logits.shape[1]), eps=_EDGE)
        uncertain = ((share - border) / self.temperature).sigmoid()
        unsure = entropy.tanh()
        certain_part, uncertain_part = (1 - uncertain) * (1 - unsure), uncertain * unsure
        return _log_odds_of_mismatch(torch.cat([certain_part, uncertain_part]), torch.cat([correct, 1 - correct]))


RankedScore: TypeAlias = Literal["confidence", "entropy", "margin"]
CorrectnessNormalisation: TypeAlias = Literal["share", "min-max"]


@final
class CorrectnessRankingLoss(PenalisedLoss, name="crl", title="Correctness ranking", paper=_MOON):
    """Cross-entropy plus a ranking loss that orders confidences by how often each sample was correct in past epochs.

    Improves the order of confidences, which temperature scaling cannot, rather than their level. In the first epoch
    there is no history and nothing is ranked. It keeps a count for each training sample, so the training loop must
    announce the samples of a batch: call :meth:`remember` once, :meth:`begin_epoch` at each epoch and :meth:`look_at`
    before each batch; with ``ignore_index``, only the samples that are kept. The history is part of the saved state. It
    grows in training mode only, after the penalty of the batch is computed. Samples out of range are refused on the CPU
    only. Where a sample of the batch was correct more often than there are past epochs, as when samples are drawn with
    replacement or :meth:`begin_epoch` is never called, the highest count of the batch stands for their number, so that
    no share is above 1.

    Formula: 1/n Σ_i max(0, |r_i − r_j| − sgn(r_i − r_j)(κ_i − κ_j)), j the sample after i, the last one's the first; r
        the share of past epochs in which the sample was correct, κ its score

    Args:
        weight: Weight of the penalty; the default is that of the paper.
        score: κ: ``confidence``; ``entropy``, negative, as a fraction of the largest; or ``margin``, between the two
            largest probabilities.
        normalisation: ``share`` of past epochs, or ``min-max`` as in the paper's code, which subtracts the lowest
            count of all samples from both the count and the number of epochs.

    Example:
        >>> loss = CorrectnessRankingLoss()
        >>> loss.remember(2)
        >>> loss.look_at(torch.tensor([0, 1]))
        >>> logits, labels = torch.tensor([[1.0, 0.0], [1.0, 0.0]]), torch.tensor([0, 1])
        >>> loss(logits, labels).item() == torch.nn.functional.cross_entropy(logits, labels).item()
        True
        >>> loss.begin_epoch(1)
        >>> loss.penalty(logits, labels).item()
        1.0
    """

    weight: NonNegative = 1.0
    score: RankedScore = "confidence"
    normalisation: CorrectnessNormalisation = "share"
    times_right: Tensor | None = field(init=False)
    past_epochs: Tensor = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._samples: Tensor | None = None
        # Whole numbers, which stay exact when the module is cast to another precision.
        self.register_buffer("times_right", None)
        self.register_buffer("past_epochs", torch.ones((), dtype=torch.int64))

    def remember(self, n_samples: int) -> None:
        """Allocate the history of the samples 0..n_samples-1, replacing an earlier one."""
        check_at_least(n_samples, 1, "n_samples")
        self.times_right = torch.zeros(n_samples, dtype=torch.int64, device=self.past_epochs.device)

    def look_at(self, samples: Tensor) -> None:
        """Set the samples of the next batches by their numbers; see :class:`~calibrant.losses.NeedsSamples`."""
        if samples.ndim != 1 or samples.dtype != torch.int64:
            shape = tuple(samples.shape)
            raise InputError(f"samples must be int64 of shape (n,); got {samples.dtype} of shape {shape}.")
        self._samples = samples

    def begin_epoch(self, epoch: int) -> None:
        """Set the number of past epochs: the epoch that begins, counted from 0."""
        check_at_least(epoch, 0, "epoch")
        # Before the second epoch all counts are 0, and their share is 0 of any number.
        self.past_epochs.fill_(max(epoch, 1))

    def penalty(self, logits: Tensor, labels: Tensor) -> Tensor:
        history, samples = self._checked_samples(len(labels))
        top = TopPredictions.of(logits, labels)
        score = self._scores(logits, top)
        share = self._share(history, samples).to(logits.dtype)
        ahead = share - share.roll(-1)
        loss = torch.relu(ahead.abs() - ahead.sign() * (score - score.roll(-1))).mean()
        if self.training:
            with torch.no_grad():
                history.index_add_(0, samples, top.correct.long())
        return loss

    def _checked_samples(self, n: int) -> tuple[Tensor, Tensor]:
        history, samples = self.times_right, self._samples
        if history is None or samples is None:
            call = "remember(n_samples) once" if history is None else "look_at(samples) before each batch"
            raise InputError(f"crl must know which training samples a batch holds. Call {call}.")
        if len(samples) != n:
            raise InputError(
                f"crl must have the number of each sample that is kept; got {len(samples)} for {n} samples. "
                "Call look_at(samples) before each batch, without the ignored samples."
            )
        # Reading samples on a GPU would wait for it, and break a captured graph.
        if samples.device.type == "cpu" and not torch.compiler.is_compiling():
            outside = ((samples < 0) | (samples >= len(history))).nonzero()
            if outside.numel():
                position = int(outside[0])
                raise InputError(
                    f"samples must lie in 0..{len(history) - 1}, as remember({len(history)}) allocated; got "
                    f"{int(samples[position])} at {position}. Call remember with the number of all training samples."
                )
        return history, samples

    def _share(self, history: Tensor, samples: Tensor) -> Tensor:
        counts, epochs = history[samples], self.past_epochs
        if self.normalisation == "min-max":
            least = history.min()
            # Where all samples were correct in all epochs, the paper's code has 0/0.
            counts, epochs = counts - least, (epochs - least).clamp(min=1)
        return counts / torch.maximum(epochs, counts.max())

    def _scores(self, logits: Tensor, top: TopPredictions) -> Tensor:
        if self.score == "confidence":
            return top.confidence
        if self.score == "entropy":
            return -entropies(logits.log_softmax(1)) / math.log(logits.shape[1])
        first, second = top.probs.topk(2, dim=1).values.unbind(1)
        return first - second
