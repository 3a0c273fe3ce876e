"""Correctness ranking loss: samples that were right more often are to be the more confident ones."""

import math
from typing import ClassVar, Literal, TypeAlias, final, get_args

import torch
from torch import Tensor

from calibrant.checks import check_at_least, check_known
from calibrant.errors import InputError
from calibrant.losses.base import PenalisedLoss, RowLoss
from calibrant.losses.calibration_error import Answers, entropies
from calibrant.paper import Paper

__all__ = ["CorrectnessNormalisation", "CorrectnessRankingLoss", "RankedScore"]

RankedScore: TypeAlias = Literal["confidence", "entropy", "margin"]
CorrectnessNormalisation: TypeAlias = Literal["share", "min-max"]


@final
class CorrectnessRankingLoss(PenalisedLoss):
    """Cross-entropy plus a ranking loss that orders confidences by how often each sample was right in past epochs.

    Improves the order of confidences, which temperature scaling cannot, rather than their level. In the first epoch
    there is no past and nothing is ranked. It keeps a number for each training sample, so the loop must say which
    samples a batch holds: call :meth:`remember` once, :meth:`begin_epoch` at each epoch and :meth:`look_at` before each
    batch. The history is part of the state that is saved. It grows in training mode only, after the penalty of the
    batch is known. Samples out of range are refused on the CPU only. Where one of the batch was right more often than
    epochs are past, as when samples are drawn with replacement or the loop never tells the epoch, the highest count of
    the batch is taken for their number, so that no share is above 1.

    Formula: 1/n Σ_i max(0, |r_i − r_j| − sgn(r_i − r_j)(κ_i − κ_j)), j the row after i, the last one's the first; r the
        share of past epochs in which the sample was right, κ its score

    Args:
        weight: What the penalty is multiplied by; the default is that of the paper.
        score: κ: ``confidence``; ``entropy``, negative, as a fraction of the largest; or ``margin``, between the two
            largest probabilities.
        normalisation: ``share`` of past epochs, or ``min-max`` as in the paper's code, which subtracts the lowest
            count of all samples from both the count and the number of epochs.
        base: The loss of each row; the cross-entropy if None.
        reduction: See :class:`PenalisedLoss`.
        ignore_index: See :class:`PenalisedLoss`; :meth:`look_at` is then told the rows that count.

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

    name: ClassVar[str] = "crl"
    title: ClassVar[str] = "Correctness ranking"
    paper: ClassVar[Paper] = Paper(
        "Moon et al.", 2020, "Confidence-Aware Learning for Deep Neural Networks", "arXiv:2007.01458"
    )
    times_right: Tensor | None
    past_epochs: Tensor

    def __init__(
        self,
        *,
        weight: float = 1.0,
        score: RankedScore = "confidence",
        normalisation: CorrectnessNormalisation = "share",
        base: RowLoss | None = None,
        reduction: Literal["mean", "sum"] = "mean",
        ignore_index: int | None = None,
    ) -> None:
        super().__init__(weight=weight, base=base, reduction=reduction, ignore_index=ignore_index)
        check_known(score, get_args(RankedScore), "score")
        check_known(normalisation, get_args(CorrectnessNormalisation), "normalisation")
        self.score = score
        self.normalisation = normalisation
        self._samples: Tensor | None = None
        # Whole numbers, which stay exact when the module is turned to another precision.
        self.register_buffer("times_right", None)
        self.register_buffer("past_epochs", torch.ones((), dtype=torch.int64))

    def remember(self, n_samples: int) -> None:
        """Make room for the history of the samples 0..n_samples-1; an earlier history is forgotten."""
        check_at_least(n_samples, 1, "n_samples")
        self.times_right = torch.zeros(n_samples, dtype=torch.int64, device=self.past_epochs.device)

    def look_at(self, samples: Tensor) -> None:
        """Say which samples the next batches hold.

        Args:
            samples: Shape (n,), int64, one number for each row of the batch. It is kept, not copied, so that a loop
                that replays a captured graph can fill it anew for each batch.

        Raises:
            InputError: If they are no such numbers.
        """
        if samples.ndim != 1 or samples.dtype != torch.int64:
            raise InputError(
                f"samples must be whole numbers, int64 of shape (n,), one a row; "
                f"got {samples.dtype} of shape {tuple(samples.shape)}."
            )
        self._samples = samples

    def begin_epoch(self, epoch: int) -> None:
        """Say that an epoch begins, counted from 0, so that many are past."""
        check_at_least(epoch, 0, "epoch")
        # Before the second epoch all counts are 0, and so is what they are divided into.
        self.past_epochs.fill_(max(epoch, 1))

    def penalty(self, logits: Tensor, labels: Tensor) -> Tensor:
        history, samples = self._told(len(labels))
        answers = Answers.of(logits, labels)
        often = self._often(history, samples).to(logits.dtype)
        score = self._scores(logits, answers)
        ahead = often - often.roll(-1)
        loss = torch.relu(ahead.abs() - ahead.sign() * (score - score.roll(-1))).mean()
        if self.training:
            with torch.no_grad():
                history.index_add_(0, samples, answers.correct.long())
        return loss

    def _told(self, rows: int) -> tuple[Tensor, Tensor]:
        if self.times_right is None or self._samples is None:
            call = "remember(n_samples) once" if self.times_right is None else "look_at(samples) before each batch"
            raise InputError(f"crl must know which training samples a batch holds; it was not told. Call {call}.")
        if len(self._samples) != rows:
            raise InputError(
                f"crl must be told the sample of each row that counts; got {len(self._samples)} for {rows} rows. "
                "Call look_at(samples) before each batch, with one number a row and none for ignored rows."
            )
        # A look at the samples of a GPU would wait for it, and break a captured graph.
        if self._samples.device.type == "cpu" and not torch.compiler.is_compiling():
            _check_samples(self._samples, len(self.times_right))
        return self.times_right, self._samples

    def _often(self, history: Tensor, samples: Tensor) -> Tensor:
        counts, epochs = history[samples], self.past_epochs
        if self.normalisation == "min-max":
            least = history.min()
            # Where all samples were right in all epochs, the paper's code has 0/0.
            counts, epochs = counts - least, (epochs - least).clamp(min=1)
        return counts / torch.maximum(epochs, counts.max())

    def _scores(self, logits: Tensor, answers: Answers) -> Tensor:
        if self.score == "confidence":
            return answers.confidence
        if self.score == "entropy":
            return -entropies(logits.log_softmax(1)) / math.log(logits.shape[1])
        first, second = answers.probs.topk(2, dim=1).values.unbind(1)
        return first - second


def _check_samples(samples: Tensor, n: int) -> None:
    outside = ((samples < 0) | (samples >= n)).nonzero()
    if outside.numel():
        row = int(outside[0])
        raise InputError(
            f"samples must lie in 0..{n - 1}, as remember({n}) made room for; got {int(samples[row])} at row {row}. "
            "Call remember(n_samples) with the number of all training samples."
        )
