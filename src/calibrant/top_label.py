"""How sure each answer was and whether it was right: all that many people have, and all that top-label metrics need."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Self, final

import torch
from torch import Tensor

from calibrant.checks import as_tensor, check_real, check_rows, check_same_length, check_unit_interval
from calibrant.errors import InputError

__all__ = ["ROWS_AT_ONCE", "TopLabel"]

# Rows in a block: what is kept a row stays within a few megabytes, whatever the number of rows.
ROWS_AT_ONCE = 1 << 17


@final
@dataclass(frozen=True, eq=False)
class TopLabel:
    """How sure each answer was, and whether it was right.

    Args:
        confidence: Shape (n,), in 0..1.
        correct: Shape (n,), bool (or 0 and 1 of an integer type).
        log_odds: Shape (n,); worked out from the confidence unless given. Where float32 confidences have rounded to
            1.0 it still tells them apart, and so it is what rankings are made of.

    Example:
        >>> answers = TopLabel([0.9, 0.8, 0.7], [True, True, False])
        >>> len(answers), answers.accuracy
        (3, 0.6666666666666666)
    """

    confidence: Tensor
    correct: Tensor
    log_odds: Tensor = field(default=None, repr=False)  # type: ignore[assignment]  # filled in below

    def __post_init__(self) -> None:
        confidence = check_real(as_tensor(self.confidence, "confidence"), "confidence").double()
        correct = as_tensor(self.correct, "correct").to(confidence.device)
        if confidence.ndim != 1 or correct.ndim != 1:
            raise InputError(
                "confidence and correct must be one number a row, shape (n,); "
                f"got shapes {tuple(confidence.shape)} and {tuple(correct.shape)}."
            )
        check_same_length(confidence, "confidence", correct, "correct")
        check_rows(confidence.shape[0])
        check_unit_interval(confidence, "confidence")
        if correct.dtype != torch.bool:
            stray = ((correct != 0) & (correct != 1)).nonzero()
            if stray.numel():
                row = int(stray[0])
                raise InputError(f"correct must be true/false or 0/1; got {correct[row].item()} at row {row}.")
        object.__setattr__(self, "confidence", confidence)
        object.__setattr__(self, "correct", correct.to(torch.bool))
        if self.log_odds is None:
            # Not torch.logit, which rounds the last rows of an array otherwise than the rest, so that ties would break.
            log_odds = confidence.log() - (-confidence).log1p()
        else:
            log_odds = as_tensor(self.log_odds, "log_odds").to(confidence)
            check_same_length(confidence, "confidence", log_odds, "log_odds")
            if log_odds.ndim != 1 or log_odds.isnan().any():
                raise InputError("log_odds must be one number a row and not NaN, so that rows can be ranked by it.")
            off = ((log_odds.sigmoid() - confidence).abs() > 1e-3).nonzero()
            if off.numel():
                row = int(off[0])
                raise InputError(
                    f"log_odds must belong to the confidence; got {float(log_odds[row]):.4g} beside "
                    f"{float(confidence[row]):.4g} at row {row}."
                )
        object.__setattr__(self, "log_odds", log_odds)

    @classmethod
    def _trusted(cls, confidence: Tensor, correct: Tensor, log_odds: Tensor) -> Self:
        """Build from columns that are known to be right."""
        made = object.__new__(cls)
        for name, value in (("confidence", confidence), ("correct", correct), ("log_odds", log_odds)):
            object.__setattr__(made, name, value)
        return made

    @property
    def top(self) -> Self:
        """Itself, so that a metric of the top label takes either record."""
        return self

    @property
    def accuracy(self) -> float:
        """Share of right answers."""
        return float(self.correct.double().mean())

    def __len__(self) -> int:
        return self.confidence.shape[0]

    def __getitem__(self, rows: slice | Tensor) -> Self:
        confidence = self.confidence[rows]
        check_rows(len(confidence))
        return self._trusted(confidence, self.correct[rows], self.log_odds[rows])

    def blocks(self, rows: int | None = None) -> Iterator[Self]:
        """The same rows in pieces of bounded size."""
        step = rows or ROWS_AT_ONCE
        for start in range(0, len(self), step):
            yield self[start : start + step]
