"""Where labelled rows are read from, and the plainest of the places: tensors."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TypeAlias, final

import torch
from torch import Tensor

__all__ = ["ReadBatch", "RowSource", "TensorRows"]

ReadBatch: TypeAlias = tuple[Tensor, Tensor, Tensor]
"""Inputs (m, ...), labels (m,) and positions (m,) int64 on the CPU."""


class RowSource(ABC):
    """Rows that can be read again and again, each pass in the same order."""

    own_batch_size: int | None = None
    """What the person's loader says; None where it says nothing."""

    n_rows: int | None = None
    """None where that shows only when they are read, from the first to the last, in batches that are given."""

    @abstractmethod
    def read(self, chosen: Tensor | None, batch_size: int | None) -> Iterator[ReadBatch]:
        """One pass, nothing checked but that every batch is inputs and labels.

        Args:
            chosen: Positions, (m,) int64 on the CPU, in the order wanted; None for all.
            batch_size: Rows at most in a batch; None for batches as they are given, where they are, and else for one.
        """


@final
class TensorRows(RowSource):
    """Rows in memory; a pass over all of them copies nothing.

    Args:
        inputs: (N, ...), on any device.
        labels: (N,), on any device.
        rows: Those of the N that count, (n,); None for all.
    """

    def __init__(self, inputs: Tensor, labels: Tensor, rows: Tensor | None = None) -> None:
        self._inputs = inputs
        self._labels = labels.cpu() if rows is None else labels.cpu()[rows]
        self._rows = rows
        self.n_rows = len(self._labels)
        # Gathering rows would undo channels-last, at three times the cost; gathered in the order of memory it does not.
        moved = inputs.movedim(1, -1) if inputs.ndim > 1 else inputs
        self._channels_last = moved.is_contiguous() and not inputs.is_contiguous()
        self._in_memory = moved if self._channels_last else inputs

    def read(self, chosen: Tensor | None, batch_size: int | None) -> Iterator[ReadBatch]:
        n = len(self._labels)
        size = batch_size or n
        if chosen is None and self._rows is None:
            positions = torch.arange(n).split(size)
            yield from zip(self._inputs.split(size), self._labels.split(size), positions, strict=True)
            return
        wanted = torch.arange(n) if chosen is None else chosen
        places = wanted if self._rows is None else self._rows[wanted]
        for part, place in zip(wanted.split(size), places.to(self._inputs.device).split(size), strict=True):
            gathered = self._in_memory.index_select(0, place)
            yield gathered.movedim(-1, 1) if self._channels_last else gathered, self._labels[part], part
