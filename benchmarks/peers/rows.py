"""The rows that ours and the peers are timed on, in every form that one of them takes.

All forms are made before the clock starts; a peer that takes probabilities is not charged for the softmax, and its
task says so in its name (``ece from probs``).
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["Rows"]


@dataclass(frozen=True, eq=False)
class Rows:
    """Float32 logits (n, k) and labels (n,), and what follows from them."""

    logits: Tensor
    labels: Tensor

    @classmethod
    def make(cls, n: int, k: int, seed: int = 0) -> "Rows":
        """Logits 1.5 times too large for their labels, mostly below a confidence of 1."""
        generator = torch.Generator().manual_seed(seed)
        logits = torch.randn(n, k, generator=generator).mul_(2)
        # A class that stands out in every row: accuracy is neither 1/k nor 1, whatever k is.
        favourite = torch.randint(k, (n, 1), generator=generator)
        logits.scatter_add_(1, favourite, torch.full((n, 1), 2 + float(np.log(k))))
        labels = torch.cat([_draw(part / 1.5, generator) for part in logits.split(100_000)])
        return cls(logits, labels)

    def prepare(self) -> "Rows":
        """Make every form now, so that no task is timed for it."""
        for name in ("probs", "probs_array", "labels_array", "confidence", "correct", "one_hot"):
            getattr(self, name)
        return self

    @property
    def n_classes(self) -> int:
        """Columns."""
        return self.logits.shape[1]

    @cached_property
    def probs(self) -> Tensor:
        """Float32 probabilities, (n, k)."""
        return self.logits.softmax(dim=1)

    @cached_property
    def probs_array(self) -> NDArray[np.float32]:
        """The same memory for numpy."""
        return self.probs.numpy()

    @cached_property
    def labels_array(self) -> NDArray[np.int64]:
        """Labels for numpy, (n,)."""
        return self.labels.numpy()

    @cached_property
    def confidence(self) -> NDArray[np.float64]:
        """Probability of the predicted class, float64, (n,)."""
        return self.probs.amax(dim=1).double().numpy()

    @cached_property
    def correct(self) -> NDArray[np.bool_]:
        """Whether the prediction is the label, (n,)."""
        return (self.probs.argmax(dim=1) == self.labels).numpy()

    @cached_property
    def one_hot(self) -> NDArray[np.int8]:
        """Labels as indicators, (n, k)."""
        made = np.zeros(self.probs_array.shape, dtype=np.int8)
        np.put_along_axis(made, self.labels_array[:, None], 1, axis=1)
        return made


def _draw(logits: Tensor, generator: torch.Generator) -> Tensor:
    """One label a row from the softmax of the logits: the largest of logits plus Gumbel noise."""
    noise = torch.empty_like(logits).exponential_(generator=generator).log_().neg_()
    return (logits + noise).argmax(dim=1)
