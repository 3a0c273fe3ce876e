"""Rows that a data loader reads: again in order where they can be asked for by number, else as they come."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, final

import torch
from torch import Tensor
from torch.utils.data import DataLoader, default_collate

from calibrant.errors import InputError, in_a_line
from calibrant.labelled_rows.row_batch import collated, pair_in
from calibrant.labelled_rows.row_source import ReadBatch, RowSource

__all__ = ["LoaderRows", "StreamRows", "keeping_every_row", "own_batch_size"]


@final
class LoaderRows(RowSource):
    """Rows of a map-style data set, read by the loader's own workers and ``collate_fn``, in the order asked for.

    Args:
        loader: Its data set, collation and workers are used; its order is not.
        rows: Numbers into the data set, (n,) int64.
    """

    def __init__(self, loader: DataLoader[Any], rows: Tensor) -> None:
        self._loader = loader
        self._rows = rows
        self.n_rows = len(rows)
        self.own_batch_size = own_batch_size(loader)
        # Its own, so that reading rows does not move the random numbers of the person's program.
        self._generator = torch.Generator()
        # Workers that stay alive belong to one loader, whose order then changes from pass to pass.
        self._order = _Order()
        self._kept = _rebuilt(loader, self._order, self._generator) if loader.persistent_workers else None
        self._is_reading = False

    def read(self, chosen: Tensor | None, batch_size: int | None) -> Iterator[ReadBatch]:
        wanted = torch.arange(len(self._rows)) if chosen is None else chosen
        parts = wanted.split(batch_size or len(self._rows))
        with self._over([self._rows[part] for part in parts]) as batches:
            for part, (inputs, labels) in zip(parts, _pairs(batches), strict=True):
                if len(inputs) != len(part):
                    raise InputError(
                        f"collate_fn must keep every row; from {len(part)} it made {len(inputs)}. "
                        "Leave out unwanted rows with torch.utils.data.Subset."
                    )
                yield inputs, labels, part

    @contextmanager
    def _over(self, parts: Sequence[Tensor]) -> Iterator[DataLoader[Any]]:
        # The workers that stay alive read one pass at a time; a second one meanwhile gets its own.
        if self._kept is None or self._is_reading:
            yield _rebuilt(self._loader, _Order(parts), self._generator, persistent=False)
            return
        self._is_reading = True
        try:
            self._order.parts = parts
            yield self._kept
        finally:
            self._is_reading = False


@final
class StreamRows(RowSource):
    """Rows that come as they come, such as those of an iterable data set; every pass starts the loader anew.

    Args:
        loader: Read as it is.
    """

    def __init__(self, loader: DataLoader[Any]) -> None:
        self._loader = loader

    def read(self, chosen: Tensor | None, batch_size: int | None) -> Iterator[ReadBatch]:
        is_chosen = None
        if chosen is not None:
            is_chosen = torch.zeros(int(chosen.max()) + 1, dtype=torch.bool)
            is_chosen[chosen] = True
        end = 0
        for pair in _pairs(self._loader):
            inputs, labels = pair
            start, end = end, end + len(inputs)
            positions = torch.arange(start, end)
            if is_chosen is not None:
                kept = is_chosen[start:end].nonzero()[:, 0]
                inputs, labels, positions = inputs[kept.to(inputs.device)], labels[kept], positions[kept]
            if len(positions):
                size = batch_size or len(positions)
                yield from zip(inputs.split(size), labels.split(size), positions.split(size), strict=True)
            if is_chosen is not None and end >= len(is_chosen):
                return


def _pairs(loader: DataLoader[Any]) -> Iterator[tuple[Tensor, Tensor]]:
    """What a loader gives; of what its data set raises, no more than a sentence."""
    try:
        for batch in loader:
            yield pair_in(batch)
    except InputError:
        raise
    except Exception as error:
        if loader.num_workers:
            error.with_traceback(None)  # which would keep the workers alive, and tells no more than the error itself
        raise InputError(
            f"every row of the data must be readable; the data set or its loader raised {in_a_line(error)}. Mend that "
            "row, or leave it out."
        ) from error


def own_batch_size(loader: DataLoader[Any]) -> int | None:
    """Rows in a batch as the loader or its batch sampler says; None if neither does."""
    size = loader.batch_size or getattr(loader.batch_sampler, "batch_size", None)
    return size if isinstance(size, int) else None


def keeping_every_row(loader: DataLoader[Any]) -> DataLoader[Any]:
    """The same loader of an iterable data set, but one whose last batch may be smaller."""
    return _rebuilt(loader, None, loader.generator) if loader.drop_last else loader


@final
class _Order:
    """The batches of a pass, as numbers into the data set."""

    def __init__(self, parts: Sequence[Tensor] = ()) -> None:
        self.parts = parts

    def __iter__(self) -> Iterator[list[int]]:
        return (part.tolist() for part in self.parts)

    def __len__(self) -> int:
        return len(self.parts)


def _rebuilt(
    loader: DataLoader[Any], order: _Order | None, generator: torch.Generator | None, *, persistent: bool = True
) -> DataLoader[Any]:
    return DataLoader(
        loader.dataset,
        batch_size=loader.batch_size if order is None else 1,
        batch_sampler=order,  # torch asks no more of it than to be iterated
        collate_fn=collated if loader.collate_fn is default_collate else loader.collate_fn,
        num_workers=loader.num_workers,
        # Where there is nothing to pin for, torch warns.
        pin_memory=loader.pin_memory and torch.cuda.is_available(),
        timeout=loader.timeout,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context,
        prefetch_factor=loader.prefetch_factor,
        persistent_workers=persistent and loader.persistent_workers,
        generator=generator,
    )
