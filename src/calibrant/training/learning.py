"""When each training row was learned: the first epoch from which it is answered right to the end."""

from typing import final

import numpy as np
import torch
from torch import Tensor

from calibrant.checks import check_at_least

__all__ = ["LearningTrace", "learned_epochs"]


@final
class LearningTrace:
    """Which training rows were answered right after each epoch, unaugmented, and how high their top logit is now.

    Args:
        n: Training rows.
    """

    def __init__(self, n: int) -> None:
        check_at_least(n, 1, "n")
        self._n = n
        self._packed: list[np.ndarray] = []  # an epoch each, eight rows a byte
        self.max_logit = torch.zeros(n)

    def add(self, logits: Tensor, labels: Tensor) -> None:
        """Look at all rows after an epoch.

        Args:
            logits: Shape (n, k).
            labels: Shape (n,).
        """
        highest, predicted = logits.max(dim=1)
        self._packed.append(np.packbits((predicted == labels).cpu().numpy()))
        self.max_logit = highest.float().cpu()

    @property
    def correct(self) -> Tensor:
        """Which rows were right after each epoch, (epochs, n), bool."""
        rows = [np.unpackbits(epoch, count=self._n) for epoch in self._packed]
        return torch.from_numpy(np.stack(rows)).bool() if rows else torch.zeros(0, self._n, dtype=torch.bool)

    def state(self) -> dict[str, Tensor]:
        """As a file can hold it."""
        empty = np.zeros((0, (self._n + 7) // 8), dtype=np.uint8)
        packed = torch.from_numpy(np.stack(self._packed) if self._packed else empty)
        return {"packed": packed, "max_logit": self.max_logit}

    def restore(self, state: dict[str, Tensor]) -> None:
        """As it was when :meth:`state` was called."""
        self._packed = list(state["packed"].numpy())
        self.max_logit = state["max_logit"].clone()


def learned_epochs(correct: Tensor) -> Tensor:
    """The first epoch from which each row is right at every one to the end; one more than there are if it is not.

    Args:
        correct: Whether each row was right after each epoch, (epochs, n).

    Returns:
        Epochs counted from 1, (n,), int64.

    Example:
        >>> learned_epochs(torch.tensor([[1, 1, 0], [0, 1, 0], [1, 1, 0]], dtype=torch.bool)).tolist()
        [3, 1, 4]
    """
    epochs = len(correct)
    right_to_the_end = correct.flip(0).long().cumprod(0).sum(0)
    return epochs + 1 - right_to_the_end
