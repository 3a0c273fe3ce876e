"""The epoch that was kept, why, and what to say about it."""

from dataclasses import dataclass
from typing import final

from calibrant.confidence.best_epoch import BestEpoch
from calibrant.confidence.gathering import Gathered
from calibrant.confidence.held_out import ChooseEpochBy, Parts, held_out_value, is_better

__all__ = ["ChosenEpoch", "chosen_epoch"]

_ENOUGH_TO_TELL = 100


@final
@dataclass(frozen=True)
class ChosenEpoch:
    """The epoch that was kept, and why.

    Args:
        epoch: From 1.
        epochs: How many there were.
        fine_tuned: Epochs of fine-tuning that were kept after it; 0 if none, or if they did not help.
        criterion: What chose it: ``aupr_error``, ``auroc`` or ``mse``.
        value: Of the criterion on the held-out rows. Being the best of all epochs, it flatters.
        softmax_value: Of the network's own confidence on the same rows.
        held_out: How many they were.
    """

    epoch: int
    epochs: int
    fine_tuned: int
    criterion: ChooseEpochBy
    value: float
    softmax_value: float
    held_out: int

    @property
    def beats_softmax(self) -> bool:
        """Whether it is better than the network's own confidence there."""
        return is_better(self.criterion, self.value, self.softmax_value)

    @property
    def doubt(self) -> str | None:
        """Why the head is not worth having, where enough rows tell that it is not.

        By ``mse`` they do not: for every right answer the softmax confidence is itself what is learned.
        """
        if self.beats_softmax or self.criterion == "mse" or self.held_out < _ENOUGH_TO_TELL:
            return None
        return (
            f"the learned confidence separates errors no better than the softmax's ({self.criterion} {self.value:.3g} "
            f"against {self.softmax_value:.3g} on {self.held_out:,} held-out rows). Take the softmax, or give more "
            "rows that the network was not trained on."
        )

    def notes(self) -> tuple[str, ...]:
        """The same in sentences."""
        against = f"{self.criterion} {self.value:.4g} against {self.softmax_value:.4g} of the softmax confidence"
        told = [f"Epoch {self.epoch} of {self.epochs} is best on {self.held_out:,} held-out rows: {against}."]
        if self.fine_tuned:
            told.append(f"{self.fine_tuned} epochs of fine-tuning are in it.")
        if not self.beats_softmax:
            told.append("It is no better than the softmax confidence there; the features or the rows tell no more.")
        return tuple(told)


def chosen_epoch(
    known: Gathered, parts: Parts, best: BestEpoch, tuned: BestEpoch | None, *, epochs: int
) -> ChosenEpoch:
    """What training found, beside the network's own confidence on the same held-out rows.

    Args:
        known: Of all rows.
        parts: Which were held out.
        best: Of the head's epochs.
        tuned: Of those of fine-tuning, if there were any.
        epochs: Of the head, all of them.
    """
    value = (best if tuned is None else tuned).value
    assert value is not None  # an epoch is always looked at
    rows = parts.held_out.to(known.target.device)
    softmax = held_out_value(best.criterion, known.softmax_log_odds[rows], known.target[rows], known.correct[rows])
    return ChosenEpoch(best.epoch, epochs, tuned.epoch if tuned else 0, best.criterion, value, softmax, len(rows))
