"""The weights of the best epoch so far, as rows judge them that were held out."""

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor, nn

from calibrant.confidence.held_out import ChooseEpochBy, held_out_value, is_better
from calibrant.errors import FitError

__all__ = ["BestEpoch"]


@final
class BestEpoch:
    """Looks at every epoch, keeps a copy of the best one's weights, and puts them back at the end.

    Args:
        modules: Whose weights they are.
        criterion: What an epoch is judged by.
        target: The true-class probability of the held-out rows, (m,).
        correct: Which of them are answered right, (m,).
        value: To be beaten, where the weights of now are to be kept unless an epoch is better; None if they are not.
    """

    def __init__(
        self,
        modules: Sequence[nn.Module],
        *,
        criterion: ChooseEpochBy,
        target: Tensor,
        correct: Tensor,
        value: float | None = None,
    ) -> None:
        self._modules = modules
        self.criterion, self._target, self._correct = criterion, target, correct
        self.epoch, self.value = 0, value
        self._kept = [] if value is None else self._copies()

    def look(self, epoch: int, log_odds: Tensor) -> float:
        """Judge an epoch by the log-odds it gives the held-out rows, (m,); the first of equals stays.

        Raises:
            FitError: If they are not finite.
        """
        if not log_odds.isfinite().all():
            raise FitError(
                f"training must give finite confidences; in epoch {epoch} some were not. Take a lower learning rate, "
                "or bring the features to a size of about one."
            )
        value = held_out_value(self.criterion, log_odds, self._target, self._correct)
        if self.value is None or is_better(self.criterion, value, self.value):
            self.epoch, self.value, self._kept = epoch, value, self._copies()
        return value

    def restore(self) -> None:
        """Put the best epoch's weights back."""
        with torch.no_grad():
            for tensor, kept in zip(self._tensors(), self._kept, strict=True):
                tensor.copy_(kept)

    def _tensors(self) -> list[Tensor]:
        return [tensor for module in self._modules for tensor in (*module.parameters(), *module.buffers())]

    def _copies(self) -> list[Tensor]:
        return [tensor.detach().clone() for tensor in self._tensors()]
