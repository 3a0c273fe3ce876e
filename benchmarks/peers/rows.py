"""The rows that ours and the peers are timed on, in every form that one of them takes.

All forms are made before the clock starts; a peer that takes probabilities is not charged for the softmax, and its
task says so in its name (``ece from probs``).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["Fitted", "Rows"]


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

    @classmethod
    def like_a_network(cls, n: int, k: int, seed: int = 0) -> "Rows":
        """Logits as of a network trained on small images: groups of five alike classes, twice too large, skewed.

        At 100 classes temperature scaling leaves a log-loss of 0.80, and what is left to gain by scaling each class by
        itself, or by mixing classes, is 0.005 and 0.010: much as on a DenseNet's CIFAR-100 logits.
        """
        generator, of_classes = (torch.Generator().manual_seed(each) for each in (seed, 12_345))
        group = torch.arange(k) // 5
        favourite = torch.randint(k, (n, 1), generator=generator)
        size = torch.empty(n, 1).uniform_(3, 14, generator=generator)
        honest = torch.randn(n, k, generator=generator) + torch.randn(n, k // 5 + 1, generator=generator)[:, group]
        honest.mul_(1.6).add_(size / 3 * (group == favourite // 5)).scatter_add_(1, favourite, size)
        labels = torch.cat([_draw(part, generator) for part in honest.split(10_000)])
        slope, shift = (torch.randn(k, generator=of_classes) for _ in range(2))
        mixing = torch.randn(k, k, generator=of_classes).mul_(0.0015 * (100 / k) ** 0.5)
        mixing += (1 + 0.06 * slope).diag()
        return cls((honest @ mixing).add_(0.3 * shift).mul_(2.1), labels)

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


# What a fit gives: a function from rows to their calibrated probabilities, (n, k).
Fitted: TypeAlias = Callable[[Rows], NDArray[Any]]


def _draw(logits: Tensor, generator: torch.Generator) -> Tensor:
    """One label a row from the softmax of the logits: the largest of logits plus Gumbel noise."""
    noise = torch.empty_like(logits).exponential_(generator=generator).log_().neg_()
    return (logits + noise).argmax(dim=1)
