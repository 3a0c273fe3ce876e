"""Calibration rows, however they are kept: labels at once, inputs a batch at a time, the same rows at every pass."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from calibrant.clamping.rows.row_check import check_alike, check_every_row
from calibrant.errors import InputError
from calibrant.labelled_rows.batch_size import check_batch_size, default_batch_size
from calibrant.labelled_rows.open_rows import open_rows
from calibrant.labelled_rows.reading import moved
from calibrant.labelled_rows.row_source import RowSource

__all__ = ["CalibrationRows"]


@final
@dataclass(frozen=True, eq=False)
class CalibrationRows:
    """Inputs and labels that something is fitted on, read in batches and in a fixed order.

    Made by ``of``, which reads everything once and refuses what cannot be fitted on. No more than a batch of inputs is
    held, unless the data are tensors. Labels are compared at every pass, inputs are not: a data set that changes its
    inputs at random gives each pass other ones, and what is fitted is then an average over the changes.

    Example:
        >>> rows = CalibrationRows.of((torch.rand(5, 3, 8, 8), [0, 1, 2, 1, 0]))
        >>> len(rows), rows.input_shape
        (5, (3, 8, 8))
        >>> for inputs, positions in rows.batches(torch.tensor([4, 0, 2]), device="cpu", batch_size=2):
        ...     print(tuple(inputs.shape), rows.labels[positions].tolist())
        (2, 3, 8, 8) [0, 0]
        (1, 3, 8, 8) [2]
    """

    labels: Tensor
    """(n,) int64 on the CPU, at least 0."""

    input_shape: tuple[int, ...]
    """Of one input, without the batch axis."""

    input_dtype: torch.dtype
    """Floating."""

    source: RowSource
    """Where the rows are read."""

    batch_size: int | None
    """Rows in a batch where a pass does not say; None: by the size of an input."""

    @classmethod
    def of(cls, data: object, *, batch_size: int | None = None) -> "CalibrationRows":
        """Take data as a person has them.

        Args:
            data: A tuple (inputs, labels) of tensors or arrays, inputs (n, ...) and labels (n,); a map-style
                ``Dataset`` of pairs (input, label); or a ``DataLoader``. A loader's workers and ``collate_fn`` are
                used, but not its order: all rows of its sampler come, ascending, each once. A loader of an iterable
                data set is read anew at each pass, and must give the same labels each time.
            batch_size: Rows at a time. By default a loader's own, else as many as make about a million numbers (four
                times that on a GPU). It changes speed and memory, not what is read.

        Raises:
            InputError: If there are no rows, inputs are not finite floating-point numbers of one shape, or labels are
                not whole numbers from 0.
        """
        if batch_size is not None:
            batch_size = check_batch_size(batch_size)
        if isinstance(data, cls):
            size = data.batch_size if batch_size is None else batch_size
            return cls(data.labels, data.input_shape, data.input_dtype, data.source, size)
        source = open_rows(data)
        size = source.own_batch_size if batch_size is None else batch_size
        found = check_every_row(source, size)
        return cls(found.labels, found.input_shape, found.input_dtype, source, size)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def are_streamed(self) -> bool:
        """Whether they come in an order and in batches of their own, as from an iterable data set."""
        return self.source.n_rows is None

    def batches(
        self, chosen: Tensor | None = None, *, device: torch.device | str, batch_size: int | None = None
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """One pass: inputs (m, ...) on the device, and their positions (m,), int64 on the CPU, in ``labels``.

        Inputs of tensors that lie on the device already are views where all rows are read; they must not be changed.

        Args:
            chosen: Positions, (c,) whole numbers, in the order wanted; None for all rows. An iterable data set gives
                them in the order in which they come, and each once.
            device: Where the inputs are wanted.
            batch_size: For this pass.

        Raises:
            InputError: If positions are not of these rows, or the data are not what they were at the first pass.
        """
        to = torch.device(device)
        if batch_size is not None:
            batch_size = check_batch_size(batch_size)
        if chosen is not None:
            chosen = self._positions(chosen)
        size = batch_size or self.batch_size
        if size is None and not self.are_streamed:
            size = default_batch_size(self.input_shape, to)
        return self._pass(chosen, to, size)

    def _pass(self, chosen: Tensor | None, device: torch.device, size: int | None) -> Iterator[tuple[Tensor, Tensor]]:
        expected = len(self) if chosen is None else len(chosen)
        if expected == 0:
            return
        came = 0
        for inputs, labels, positions in self.source.read(chosen, size):
            came += len(positions)
            if came > expected:
                break
            self._check_same(inputs, labels, positions)
            yield moved(inputs, device), positions
        if came != expected:
            raise InputError(
                f"data must give the same rows at every pass; {expected:,} were to come, and "
                f"{came:,}{' or more' * (came > expected)} came. A loader must be able to start again; or give tensors."
            )

    def _check_same(self, inputs: Tensor, labels: Tensor, positions: Tensor) -> None:
        check_alike(inputs, self.input_shape, self.input_dtype, int(positions[0]))
        first = self.labels[positions]
        if torch.equal(first, labels.to(torch.int64)):
            return
        place = int((first != labels).nonzero()[0])
        raise InputError(
            f"data must give the same rows in the same order at every pass; the label of row {int(positions[place])} "
            f"was {int(first[place])} and is now {int(labels[place])}. Take the shuffling out, or give tensors."
        )

    def _positions(self, chosen: Tensor) -> Tensor:
        if chosen.ndim != 1 or chosen.is_floating_point() or chosen.is_complex() or chosen.dtype == torch.bool:
            raise InputError(
                f"chosen must be positions, whole numbers of shape (c,); got {chosen.dtype} of shape "
                f"{tuple(chosen.shape)}. Of a mask take mask.nonzero()[:, 0]."
            )
        chosen = chosen.to("cpu", torch.int64)
        outside = chosen[(chosen < 0) | (chosen >= len(self))]
        if len(outside):
            raise InputError(f"chosen must lie in 0..{len(self) - 1}; got {int(outside[0])}.")
        if self.are_streamed and len(chosen.unique()) < len(chosen):
            raise InputError("chosen must name each row once where rows are read as they come; got one twice.")
        return chosen
