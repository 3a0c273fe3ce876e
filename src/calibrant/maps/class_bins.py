"""Every class's probability replaced by that of its bin: what histogram binning of each class leaves."""

from typing import ClassVar, final

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from calibrant.maps.base import Map
from calibrant.maps.learned import require
from calibrant.numerics.binning import bin_index

__all__ = ["ClassBins"]


@final
class ClassBins(Map):
    """A new probability for every class by the bin of equal width its old one is in, then divided by their sum.

    What :class:`OneVsRest` does with steps, where these have equal widths: their bins need no search.

    Args:
        values: Log-odds in each bin (lo, hi] of 0..1, (k, b).
        n_classes: Length of a row of logits.
    """

    kind: ClassVar[str] = "class_bins"
    values: Tensor

    def __init__(self, values: Tensor, *, n_classes: int) -> None:
        super().__init__(n_classes, gives_log_probs=True)
        self.keep(values=values)

    def check_numbers(self) -> None:
        sized = self.values.ndim == 2 and len(self.values) == self.n_classes and self.values.shape[1] > 0
        require(sized, f"values must have shape ({self.n_classes}, bins), at least one bin", self.values)

    def calibrated(self, logits: Tensor) -> Tensor:
        k, n_bins = self.values.shape
        table = logsigmoid(self.values).to(logits)
        first = torch.arange(0, k * n_bins, n_bins, device=logits.device)
        return table.take(bin_index(logits.softmax(dim=-1), n_bins) + first).log_softmax(dim=-1)
