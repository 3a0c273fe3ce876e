"""Other processes that train the same weights, each on its share of every batch.

The loss is that of the whole batch in every process: logits are gathered first. So losses that look at a batch as a
whole, such as MMCE, are the same for any number of processes.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

from calibrant.errors import InputError

__all__ = ["ALONE", "Peers", "joined_peers"]


@final
@dataclass(frozen=True)
class Peers:
    """How many processes there are, and which one this is."""

    count: int = 1
    rank: int = 0

    @property
    def is_first(self) -> bool:
        """Whether this process writes the files and shows the progress."""
        return self.rank == 0

    def wrapped(self, model: nn.Module, device: torch.device) -> nn.Module:
        """The network as it is called in training: its gradients are the mean over all processes."""
        if self.count == 1:
            return model
        if device.type == "cuda":
            model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
            return DistributedDataParallel(model, device_ids=[device.index])
        return DistributedDataParallel(model)

    def part_of(self, batch_size: int) -> slice:
        """This process's part of a batch.

        Raises:
            InputError: If a batch cannot be shared evenly.
        """
        if batch_size % self.count:
            raise InputError(f"batch_size must be a multiple of the {self.count} processes; got {batch_size}.")
        size = batch_size // self.count
        return slice(self.rank * size, (self.rank + 1) * size)

    def gathered(self, rows: Tensor) -> Tensor:
        """Everyone's rows, in the order of the whole batch; gradients find their way back."""
        if self.count == 1:
            return rows
        parts = [torch.empty_like(rows) for _ in range(self.count)]
        distributed.all_gather(parts, rows.detach())
        if rows.requires_grad:
            # Each has the loss of the whole batch and passes on what its own rows do to it. The weights' gradient is
            # the sum of that over all processes, of which the wrapped network takes the mean.
            rows.register_hook(lambda gradient: gradient * self.count)
        parts[self.rank] = rows
        return torch.cat(parts)


ALONE = Peers()


@contextmanager
def joined_peers(device: torch.device) -> Iterator[Peers]:
    """Join the processes that ``torchrun`` has started, or stay alone."""
    if "WORLD_SIZE" not in os.environ or int(os.environ["WORLD_SIZE"]) == 1:
        yield ALONE
        return
    distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield Peers(distributed.get_world_size(), distributed.get_rank())
    finally:
        distributed.destroy_process_group()
