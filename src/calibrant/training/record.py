"""What is written down after each epoch: how the network does on training rows and on each held-out part."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, final

import torch
from torch import Tensor

from calibrant.checks import check_at_least
from calibrant.errors import FitError, InputError
from calibrant.metrics import accuracy, ece, nll
from calibrant.numerics.coldest import best_coldness
from calibrant.numerics.lowest_error import lowest_error
from calibrant.predictions import Predictions

__all__ = ["EpochRecord", "HeldOutRecord", "judge"]


@final
@dataclass(frozen=True)
class HeldOutRecord:
    """How a network does on rows it was not trained on."""

    accuracy: float
    nll: float
    ece: float
    temperature: float | None  # the one with the lowest log-loss on these same rows; None where all logits are alike
    optimal_ece: float  # the lowest of any temperature, searched on these same rows: an oracle's answer
    max_logit: float  # mean over the rows


@final
@dataclass(frozen=True)
class EpochRecord:
    """One epoch of a run."""

    epoch: int  # counted from 1
    seconds: float
    learning_rate: float  # at the last step
    loss: float  # mean over the steps, of augmented and mixed rows
    accuracy: float  # of the same, in training mode
    held_out: Mapping[str, HeldOutRecord]  # empty after epochs in which nobody looked
    learned: Mapping[str, float] = field(default_factory=dict)  # of a loss that is learned, such as its mean γ

    def as_dict(self) -> dict[str, Any]:
        """As a file can hold it."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "EpochRecord":
        """As read from a file.

        Raises:
            InputError: If what must be a number is none.
        """
        held_out = {name: HeldOutRecord(**part) for name, part in values["held_out"].items()}
        read = cls(**{**values, "held_out": held_out})
        check_at_least(read.epoch, 1, "epoch")
        plain = [value for name, value in vars(read).items() if name not in {"held_out", "learned"}]
        parts = [value for part in held_out.values() for value in vars(part).values() if value is not None]
        for value in (*plain, *parts, *dict(read.learned).values()):
            if not isinstance(value, int | float) or isinstance(value, bool):
                raise InputError(f"what a record of an epoch holds must be numbers; got {value!r}.")
        return read


def judge(logits: Tensor, labels: Tensor) -> HeldOutRecord:
    """The numbers of one held-out part.

    Args:
        logits: Shape (n, k).
        labels: Shape (n,).

    Raises:
        FitError: If the logits are not finite: the training has come apart.

    Example:
        >>> judge(4 * torch.eye(3), torch.arange(3)).accuracy
        1.0
    """
    if not bool(torch.isfinite(logits).all()):
        raise FitError(
            "the network's logits must stay finite; they are not. Lower the learning rate, or clip the gradient."
        )
    predictions = Predictions.from_logits(logits, labels)
    try:
        temperature = 1 / best_coldness(logits, labels).coldness
    except FitError:  # logits that are all alike, as of a network that has died
        temperature = None
    return HeldOutRecord(
        accuracy=float(accuracy(predictions)),
        nll=float(nll(predictions)),
        ece=float(ece(predictions)),
        temperature=temperature,
        optimal_ece=lowest_error(logits, labels, n_bins=15).error,
        max_logit=float(logits.amax(dim=1).double().mean()),
    )
